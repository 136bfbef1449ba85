"""What a training will take before it starts: parameters, memory, operations, and hours on some devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from sccountsdiff.benchmark.images.config import ImageConfig
from sccountsdiff.benchmark.images.data import CountImages
from sccountsdiff.benchmark.images.generation import PRECISIONS, default_steps
from sccountsdiff.benchmark.images.model import ImageDiffusion
from sccountsdiff.benchmark.images.studies import Trial
from sccountsdiff.benchmark.resources import UTILISATION, hours_by_device
from sccountsdiff.checks import one_of

ASSUMPTIONS = (
    f"Hours assume {UTILISATION:.0%} of the peak that the makers state (CPU core: 100 GFLOP/s), a backward pass that costs "
    "two forward passes, and no waiting for data. Memory is that of one device in training: weights, gradients, two "
    "moments of Adam and the moving average at 32 bits, and what the backward pass keeps of its share of a batch; halved "
    "in mixed precision. None of it is measured."
)


def plan(
    config: ImageConfig,
    data: CountImages,
    *,
    trials: Sequence[tuple[Trial, int]] = (),
    precision: str = "32-true",
    n_devices: int = 1,
) -> dict[str, Any]:
    """What a training and the drawing after it will take; nothing is trained.

    Parameters
    ----------
    config
        Settings.
    data
        Images, of which the shape and the names count.
    trials
        Ways to draw after the training, each with its number of images.
    precision
        As in :func:`~sccountsdiff.benchmark.images.generate`.
    n_devices
        Devices that share a batch.

    Returns
    -------
    ``parameters``; ``gflops``, of one forward pass of one image; ``memory_gb``, of one device in training;
    ``train_pflops``, ``evaluate_pflops`` and ``draw_pflops``; and ``hours`` by device, on so many of them.

    Examples
    --------
    >>> from sccountsdiff.benchmark.images import load_config, load_images
    >>> what = plan(load_config("digits"), load_images("digits").train)
    >>> what["parameters"] > 100_000 and what["hours"]["A100"] < what["hours"]["V100"]
    True
    """
    one_of("precision", precision, tuple(PRECISIONS))
    with torch.device("meta"):
        moments = torch.ones(data.shape), torch.ones(data.shape)
        model = ImageDiffusion(config, *moments, data.max_count, data.names, data.multi_label)
        gflops, kept = _forward_costs(model, len(data.names))
    parameters = sum(p.numel() for p in model.parameters())
    is_mixed = PRECISIONS[precision] is not None
    batch = -(-config.batch_size // n_devices)
    memory = 5 * 4 * parameters + batch * kept / (2 if is_mixed else 1)
    n_steps = default_steps(model)
    n_evaluations = 1 + config.n_steps // min(config.evaluate_every, config.n_steps)
    # Guidance other than 0 and 1 needs the prediction with and without the condition.
    passes = sum(n * (1 if trial.guidance in (None, 0.0, 1.0) else 2) for trial, n in trials)
    pflops = {
        "train_pflops": 3 * config.n_steps * config.batch_size * gflops / 1e6,
        "evaluate_pflops": n_evaluations * config.n_evaluated * n_steps * gflops / 1e6,
        "draw_pflops": passes * n_steps * gflops / 1e6,
    }
    hours = hours_by_device(1e15 * sum(pflops.values()) / n_devices, is_mixed=is_mixed)
    return {"parameters": parameters, "gflops": gflops, "memory_gb": memory / 1e9, **pflops, "hours": hours}


def _forward_costs(model: ImageDiffusion, n_names: int) -> tuple[float, int]:
    """Operations of a forward pass of one image, in 10^9, and the bytes that its backward pass needs."""
    own = {weights.untyped_storage()._cdata for weights in model.parameters()}
    kept: dict[int, Tensor] = {}  # tensors, not sizes: what is freed may leave its address to another

    def keep(tensor: Tensor) -> Tensor:
        kept.setdefault(tensor.untyped_storage()._cdata, tensor)
        return tensor

    conditions = torch.zeros((1, n_names) if model.multi_label else (1,), dtype=torch.long)
    x, t, null = torch.zeros(1, *model.shape), torch.zeros(1), torch.zeros(1, dtype=torch.bool)
    hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
    with FlopCounterMode(display=False) as counter, hooks:
        model.network(x, t, conditions, null)
    size = sum(tensor.untyped_storage().nbytes() for address, tensor in kept.items() if address not in own)
    return counter.get_total_flops() / 1e9, size


def describe(plans: dict[str, dict[str, Any]], n_devices: int = 1) -> str:
    """Plans as text: a table, and what it assumes.

    Parameters
    ----------
    plans
        Results of :func:`plan` by name.
    n_devices
        Devices that they are for.

    Returns
    -------
    Lines to print.

    Examples
    --------
    >>> from sccountsdiff.benchmark.images import load_config, load_images
    >>> text = describe({"digits": plan(load_config("digits"), load_images("digits").train)})
    >>> "parameters" in text and "assume" in text
    True
    """
    rows = {}
    for name, what in plans.items():
        row = {"parameters": f"{what['parameters'] / 1e6:.2f} M", "GFLOP per image": f"{what['gflops']:.3g}"}
        row |= {"memory in training": f"{what['memory_gb']:.3g} GB"}
        row |= {f"PFLOP to {kind}": f"{what[f'{kind}_pflops']:.3g}" for kind in ("train", "evaluate", "draw")}
        row |= {f"hours, {n_devices} x {device}": f"{hours:.3g}" for device, hours in what["hours"].items()}
        rows[name] = row
    return f"{pd.DataFrame(rows).to_string()}\n\n{ASSUMPTIONS}"
