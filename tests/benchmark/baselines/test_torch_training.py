"""The training loop that all torch baselines share."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
import torch
from anndata import AnnData
from torch import nn

from sccountsdiff.benchmark.baselines.cells import Cells
from sccountsdiff.benchmark.baselines.covariate_codes import CovariateCoder
from sccountsdiff.benchmark.baselines.torch_training import Network, TorchBaseline


class Scalars(Network):
    """Some numbers as parameters, and the batches of the training."""

    def __init__(self, loss, first_loss=None):
        super().__init__()
        self.a, self.b = nn.Parameter(torch.zeros(())), nn.Parameter(torch.zeros(()))
        self._loss, self._first_loss, self.batches, self.path = loss, first_loss, [], []

    def objectives(self):
        if self._first_loss is None:
            return super().objectives()
        return [([self.a], self.first_loss), ([self.b], self.loss)]

    def loss(self, batch):
        self.note(batch, "loss")
        return self._loss(self, batch)

    def first_loss(self, batch):
        self.note(batch, "first_loss")
        return self._first_loss(self, batch)

    def note(self, batch, objective):
        if self.training:
            self.batches.append(batch)
            self.path.append((objective, self.a.item(), self.b.item()))


@dataclass(eq=False)
class Probe(TorchBaseline):
    """A method whose network has a loss that the test writes."""

    loss: Any = None
    first_loss: Any = None
    max_epochs: int = 4
    batch_size: int = 20
    n_warmup_steps: int = 0
    trainer_kwargs: dict[str, Any] = field(default_factory=lambda: {"accelerator": "cpu"})

    name: ClassVar[str] = "probe"
    draws: ClassVar[bool] = True
    uses_covariates: ClassVar[bool] = True
    uses_mask: ClassVar[bool] = True

    def _network(self, cells):
        return Scalars(self.loss, self.first_loss)

    def _fill(self, batch, sites, generator):
        assert generator.device == batch.counts.device == sites.device == self.network.a.device
        assert not self.network.training and not (sites & batch.observed).any()
        total = batch.counts.sum(dim=1, keepdim=True).expand_as(batch.counts)
        return total + torch.rand(sites.shape, generator=generator) if self.loss is noise else total


def noise(network, batch):
    return torch.rand(()) + 0 * network.a


def steady(network, batch):
    """Adam makes steps of exactly its learning rate, downwards."""
    return network.a + network.b


@pytest.fixture(scope="module")
def cells():
    rng = np.random.default_rng(0)
    obs = pd.DataFrame({"type": rng.choice(["x", "y"], 50), "age": rng.normal(40, 9, 50)}, index=map(str, range(50)))
    return AnnData(rng.poisson(3, (50, 4)).astype(np.float32), obs=obs)


def test_validation_has_the_same_random_numbers_in_every_epoch_and_training_has_not(cells):
    method = Probe(loss=noise).fit(cells)
    assert method.history["validation_loss"].nunique() == 1
    assert method.history["train_loss"].nunique() == 4, "validation must not set the stream of the training back"


def test_best_weights_stay_and_training_stops(cells):
    def loss(network, batch):
        return -network.a if network.training else (network.a - 0.5) ** 2

    method = Probe(loss=loss, lr=0.05, max_epochs=50, patience=3).fit(cells)  # 3 batches: a rises by 0.15 an epoch
    validation = method.history["validation_loss"]
    assert validation.idxmin() == 2 and len(validation) == 3 + 3
    assert method.network.a.item() == pytest.approx(0.45, abs=1e-5)
    np.testing.assert_allclose((method.network.a.item() - 0.5) ** 2, validation.min(), atol=1e-6)

    last = Probe(loss=loss, lr=0.05, max_epochs=7, patience=None).fit(cells)
    assert list(last.history) == ["train_loss"] and len(last.history) == 7
    assert last.network.a.item() == pytest.approx(7 * 3 * 0.05, abs=1e-4), "the last weights, of all cells"


def test_held_out_cells_are_never_trained_on(cells):
    used = Probe(loss=steady, validation_share=0.4).fit(cells).network.batches
    shown = torch.cat([batch.counts for batch in used[:2]])
    assert len(shown) == 30 and sum(map(len, used)) == 4 * 30
    later = torch.cat([batch.counts for batch in used[-2:]])
    assert sorted(shown.tolist()) == sorted(later.tolist()), "the same cells in every epoch"
    assert {tuple(cell) for cell in shown.tolist()} < {tuple(cell) for cell in cells.X.tolist()}
    everything = Probe(loss=steady, patience=None).fit(cells).network.batches
    assert sum(map(len, everything)) == 4 * 50
    few = Probe(loss=steady, ema_decay=0.9).fit(cells[:5])
    assert sum(map(len, few.network.batches)) == 4 * 5, "too few cells to hold one out"


def test_average_of_the_weights(cells):
    """Weights go down by the learning rate in every step, so their average is known."""
    method = Probe(loss=steady, lr=0.1, patience=None, ema_decay=0.5).fit(cells)
    weights = -0.1 * np.arange(1, 13)  # after each of 12 steps
    average = weights[0]
    for n, weight in enumerate(weights[1:], start=1):
        decay = min(0.5, (1 + n) / (10 + n))
        average = decay * average + (1 - decay) * weight
    assert method.network.a.item() == pytest.approx(average, abs=1e-5)


def test_warm_up_clipping_and_decay(cells):
    gradients = []

    def steep(network, batch):
        if network.a.grad is not None:
            gradients.append([network.a.grad.item(), network.b.grad.item()])
        return 30 * network.a + 40 * network.b

    method = Probe(loss=steep, lr=0.1, patience=None, n_warmup_steps=5).fit(cells)
    steps = -np.diff([a for _, a, _ in method.network.path])
    np.testing.assert_allclose(steps, 0.1 * np.minimum(np.arange(1, 12) / 5, 1), rtol=1e-4)
    np.testing.assert_allclose(gradients[0], [0.6, 0.8], rtol=1e-4)  # brought to norm 1

    class Decaying(Probe):
        def _network(self, cells):
            network = super()._network(cells)
            nn.init.ones_(network.a)
            return network

    still = Decaying(loss=lambda network, batch: 0 * network.a, lr=0.1, weight_decay=0.5, patience=None)
    assert still.fit(cells).network.a.item() == pytest.approx((1 - 0.1 * 0.5) ** 12, rel=1e-4)


def test_objectives_take_turns_and_each_changes_only_its_own_parameters(cells):
    game = {
        "first_loss": lambda network, batch: (network.a - 1) ** 2 + (network.b - 5) ** 2,
        "loss": lambda network, batch: (network.b + 1) ** 2 + (network.a - 7) ** 2,
        "lr": 0.1,
    }
    method = Probe(**game, max_epochs=40, patience=None).fit(cells)
    assert method.network.a.item() == pytest.approx(1, abs=0.05)
    assert method.network.b.item() == pytest.approx(-1, abs=0.05)
    objectives, a, b = map(np.array, zip(*method.network.path, strict=True))
    assert objectives.tolist() == ["first_loss", "loss"] * 120
    assert (a[1::2] != a[::2])[:20].all() and (b[1::2] == b[::2]).all(), "only the first steps before the second"

    short = Probe(**game, n_warmup_steps=6, patience=None).fit(cells).network
    a, b = np.array([values for objective, *values in short.path if objective == "first_loss"]).T
    for steps in (np.diff(a)[:3], -np.diff(b)[:3]):  # warm-up counts batches, not the steps of all optimisers
        np.testing.assert_allclose(steps, 0.1 * np.array([1, 2, 3]) / 6, rtol=0.1)
    held_out = Probe(**game).fit(cells)
    assert held_out.history["validation_loss"].iloc[0] > 30, "the last loss, which is least at a = 7"
    assert np.isfinite(held_out.history.to_numpy()).all()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_is_an_error(cells, bad):
    with pytest.raises(RuntimeError, match="training loss is (nan|inf)"):
        Probe(loss=lambda network, batch: network.a + bad).fit(cells)


def test_seeds_decide_training_and_leave_the_global_stream_alone(cells):
    def loss(network, batch):
        return (network.a - batch.counts.mean() - torch.rand(())) ** 2

    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    first, again, other = (Probe(loss=loss).fit(cells, seed=seed).history for seed in (3, 3, 4))
    assert torch.equal(torch.rand(1), expected)
    pd.testing.assert_frame_equal(first, again, check_exact=True)
    assert (first != other).all(axis=None)


def test_batches_are_the_cells(cells):
    observed = np.random.default_rng(0).random(cells.shape) < 0.7
    method = Probe(loss=steady, batch_size=7, max_epochs=1, patience=None)
    method.fit(cells, observed=observed, covariates=["type", "age"])
    batches = method.network.batches
    assert [len(batch) for batch in batches] == [7] * 7, "a last batch of one cell is left out"
    codes, scores, unseen = method.coder(cells.obs)
    rows = np.column_stack([np.where(observed, cells.X, 0), observed, codes, scores, unseen])
    shown = [
        np.column_stack([b.counts, b.observed, b.categories, b.continuous, b.unseen.numpy()[:, None]]) for b in batches
    ]
    assert {tuple(row) for row in np.concatenate(shown)} < {tuple(row) for row in rows.astype(np.float32)}
    assert len(np.unique(np.concatenate(shown)[:, -2])) == 49


def test_imputation_does_not_depend_on_order_or_batches(cells):
    sites = np.random.default_rng(1).random(cells.shape) < 0.5
    method = Probe(loss=steady, max_epochs=1).fit(cells)
    answer = method.impute(cells, sites)
    expected = np.where(sites, np.where(sites, 0, cells.X).sum(axis=1, keepdims=True), cells.X)
    np.testing.assert_array_equal(answer, expected)
    order = np.random.default_rng(2).permutation(50)
    np.testing.assert_array_equal(method.impute(cells[order], sites[order]), answer[order])
    method.batch_size = 1
    np.testing.assert_array_equal(method.impute(cells, sites), answer)


def test_draws_differ_between_blocks_and_samples_and_are_those_of_the_seed(cells):
    sites = np.ones(cells.shape, dtype=bool)
    method = Probe(loss=noise, max_epochs=1, batch_size=25).fit(cells)
    draws = method.impute(cells, sites, n_samples=3, seed=5)
    assert len(np.unique(draws)) > 0.99 * draws.size, "every number of every block and sample is its own"
    np.testing.assert_array_equal(draws, method.impute(cells, sites, n_samples=3, seed=5))
    np.testing.assert_array_equal(draws[0], method.impute(cells, sites, seed=5))
    assert (draws[0] != method.impute(cells, sites, seed=6)).all()
    np.testing.assert_array_equal(draws[:, :25], method.impute(cells[:25], sites[:25], n_samples=3, seed=5))


def test_network_is_ready_after_training(cells):
    method = Probe(loss=steady, max_epochs=1).fit(cells)
    assert not method.network.training
    assert method.network.a.device.type == "cpu", "the accelerator that was asked for"


def test_only_one_device_is_used_by_default(cells, monkeypatch):
    """Several would start further processes."""
    import lightning.pytorch as pl

    asked, trainer = {}, pl.Trainer
    monkeypatch.setattr(pl, "Trainer", lambda **kwargs: asked.update(kwargs) or trainer(**kwargs))
    Probe(loss=steady, max_epochs=1).fit(cells)
    assert asked["devices"] == 1


def test_batches_are_taken_from_the_counts_themselves():
    """At the size of an atlas a copy is more than 10 GB."""
    counts = np.ones((6, 3), dtype=np.float32)
    cells = Cells(counts, np.ones((6, 3), dtype=bool), pd.DataFrame(index=range(6)))
    method = Probe()
    method.coder = CovariateCoder.fit(cells.covariates)
    loader = method._loader(cells, False)
    assert np.shares_memory(loader.dataset.tensors[0].numpy(), counts)
    batch, *_ = next(iter(loader))
    batch.zero_()
    assert counts.all(), "a batch is nobody else's"
