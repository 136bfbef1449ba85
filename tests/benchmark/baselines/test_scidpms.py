"""scIDPMs learns from targets only, and takes depth from the other observed entries."""

import numpy as np
import pandas as pd
import pytest
import torch

from sccountsdiff.benchmark.baselines.base import Cells
from sccountsdiff.benchmark.baselines.gaussian_diffusion import reverse_step
from sccountsdiff.benchmark.baselines.scidpms import ScIDPMs
from sccountsdiff.benchmark.baselines.torch_training import Batch


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def network(low_rank):
    """Untrained, with 50 genes in groups of 12: the last group is padded."""
    method = ScIDPMs(n_hidden=8, n_heads=2, group_size=12, max_epochs=0, patience=None).fit(low_rank.train)
    network = method.network
    torch.nn.init.normal_(network.decoder, generator=generator(1))
    return network


def as_cells(counts):
    return Cells(counts, np.ones(counts.shape, dtype=bool), pd.DataFrame(index=range(len(counts))))


def batch_of(counts, observed):
    n = len(counts)
    nothing = torch.zeros(n, 0)
    return Batch(counts, observed, nothing.long(), nothing, torch.zeros(n, dtype=torch.bool))


def test_only_targets_are_in_the_loss(network, low_rank, monkeypatch):
    counts = torch.as_tensor(low_rank.train.X[:40])
    observed = torch.rand(counts.shape, generator=generator()) < 0.7
    given = {}

    def perfect_at_targets_only(x, level, values, shown, targets):
        a = network.shares[level][:, None]
        noise = (x - a.sqrt() * values) / (1 - a).sqrt()
        given.update(values=values, shown=shown, targets=targets)
        return torch.where(targets, a.sqrt() * noise - (1 - a).sqrt() * values, 1e3)

    monkeypatch.setattr(network, "forward", perfect_at_targets_only)
    torch.manual_seed(0)
    assert network.loss(batch_of(counts, observed)).item() == pytest.approx(0, abs=1e-4)
    targets, shown = given["targets"], given["shown"]
    assert torch.equal(targets | shown, observed) and not (targets & shown).any()
    shares = (targets.sum(1) / observed.sum(1)).tolist()
    assert min(shares) < 0.2 and max(shares) > 0.8, "every share of targets occurs"
    # The depth is that of the entries shown, whatever the targets are.
    depth = network.values.depth(torch.where(shown, counts, 1e6), shown)
    torch.testing.assert_close(
        given["values"], (torch.log1p(counts / depth) - network.values.shift) / network.values.scale
    )

    monkeypatch.setattr(network, "forward", lambda *args: perfect_at_targets_only(*args) + 1.0)
    assert network.loss(batch_of(counts, observed)).item() == pytest.approx(1, abs=1e-3)


def test_without_targets_the_loss_is_zero(network, low_rank):
    counts = torch.as_tensor(low_rank.train.X[:4])
    assert network.loss(batch_of(counts, torch.zeros_like(counts, dtype=torch.bool))).item() == 0


def test_the_network_sees_noise_at_targets_and_values_at_observed_entries_only(network):
    x, values = (torch.randn(6, 50, generator=generator(k)) for k in range(2))
    state = torch.randint(3, (6, 50), generator=generator(2))
    observed, targets, level = state == 0, state == 1, torch.full((6,), 20)
    answer = network(x, level, values, observed, targets)
    assert answer.shape == x.shape
    hidden = network(torch.where(targets, x, 9.0), level, torch.where(observed, values, 9.0), observed, targets)
    torch.testing.assert_close(hidden, answer)
    for change in (
        network(x + targets, level, values, observed, targets),
        network(x, level, values + observed, observed, targets),
        network(x, level + 20, values, observed, targets),
        network(x, level, values, observed, ~observed),
    ):
        assert not torch.allclose(change, answer)
    # Groups talk to each other: a change in the last gene reaches the first.
    observed[:, -1], changed = True, values.clone()
    changed[:, -1] += 3
    both = [network(x, level, v, observed, targets)[:, 0] for v in (values, changed)]
    assert not torch.allclose(*both)


def test_the_scale_is_undone(network, low_rank):
    scale, counts = network.values, torch.as_tensor(low_rank.train.X)
    everything = torch.ones_like(counts, dtype=torch.bool)
    values, depth = scale(counts, everything), scale.depth(counts, everything)
    torch.testing.assert_close(values.mean(0), torch.zeros(50), atol=1e-4, rtol=0)
    torch.testing.assert_close(values.std(0, correction=0), torch.ones(50), atol=1e-3, rtol=0)
    torch.testing.assert_close(scale.decode(values, counts, everything), counts, atol=1e-3, rtol=1e-4)
    extreme = scale.decode(torch.full_like(values, 1e4), counts, everything)
    torch.testing.assert_close(extreme, (counts / depth).amax(0) * depth)
    assert not scale.decode(torch.full_like(values, -1e4), counts, everything).any()


SMALL = {"n_hidden": 32, "group_size": 5, "max_epochs": 30, "batch_size": 32, "lr": 5e-3, "n_steps": 6}


def test_beats_the_mean_of_the_gene_also_when_entries_are_missing(low_rank):
    observed = np.random.default_rng(0).random(low_rank.train.shape) < 0.8
    method = ScIDPMs(**SMALL).fit(low_rank.train, observed=observed)
    observed = np.random.default_rng(1).random(low_rank.test.shape) < 0.9
    draws = method.impute(low_rank.test, low_rank.sites, n_samples=5, observed=observed)
    rmse = np.sqrt(np.mean((draws.mean(axis=0) - low_rank.test.X)[low_rank.sites] ** 2))
    assert rmse < 0.8 * low_rank.rmse_of_gene_mean

    # A median of imputations varies less than an imputation; about 0.55 of its standard deviation for five.
    spread = lambda draws: np.median(draws.std(axis=0)[low_rank.sites])
    method.n_imputations = 5
    medians = method.impute(low_rank.test, low_rank.sites, n_samples=5, observed=observed)
    assert 0.3 < spread(medians) / spread(draws) < 0.8


def test_any_cell_can_be_imputed(low_rank):
    train = low_rank.train[:30].copy()
    train.X[:, 7] = 0
    method = ScIDPMs(n_hidden=8, n_heads=2, max_epochs=1, n_levels=5, n_steps=3).fit(train)
    test = low_rank.test[:1].copy()
    test.X[:] = 0
    for sites in (np.ones(test.shape, dtype=bool), np.arange(50)[None] < 10):
        answer = method.impute(test, sites, n_samples=2)
        assert np.isfinite(answer).all() and (answer >= 0).all()
        assert not answer[:, 0, 7].any(), "a gene that was silent in training stays silent"


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"n_steps": 51}, "n_levels=50, found 51"),
        ({"n_steps": 0}, "n_steps"),
        ({"eta": 1.1}, "eta must be"),
        ({"n_imputations": 0}, "n_imputations"),
        ({"noise_schedule": "cosine"}, "noise_schedule"),
        ({"n_hidden": 10}, "n_heads"),
        ({"group_size": 0}, "group_size"),
    ],
)
def test_bad_settings_are_refused_before_training(setting, message):
    with pytest.raises(ValueError, match=message):
        ScIDPMs(**setting)


def test_noise_is_the_target_of_the_authors_code(low_rank, monkeypatch):
    """Four fifths of what is observed are targets, and the loss is the mean squared error of their noise."""
    network = ScIDPMs(n_hidden=8, n_heads=2, predicts="noise", target_share=0.8).untrained(as_cells(low_rank.train.X))
    counts = torch.as_tensor(low_rank.train.X)
    seen = {}

    def perfect(x, level, values, shown, targets):
        a = network.shares[level][:, None]
        seen["targets"] = targets
        return torch.where(targets, (x - a.sqrt() * values) / (1 - a).sqrt(), 1e3) + 0.5

    monkeypatch.setattr(network, "forward", perfect)
    torch.manual_seed(0)
    loss = network.loss(batch_of(counts, torch.ones_like(counts, dtype=torch.bool)))
    assert loss.item() == pytest.approx(0.25, abs=1e-3)
    share, n = seen["targets"].float().mean().item(), counts.numel()
    assert share == pytest.approx(0.8, abs=5 * (0.16 / n) ** 0.5)


def test_a_step_with_predicted_noise_is_that_of_the_authors_code(low_rank, monkeypatch):
    """(x - beta / sqrt(1 - a) noise) / sqrt(1 - beta), and noise of variance (1 - a') / (1 - a) beta."""
    method = ScIDPMs(n_hidden=8, n_heads=2, predicts="noise", n_levels=300, n_steps=300)
    network = method.untrained(as_cells(low_rank.train.X))
    predicted, fresh = torch.randn(2, 5, 50, generator=generator(1)), torch.randn(5, 50, generator=generator(2))
    x, nothing = predicted[1], torch.ones(5, 50, dtype=torch.bool)
    monkeypatch.setattr(network, "forward", lambda *arguments: predicted[0])
    betas = np.linspace(0.0001**0.5, 0.5**0.5, 300) ** 2
    shares = np.cumprod(1 - betas)
    for t in (299, 150, 1):
        beta, a, a_before = betas[t], shares[t], shares[t - 1]
        expected = (x - beta / (1 - a) ** 0.5 * predicted[0]) / (1 - beta) ** 0.5
        expected = expected + ((1 - a_before) / (1 - a) * beta) ** 0.5 * fresh
        velocity = network.velocity(x, t + 1, x, nothing, nothing)
        found = reverse_step(x, velocity, network.shares[t + 1], network.shares[t], 1.0, fresh)
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3, check_dtype=False)


def test_a_gene_that_is_a_token_shares_its_layers(low_rank):
    one, two = (
        sum(p.numel() for p in ScIDPMs(n_hidden=8, n_heads=2, group_size=1).untrained(as_cells(x)).parameters())
        for x in (low_rank.train.X[:, :20], low_rank.train.X[:, :40])
    )
    assert two - one == 20 * 8
