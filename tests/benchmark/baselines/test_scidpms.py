"""scIDPMs is exact Gaussian diffusion, learns from targets only, and knows depth from what it sees only."""

import numpy as np
import pytest
import torch

from sccountsdiff.benchmark.baselines.gaussian_diffusion import add_noise, draw, reverse_step, signal_shares
from sccountsdiff.benchmark.baselines.scidpms import ScIDPMs
from sccountsdiff.benchmark.baselines.torch_training import Batch

N = 20_000


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


# Gaussian diffusion -------------------------------------------------------------------------------------------------


def test_noise_schedules():
    linear, quadratic = signal_shares(50, "linear"), signal_shares(50, "quadratic")
    for shares, middle in ((linear, 0.5 * (1e-4 + 0.5)), (quadratic, 0.25 * (1e-2 + 0.5**0.5) ** 2)):
        replaced = 1 - shares[1:] / shares[:-1]
        assert shares[0] == 1 and shares[-1] < 1e-3, "from all signal to next to none"
        assert replaced[0].item() == pytest.approx(1e-4) and replaced[-1].item() == pytest.approx(0.5)
        assert 0.5 * (replaced[24] + replaced[25]).item() == pytest.approx(middle, rel=1e-2)
    with pytest.raises(ValueError, match="'cubic'"):
        signal_shares(5, "cubic")


@pytest.mark.parametrize("level", [1, 20, 50])
def test_the_forward_marginal_is_that_of_its_single_steps(level):
    shares = signal_shares(50)
    x0 = torch.full((N,), 3.0, dtype=torch.float64)
    normal = lambda seed: torch.randn(N, generator=generator(seed), dtype=torch.float64)
    at_once, step_by_step = add_noise(x0, normal(0), shares[level]), x0
    for k in range(1, level + 1):
        step_by_step = add_noise(step_by_step, normal(k), shares[k] / shares[k - 1])
    mean, variance = 3 * shares[level].item() ** 0.5, 1 - shares[level].item()
    for x in (at_once, step_by_step):
        assert x.mean().item() == pytest.approx(mean, abs=5 * (variance / N) ** 0.5)
        assert x.var().item() == pytest.approx(variance, rel=5 * (2 / N) ** 0.5)


def test_a_single_step_is_the_ancestral_step_of_ddpm():
    shares = signal_shares(50)
    x, noise, fresh = (torch.randn(100, generator=generator(k), dtype=torch.float64) for k in range(3))
    for level in (1, 2, 25, 50):
        a_t, a_s = shares[level], shares[level - 1]
        beta = 1 - a_t / a_s
        velocity = (noise - (1 - a_t).sqrt() * x) / a_t.sqrt()
        mean = (x - beta / (1 - a_t).sqrt() * noise) / (1 - beta).sqrt()
        expected = mean + (beta * (1 - a_s) / (1 - a_t)).sqrt() * fresh
        torch.testing.assert_close(reverse_step(x, velocity, a_t, a_s, 1.0, fresh), expected)
        signal = (x - (1 - a_t).sqrt() * noise) / a_t.sqrt()
        torch.testing.assert_close(
            reverse_step(x, velocity, a_t, a_s, 0.0, fresh), add_noise(signal, noise, a_s)
        )  # deterministic: the same signal and noise in other shares


@pytest.mark.parametrize("eta", [0.0, 1.0])
@pytest.mark.parametrize("n_steps", [10, 50, 400])
def test_with_the_exact_prediction_sampling_recovers_mean_and_variance(eta, n_steps):
    mu, variance, n = 2.0, 0.5, 4_000
    shares = signal_shares(400, "linear", 1e-4, 0.04)

    def slopes(a):
        """Of E[signal | x] and E[noise | x], which are linear in x, for a signal N(mu, variance)."""
        signal = a.sqrt() * variance / (a * variance + 1 - a)
        return signal, (1 - a.sqrt() * signal) / (1 - a).sqrt()

    def velocity(x, level):
        a = shares[level]
        centred = x - a.sqrt() * mu
        signal, noise = slopes(a)
        return a.sqrt() * noise * centred - (1 - a).sqrt() * (mu + signal * centred)

    x = draw(velocity, shares, (n,), n_steps, eta, generator())
    expected, levels = 1.0, torch.linspace(400, 0, n_steps + 1).round().long()
    for a_t, a_s in zip(shares[levels[:-1]], shares[levels[1:]], strict=True):
        fresh = eta**2 * (1 - a_s) / (1 - a_t) * (1 - a_t / a_s)
        signal, noise = slopes(a_t)
        expected = (a_s.sqrt() * signal + (1 - a_s - fresh).sqrt() * noise) ** 2 * expected + fresh
    expected = float(expected)
    assert x.mean().item() == pytest.approx(mu, abs=5 * (variance / n) ** 0.5 + mu * shares[-1].sqrt().item())
    assert x.var().item() == pytest.approx(expected, rel=5 * (2 / n) ** 0.5)
    if n_steps == 400:  # few steps lose variance, many do not
        assert expected == pytest.approx(variance, rel=0.03)


# Network and loss ---------------------------------------------------------------------------------------------------


@pytest.fixture
def network(low_rank):
    """Untrained, with 50 genes in groups of 12: the last group is padded."""
    method = ScIDPMs(n_hidden=8, n_heads=2, group_size=12, max_epochs=0, patience=None).fit(low_rank.train)
    network = method.network
    torch.nn.init.normal_(network.decoder, generator=generator(1))
    return network


def batch_of(counts, observed):
    n = len(counts)
    nothing = torch.zeros(n, 0)
    return Batch(counts, observed, nothing.long(), nothing, torch.zeros(n, dtype=torch.bool))


def test_only_targets_are_in_the_loss(network, low_rank, monkeypatch):
    counts = torch.as_tensor(low_rank.train.X[:40])
    observed = torch.rand(counts.shape, generator=generator()) < 0.7
    seen = {}

    def perfect_at_targets_only(x, level, values, visible, targets):
        a = network.shares[level][:, None]
        noise = (x - a.sqrt() * values) / (1 - a).sqrt()
        seen.update(values=values, visible=visible, targets=targets)
        return torch.where(targets, a.sqrt() * noise - (1 - a).sqrt() * values, 1e3)

    monkeypatch.setattr(network, "forward", perfect_at_targets_only)
    torch.manual_seed(0)
    assert network.loss(batch_of(counts, observed)).item() == pytest.approx(0, abs=1e-4)
    targets, visible = seen["targets"], seen["visible"]
    assert torch.equal(targets | visible, observed) and not (targets & visible).any()
    shares = (targets.sum(1) / observed.sum(1)).tolist()
    assert min(shares) < 0.2 and max(shares) > 0.8, "every share of targets occurs"
    # The depth is that of the visible entries, whatever the targets are.
    depth = network.depth(torch.where(visible, counts, 1e6), visible)
    torch.testing.assert_close(seen["values"], network.scale(counts, depth))

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
    counts = torch.as_tensor(low_rank.train.X)
    depth = network.depth(counts, torch.ones_like(counts, dtype=torch.bool))
    values = network.scale(counts, depth)
    torch.testing.assert_close(values.mean(0), torch.zeros(50), atol=1e-4, rtol=0)
    torch.testing.assert_close(values.std(0, correction=0), torch.ones(50), atol=1e-3, rtol=0)
    torch.testing.assert_close(network.unscale(values, depth), counts, atol=1e-3, rtol=1e-4)
    extreme = network.unscale(torch.full_like(values, 1e4), depth)
    torch.testing.assert_close(extreme, (counts / depth).amax(0) * depth)
    assert not network.unscale(torch.full_like(values, -1e4), depth).any()


# The method ---------------------------------------------------------------------------------------------------------

SMALL = {"n_hidden": 32, "group_size": 5, "max_epochs": 30, "batch_size": 32, "lr": 5e-3, "n_steps": 6}


def test_beats_the_mean_of_the_gene_also_when_entries_are_not_believed(low_rank):
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
