"""Blackout diffusion, JUMP and Binomial-JUMP, written out by their own rules, are settings of this process."""

import math

import pytest
import torch

from sccountsdiff.diffusion import (
    NOISED,
    Blackout,
    Cosine,
    Prediction,
    Rescale,
    draw_births,
    guide,
    reverse_walk,
    sample,
    thin,
)
from sccountsdiff.diffusion.continuous import PoissonCounts

RATES = torch.tensor([0.3, 2.0, 9.0, 60.0]).repeat(400, 1)
T = 40  # time points of the grid


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def denoise_rates(schedule):
    """Remaining counts of Poisson data, with a bent in the state so that one different draw shows later on."""

    def denoise(x, status, t, null):
        lost = (1 - schedule.survival(t)).to(x)[:, None]
        return Prediction((lost * (RATES + 0.1 * x) + 1e-9).log())

    return denoise


def walk_of_the_core(schedule, n_steps, rounding, denoise=None):
    empty = torch.zeros_like(RATES)
    predict = guide(denoise or denoise_rates(schedule), 0.0)  # unconditional
    noised = torch.full_like(empty, NOISED)
    none = Rescale(0.0)
    walk = reverse_walk(n_steps)
    return sample(predict, schedule, walk, empty, noised, attrition=none, rounding=rounding, generator=seeded())


# Blackout diffusion -------------------------------------------------------------------------------------------------


def blackout_times(n_points=T, t_last=15.0):
    """``t_1 ... t_T`` as published: pure death at rate 1, observed so that Fisher information falls evenly."""

    def logit(p):
        return math.log(p) - math.log1p(-p)

    top, bottom = logit(1 - math.exp(-t_last)), logit(math.exp(-t_last))
    k = torch.arange(n_points, dtype=torch.float64)
    return -torch.log(torch.sigmoid(top + k / (n_points - 1) * (bottom - top)))


def test_blackout_times_are_those_of_the_discrete_fisher_schedule():
    schedule = Blackout(n_grid=T)
    grid = schedule.snap(torch.linspace(0, 1, T, dtype=torch.float64))
    p = torch.exp(-blackout_times())
    # The two ends are exactly 1 and 0 here, as Prop. 3.1 asks; Blackout stops e^-15 short of both.
    torch.testing.assert_close(schedule.survival(grid)[1:-1], p[1:-1], rtol=1e-9, atol=1e-12)
    assert (schedule.survival(grid) - p).abs().max() < 1.01 * math.exp(-15)


def test_blackout_is_the_discrete_fisher_schedule_without_condition_and_attrition():
    times, schedule, generator = blackout_times(), Blackout(n_grid=T), seeded()
    x = torch.zeros_like(RATES)
    for k in range(T - 1, 0, -1):
        t = torch.full((len(x),), k / (T - 1))
        y = denoise_rates(schedule)(x, None, t, None).log_mean.exp()
        y = y.floor() + (torch.rand(y.shape, generator=generator) < y - y.floor())
        born = (torch.exp(-times[k - 1]) - torch.exp(-times[k])) / (1 - torch.exp(-times[k]))
        births = thin(y, born.float(), generator)
        x = x + births
    assert x.sum() > 1000
    assert torch.equal(x, walk_of_the_core(schedule, T - 1, "random"))


def test_blackout_loss_weight_is_the_speed_of_the_schedule():
    n_points = 1000
    times = blackout_times(n_points)
    schedule = Blackout()
    weight = (times[1:] - times[:-1]) * torch.exp(-times[1:])  # w(t_k) as published
    grid = torch.linspace(0, 1, n_points, dtype=torch.float64)[1:]
    # Equal in the limit of many points; the curve bends by 30 / 1000 from one point to the next.
    torch.testing.assert_close(schedule.weight(grid) / (n_points - 1), weight, rtol=0.02, atol=0)


# JUMP ---------------------------------------------------------------------------------------------------------------


def test_binomial_jump_is_poisson_rounding_without_condition_and_attrition():
    schedule, generator, n_steps = Cosine(), seeded(), 25
    alpha = torch.cos(torch.arange(n_steps + 1, dtype=torch.float64) / n_steps * math.pi / 2) ** 2
    z = torch.zeros_like(RATES)
    for k in range(n_steps, 0, -1):
        t = torch.full((len(z),), k / n_steps)
        x_hat = z + denoise_rates(schedule)(z, None, t, None).mean  # its network predicts the data
        share = (alpha[k - 1] - alpha[k]) / (1 - alpha[k])
        z = z + torch.poisson(share.float() * (x_hat - z).clamp_min(0), generator=generator)
    assert z.sum() > 1000
    assert torch.equal(z, walk_of_the_core(schedule, n_steps, "poisson"))


def test_jump_thickens_by_what_the_core_draws_from_poisson_counts():
    """JUMP adds Poisson(lambda (alpha_s - alpha_t) x_hat): the core's births with y_hat = lambda (1 - alpha_t) x_hat."""
    lam, schedule, generator, n_steps = 8.0, Cosine(), seeded(), 25
    alpha = torch.cos(torch.arange(n_steps + 1, dtype=torch.float64) / n_steps * math.pi / 2) ** 2

    def x_hat(z):
        return (RATES + 0.01 * z) / 10

    def denoise(x, status, t, null):
        lost = (1 - schedule.survival(t)).to(x)[:, None]
        return Prediction((lam * lost * x_hat(x)).log())

    z = torch.zeros_like(RATES)
    for k in range(n_steps, 0, -1):
        z = z + torch.poisson(lam * (alpha[k - 1] - alpha[k]).float() * x_hat(z), generator=generator)
    mine = walk_of_the_core(schedule, n_steps, "poisson", denoise)
    assert z.sum() > 1000
    assert torch.equal(PoissonCounts(lam).decode(z), PoissonCounts(lam).decode(mine))


def test_jump_s_forward_process_is_poisson_counts_thinned(assert_follows, generator):
    from scipy import stats

    x, lam, alpha = 1.7, 6.0, 0.35
    z = thin(PoissonCounts(lam).encode(torch.full((20_000,), x), generator), alpha, generator)
    assert_follows(z, stats.poisson(lam * alpha * x))


@pytest.mark.parametrize("rounding", ["random", "poisson"])
def test_both_roundings_have_the_same_mean_but_poisson_spreads_more(rounding):
    """Why the core's own default is exact where JUMP's and Blackout's approximation is not."""
    n, y, beta = 40_000, 3.0, 0.8
    births = draw_births(Prediction(torch.full((n,), y).log()), torch.tensor(beta), rounding, seeded())
    variance = y * beta * (1 - beta) if rounding == "random" else y * beta
    assert births.mean().item() == pytest.approx(y * beta, abs=5 * math.sqrt(variance / n))
    fourth = {"random": 3 * variance**2 + variance * (1 - 6 * beta * (1 - beta)), "poisson": 3 * variance**2 + variance}
    se = math.sqrt((fourth[rounding] - variance**2) / n)
    assert births.var().item() == pytest.approx(variance, abs=5 * se)
