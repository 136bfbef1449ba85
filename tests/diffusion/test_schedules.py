"""Every schedule runs from 1 to 0, and its rate and its inverse belong to it."""

import math

import numpy as np
import pytest
import torch
from scipy.special import expit, logit

from sccountsdiff.diffusion import Blackout, Cosine, Fisher, Schedule, get_schedule, register_schedule

INSIDE = torch.linspace(0.01, 0.99, 99, dtype=torch.float64)
P_MIN = math.exp(-15)


def test_survival_falls_from_one_to_zero(schedule):
    p = schedule.survival(torch.linspace(0, 1, 1001))
    assert p[0] == 1 and p[-1] == 0
    assert (p.diff() < 0).all()


def test_times_beyond_the_ends(schedule):
    assert schedule.survival(torch.tensor([-0.5, 1.5])).tolist() == [1, 0]


def test_rate_is_the_derivative(schedule):
    h = 1e-5  # truncation h^2 p''' / 6 is below 1e-6, rounding 1e-16 / h far below
    difference = (schedule.survival(INSIDE - h) - schedule.survival(INSIDE + h)) / (2 * h)
    torch.testing.assert_close(schedule.rate(INSIDE), difference, rtol=0, atol=1e-6)


def test_closed_form_rate_is_the_automatic_one(schedule):
    torch.testing.assert_close(schedule.rate(INSIDE), Schedule._slope(schedule, INSIDE), rtol=1e-9, atol=1e-12)


def test_weight_integrates_to_one(schedule):
    t = torch.linspace(0, 1, 10_001, dtype=torch.float64)
    total = torch.trapezoid(schedule.weight(t), t).item()
    assert total == pytest.approx(1, abs=2 * P_MIN + 1e-7)  # Fisher's curve leaves p_min at either end


def test_time_of_inverts_survival(schedule):
    torch.testing.assert_close(schedule.time_of(schedule.survival(INSIDE)), INSIDE, rtol=0, atol=1e-8)
    assert schedule.time_of(torch.tensor([1.0, 0.0])).tolist() == pytest.approx([0, 1], abs=1e-12)


def test_closed_form_inverse_is_the_bisected_one(schedule):
    p = torch.linspace(0.001, 0.999, 99, dtype=torch.float64)
    torch.testing.assert_close(schedule.time_of(p), Schedule.time_of(schedule, p), rtol=0, atol=1e-12)


def test_a_curve_is_all_that_users_need_to_write():
    class Cubic(Schedule):
        def _curve(self, t):
            return (1 - t) ** 3

    t = torch.tensor([0.2, 0.5], dtype=torch.float64)
    schedule = get_schedule(Cubic())
    torch.testing.assert_close(schedule.rate(t), 3 * (1 - t) ** 2)
    torch.testing.assert_close(schedule.time_of(torch.tensor([0.512, 0.125], dtype=torch.float64)), t)
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            torch.testing.assert_close(schedule.rate(torch.tensor([0.2, 0.5])), 3 * (1 - t.float()).double() ** 2)


def test_cosine_has_the_signal_to_noise_ratio_of_the_gaussian_one():
    alpha_bar = torch.cos(INSIDE * math.pi / 2) ** 2  # Nichol and Dhariwal, offset 0
    # Thinning: E[x_t]^2 / Var[x_t] = x0 p / (1 - p), for each of the x0 counts.
    p = Cosine().survival(INSIDE)
    torch.testing.assert_close(p / (1 - p), alpha_bar / (1 - alpha_bar))
    torch.testing.assert_close(Cosine().rate(INSIDE), math.pi / 2 * torch.sin(math.pi * INSIDE))


@pytest.mark.parametrize("n_grid", [7, 1000])
def test_fisher_on_a_grid_is_blackout(n_grid):
    # App. B.2, in Blackout's own time: death rate 1, so p_k = exp(-t_k).
    k = np.arange(1, n_grid + 1)
    start, end = logit(1 - P_MIN), logit(P_MIN)
    t_k = -np.log(expit(start + (k - 1) / (n_grid - 1) * (end - start)))
    for schedule in (Blackout(n_grid), Fisher()):
        p = schedule.survival(schedule.snap(torch.linspace(0, 1, n_grid, dtype=torch.float64))).numpy()
        np.testing.assert_allclose(p[1:-1], np.exp(-t_k)[1:-1], rtol=1e-9)
        np.testing.assert_allclose(p[[0, -1]], np.exp(-t_k)[[0, -1]], rtol=0, atol=P_MIN * (1 + 1e-6))


def test_information_decays_evenly_along_fishers_curve():
    logits = torch.logit(Fisher().survival(INSIDE))
    torch.testing.assert_close(logits.diff(), logits.diff().mean().expand(98), rtol=1e-6, atol=0)


def test_another_end_point():
    assert Fisher(log_p_min=-5.0).survival(1e-9).item() == pytest.approx(1 - math.exp(-5))


def test_snapping():
    grid = torch.linspace(0, 1, 5, dtype=torch.float64)
    schedule = Cosine(n_grid=5)
    assert torch.equal(schedule.snap(grid), grid)
    assert schedule.snap(torch.tensor([0.1, 0.13, 0.8, 0.95])).tolist() == [0, 0.25, 0.75, 1]
    assert torch.equal(Cosine().snap(INSIDE), INSIDE)
    assert Blackout().n_grid == 1000


@pytest.mark.parametrize("t", [1e-4, 1e-6])
def test_what_is_lost_early_on_does_not_cancel(t):
    for given in (t, torch.tensor(t), torch.tensor(t, dtype=torch.float64)):
        assert 1 - Cosine().survival(given).item() == pytest.approx(math.sin(math.pi / 2 * t) ** 2, rel=1e-3)
    assert Cosine().survival(0.3).item() == math.cos(math.pi / 2 * 0.3) ** 2, "a Python float keeps its digits"


def test_names():
    assert type(get_schedule("cosine")) is Cosine
    assert type(get_schedule("fisher")) is Fisher
    assert type(get_schedule("blackout")) is Blackout
    mine = Cosine(n_grid=8)
    assert get_schedule(mine) is mine

    @register_schedule("straight, for a test")
    class Straight(Schedule):
        def _curve(self, t):
            return 1 - t

    assert type(get_schedule("straight, for a test")) is Straight
    with pytest.raises(ValueError, match="already a schedule named 'cosine'"):
        register_schedule("cosine")(Straight)


def test_errors():
    with pytest.raises(KeyError, match="Unknown schedule 'cosin'; did you mean 'cosine'"):
        get_schedule("cosin")
    with pytest.raises(TypeError, match="`schedule` must be a name or a Schedule, not float"):
        get_schedule(0.5)
    with pytest.raises(ValueError, match="`n_grid` must be None"):
        Cosine(n_grid=1)
    with pytest.raises(TypeError, match="_curve"):
        Schedule()


def test_different_schedules_look_different():
    """Results of a benchmark are found again by what a schedule looks like."""

    class Power(Schedule):
        def __init__(self, exponent):
            super().__init__()
            self.exponent = exponent

        def _curve(self, t):
            return (1 - t) ** self.exponent

    schedules = [Cosine(), Cosine(5), Fisher(), Fisher(log_p_min=-3.0), Blackout(), Blackout(9), Power(2), Power(3)]
    assert len({repr(schedule) for schedule in schedules}) == len(schedules)
    assert repr(Fisher(log_p_min=-3.0)) == "Fisher(n_grid=None, log_p_min=-3.0)"
