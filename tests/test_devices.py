"""Nothing in a step waits for the host, and every tensor says where it is: what can be known of GPUs without one."""

from __future__ import annotations

import sys
from collections import Counter

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader

from sccountsdiff.diffusion import NOISED, OBSERVED
from sccountsdiff.model.engine import draw_sites, make_generator
from sccountsdiff.model.settings import SamplingSettings
from sccountsdiff.module import CountsDiffModule
from sccountsdiff.nn import HEADS
from sccountsdiff.training import BestAverage, CountsDiffTrainingPlan
from sccountsdiff.training.divergence import LOOK_EVERY

N_CELLS, N_GENES = 16, 12
WAITS = {"_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "unique", "_unique2"}
"""Operations whose result, or its size, the host has to know."""


class Waits(TorchDispatchMode):
    """Counts the operations for which a GPU would be waited for.

    Not those on tensors that are said to be on the host, by their attribute ``on_host``, and on what is made of them.
    """

    def __init__(self):
        super().__init__()
        self.found = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        # Times and rates are on the host, in double precision, and may be read.
        said = bool(args) and getattr(args[0], "on_host", False)
        on_host = said or (bool(args) and isinstance(args[0], torch.Tensor) and args[0].dtype == torch.float64)
        by_mask = name in ("index", "index_put", "index_put_") and any(
            index is not None and index.dtype == torch.bool for index in args[1]
        )
        if (name in WAITS and not on_host) or by_mask:
            self.found[name] += 1
        result = function(*args, **(kwargs or {}))
        if said and isinstance(result, torch.Tensor):
            result.on_host = True
        return result


@pytest.fixture(autouse=True)
def as_on_a_device(monkeypatch):
    """No short cut that only the host can see is taken."""
    for module in [*sys.modules.values()]:
        if getattr(module, "__name__", "").startswith("sccountsdiff.") and hasattr(module, "host_sees"):
            monkeypatch.setattr(module, "host_sees", lambda values: False)


def make(**kwargs) -> CountsDiffModule:
    torch.manual_seed(0)
    options = {
        "backbone_kwargs": {"n_hidden": 8, "n_layers": 1},
        "n_categories": [3],
        "gene_max": np.full(N_GENES, 9.0),
    }
    options |= {"continuous_location": [0.0], "continuous_scale": [1.0], "gene_groups": np.arange(N_GENES) % 2}
    module = CountsDiffModule(np.linspace(0.5, 3, N_GENES), **options | kwargs)
    counts = batch()["X"]
    module.denoiser.fit(counts.nan_to_num(0), counts.isnan())
    return module


def batch() -> dict[str, torch.Tensor]:
    rng = np.random.default_rng(0)
    counts = rng.poisson(2, (N_CELLS, N_GENES)).astype(np.float32)
    counts[:4, :3] = np.nan
    codes, values = rng.integers(3, size=(N_CELLS, 1)), rng.normal(size=(N_CELLS, 1))
    arrays = {"X": counts, "extra_categorical_covs": codes, "extra_continuous_covs": values}
    return {key: torch.from_numpy(value) for key, value in arrays.items()}


def step(module, optimizer, tensors):
    _, _, output = module(tensors)
    output.loss.backward()
    torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()


@pytest.fixture(params=["mlp", "transformer"])
def backbone(request):
    small = {"mlp": {"n_hidden": 8, "n_layers": 1}, "transformer": {"n_hidden": 8, "n_layers": 1, "n_heads": 2}}
    return {"backbone": request.param, "backbone_kwargs": small[request.param]}


@pytest.mark.parametrize("head", [*HEADS])
@pytest.mark.parametrize("n_factors", [0, 3])
def test_a_training_step_waits_for_nothing(head, n_factors, backbone):
    module = make(head=head, n_factors=n_factors, **backbone).train()
    optimizer, tensors = torch.optim.AdamW(module.parameters(), fused=True), batch()
    step(module, optimizer, tensors)  # the first one makes the state of the optimiser
    with Waits() as waits:
        step(module, optimizer, tensors)
    assert not waits.found


def waits_of_training(n_steps: int) -> Counter:
    """All that is waited for by Lightning, optimiser, average and watch, without validation."""
    plan = CountsDiffTrainingPlan(make(n_factors=3))
    trainer = pl.Trainer(
        max_steps=n_steps,
        max_epochs=1,
        accelerator="cpu",
        gradient_clip_val=1.0,
        callbacks=[BestAverage()],
        **dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing"), False),
    )
    with Waits() as waits:
        trainer.fit(plan, DataLoader([batch()] * n_steps, batch_size=None))
    return waits.found


def test_a_step_of_a_training_waits_for_nothing():
    """Once in a while the losses are looked at; that apart, more steps are not waited for more often."""
    few, more, looked = (waits_of_training(n).total() for n in (4, LOOK_EVERY - 4, LOOK_EVERY + 4))
    assert few == more == looked - 1


@pytest.mark.parametrize("head", [*HEADS])
@pytest.mark.parametrize("settings", [{}, {"attrition": 0.5}, {"known": "noised"}, {"guidance": 2.0}], ids=str)
@pytest.mark.parametrize("n_chains", [1, 4])
def test_a_reverse_step_waits_once_at_most(head, settings, n_chains):
    """To see whether the prediction has run away; each chain, where its sites are."""
    module = make(head=head, n_factors=3).eval()
    found = [waits_of_chain(module, SamplingSettings(n_steps=n, **settings), n_chains) for n in (2, 6)]
    assert found[1] - found[0] <= 4


def waits_of_chain(module, settings, n_chains=1) -> int:
    cells = module.read(batch())
    status = torch.full_like(cells["x0"], OBSERVED)
    status[:, :6] = NOISED
    generator = [make_generator(torch.device("cpu"), k) for k in range(n_chains)]
    with torch.inference_mode(), Waits() as waits:
        draw_sites(module, cells, status, settings.resolve(module), generator)
    return waits.found.total()


@pytest.mark.parametrize("head", [*HEADS])
def test_every_tensor_of_a_step_names_its_device(head, backbone):
    """Those that do not would be made on a device that holds no values, and fail to meet the others."""
    module = make(head=head, **backbone, n_factors=3).train()
    optimizer, tensors = torch.optim.AdamW(module.parameters(), fused=True), batch()
    step(module, optimizer, tensors)
    with torch.device("meta"):
        step(module, optimizer, tensors)
        for settings in ({}, {"attrition": 0.5, "known": "noised", "guidance": 2.0}):
            waits_of_chain(module.eval(), SamplingSettings(n_steps=2, **settings))
    assert all(parameter.isfinite().all() for parameter in module.parameters())


def test_the_audit_finds_what_it_looks_for():
    x = torch.ones(4)
    with Waits() as waits:
        float(x.sum())
        x[x > 0]
        x.nonzero()
        float(x.double().sum())
    assert waits.found == {"_local_scalar_dense": 1, "index": 1, "nonzero": 1}
    with torch.device("meta"), pytest.raises(RuntimeError, match="meta"):
        x + torch.ones(4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("head", [*HEADS])
def test_mixed_precision_holds_deep_cells(dtype, head):
    """Half precision ends at 65,504: depths, and what heads make of them, are in single precision."""
    module = make(head=head, n_factors=3).train()
    tensors = batch()
    tensors["X"][:8] = tensors["X"][:8] * 100_000
    losses = []
    for enabled in (False, True):
        torch.manual_seed(1)
        with torch.autocast("cpu", dtype=dtype, enabled=enabled):
            losses.append(module(tensors)[2].loss)
    assert losses[1].dtype == torch.float32
    torch.testing.assert_close(losses[1], losses[0], rtol=0.02, atol=0.02)
    losses[1].backward()
    assert all(parameter.grad is None or parameter.grad.isfinite().all() for parameter in module.parameters())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("settings", [{}, {"guidance": 2.0}, {"known": "noised", "n_steps": 3}], ids=str)
def test_sampling_may_be_in_half_precision(dtype, settings):
    """As ``torch.autocast`` around a call has it: expectations are those of single precision, but for its rounding."""
    module = make(n_factors=3).eval()
    torch.nn.init.normal_(module.denoiser.backbone.decoder.mean.weight, std=0.3)
    cells = module.read(batch())
    status = torch.full_like(cells["x0"], OBSERVED)
    status[:, :6] = NOISED
    found = []
    for enabled in (False, True):
        resolved = SamplingSettings(**{"n_steps": 1, "final": "mean"} | settings).resolve(module)
        with torch.inference_mode(), torch.autocast("cpu", dtype=dtype, enabled=enabled):
            found.append(draw_sites(module, cells, status, resolved, make_generator(torch.device("cpu"), 0)))
    assert found[1].dtype == torch.float32 and (found[0] != found[1]).any()
    is_site = status == NOISED
    if "n_steps" in settings:  # whole counts of earlier steps may differ: the means over cells do little
        found = [values.mean(0, keepdim=True) for values in found]
        is_site = is_site[:1]
    torch.testing.assert_close(found[1][is_site], found[0][is_site], rtol=0.1, atol=0.3)


def test_the_backbone_can_be_compiled():
    """Traced as a whole, with the same outputs; here without making code of it, which needs a compiler."""
    module = make(n_factors=3).eval()
    tensors = batch()
    losses = []
    for _ in range(2):
        generator = torch.Generator().manual_seed(0)
        losses.append(module(tensors, inference_kwargs={"generator": generator})[2].loss)
        module.denoiser.backbone.compile(backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(losses[1], losses[0])
