"""One training draw: what is noised, what is shown as it is, at which times."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from sccountsdiff.diffusion import MISSING, NOISED, OBSERVED, Cosine, draw_noised
from sccountsdiff.diffusion.noising import LAST_TIME_SHARE, LEAST_DEPTH, THINNED_SHARE

N_GENES = 12


def counts(n_cells=500, seed=0):
    return torch.poisson(torch.full((n_cells, N_GENES), 4.0), generator=torch.Generator().manual_seed(seed))


def draw(x0, seed=0, schedule=None, **kwargs):
    return draw_noised(x0, schedule or Cosine(), generator=torch.Generator().manual_seed(seed), **kwargs)


@pytest.mark.parametrize("observed_training", [False, True])
def test_nothing_but_noised_entries_change(observed_training):
    x0 = counts()
    untouched = x0.clone()
    noised = draw(x0, observed_training=observed_training)
    observed = noised.status == OBSERVED
    assert torch.equal(noised.xt[observed], x0[observed])
    assert torch.equal(noised.xt + noised.y, x0)
    assert (noised.y >= 0).all() and (noised.y[observed] == 0).all()
    assert torch.equal(x0, untouched)


def test_half_of_the_cells_are_thinned_as_a_whole():
    """What is left of a cell is its depth, uniform from the least; half of the cells keep all."""
    n = 2000
    x0 = torch.full((n, N_GENES), 1000.0)
    noised = draw(x0, thin_cells=True)
    left = (noised.xt + noised.y).mean(1) / 1000
    thinned = noised.kept < 1
    assert (left[~thinned] == 1).all()
    assert ((left - noised.kept).abs() < 5 * (0.25 / 1000 / N_GENES) ** 0.5).all()
    assert abs(thinned.float().mean() - THINNED_SHARE) < 4 * (THINNED_SHARE * (1 - THINNED_SHARE) / n) ** 0.5
    assert stats.kstest(noised.kept[thinned], stats.uniform(LEAST_DEPTH, 1 - LEAST_DEPTH).cdf).pvalue > 1e-3


@pytest.mark.parametrize("observed_training", [False, True])
def test_missing_entries_are_neither_observed_nor_noised(observed_training):
    x0 = counts()
    missing = torch.rand(x0.shape, generator=torch.Generator().manual_seed(1)) < 0.2
    noised = draw(x0.masked_fill(missing, 0), missing=missing, observed_training=observed_training)
    assert torch.equal(noised.status == MISSING, missing)
    assert (noised.xt[missing] == 0).all() and (noised.y[missing] == 0).all()


def test_survivors_are_binomial():
    """Standardised by Bin(x0, p(t)), the survivors have mean 0 and variance 1."""
    noised = draw(torch.full((4000, N_GENES), 40.0))
    inside = (noised.t > 0.1) & (noised.t < 0.9)
    p = torch.cos(torch.pi / 2 * noised.t[inside]) ** 2
    z = (noised.xt[inside] - 40 * p[:, None]) / (40 * p * (1 - p)).sqrt()[:, None]
    n = z.numel()
    assert abs(z.mean()) < 4 / n**0.5
    assert abs(z.var() - 1) < 4 * (2 / n) ** 0.5 + 0.01  # kurtosis of a binomial is at most slightly above 3


def test_survivors_at_each_time_of_a_grid(schedule, assert_follows):
    """Every time point of Blackout's grid, and the marginals over uniform times of the others."""
    noised = draw(torch.full((4000, 5), 9.0), schedule=schedule)
    if schedule.n_grid is None:
        p = schedule.survival(noised.t)
        expected, variance = 9 * p.mean(), (9 * p * (1 - p)).mean()
        assert float(noised.xt.mean()) == pytest.approx(float(expected), abs=5 * float(variance / 20_000) ** 0.5)
        return
    for t in noised.t.unique():
        assert_follows(noised.xt[noised.t == t], stats.binom(9, schedule.survival(t).item()))


def test_times_are_spread_evenly():
    noised = draw(counts(1000))
    assert torch.equal((noised.t * 1000).floor().sort().values, torch.arange(1000.0))
    torch.testing.assert_close(noised.weight, torch.pi / 2 * torch.sin(torch.pi * noised.t), atol=1e-4, rtol=1e-4)
    assert noised.weight.mean() == pytest.approx(1, abs=0.01)


def test_time_is_never_rounded_unless_on_a_grid():
    assert len(draw(counts(1000)).t.unique()) == 1000
    on_grid = draw(counts(1000), schedule=Cosine(n_grid=5))
    assert set(on_grid.t.tolist()) == {np.float32(1e-4).item(), 0.25, 0.5, 0.75, 1.0}


def test_share_of_the_last_time():
    n = 4000
    noised = draw(counts(n), observed_training=True)
    last = (noised.t == 1).float().mean()
    assert abs(last - LAST_TIME_SHARE) < 4 * (LAST_TIME_SHARE * (1 - LAST_TIME_SHARE) / n) ** 0.5
    assert (noised.weight[noised.t == 1] == 1).all()
    assert (noised.xt[(noised.status == NOISED) & (noised.t == 1)[:, None]] == 0).all()


def test_in_the_training_of_the_paper_all_is_noised():
    noised = draw(counts())
    assert (noised.status == NOISED).all()
    assert (noised.t < 1).all()


def test_images():
    """One time for each image, whatever the shape behind it."""
    x0 = torch.full((50, 3, 4, 5), 200.0)
    noised = draw(x0)
    assert noised.xt.shape == noised.status.shape == noised.y.shape == x0.shape
    assert noised.t.shape == noised.weight.shape == (50,)
    z = (noised.xt.mean((1, 2, 3)) - 200 * Cosine().survival(noised.t)) / (200 * 0.25 / 60) ** 0.5
    assert z.abs().max() < 5


def test_the_generator_decides():
    x0 = counts()
    first, second, other = (draw(x0, seed, observed_training=True) for seed in (0, 0, 1))
    assert all(torch.equal(value, vars(second)[name]) for name, value in vars(first).items())
    assert not torch.equal(first.xt, other.xt)
