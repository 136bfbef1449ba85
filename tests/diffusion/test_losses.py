"""Losses against scipy, and the likelihood bound against the likelihood."""

import math

import numpy as np
import pytest
import torch
from scipy import special, stats

from sccountsdiff.diffusion import (
    MISSING,
    NOISED,
    Blackout,
    Cosine,
    Fisher,
    Prediction,
    count_loss,
    log_likelihood,
    nb_loss,
    nll_weight,
)

N = 4_000


# Losses -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("y", [0.25, 1.0, 17.0])
def test_count_loss_is_least_at_the_truth(y):
    y = torch.tensor(y, dtype=torch.float64)
    log_y_hat = y.log().requires_grad_()
    (slope,) = torch.autograd.grad(count_loss(y, log_y_hat), log_y_hat)
    assert slope.item() == pytest.approx(0, abs=1e-12)
    around = count_loss(y, y.log() + torch.tensor([-2.0, -0.1, 0.1, 2.0]))
    assert (around > count_loss(y, y.log())).all()


def test_count_loss_is_least_at_the_mean():
    y = torch.tensor([0.0, 1.0, 1.0, 6.0], dtype=torch.float64)
    candidates = torch.linspace(0.5, 4, 71, dtype=torch.float64)
    losses = count_loss(y, candidates[:, None].log()).mean(1)
    assert candidates[losses.argmin()].item() == pytest.approx(y.mean().item())


def test_nb_loss_is_the_negative_log_pmf():
    y, mean, theta = np.meshgrid([0, 1, 2, 13, 400], [1e-4, 0.3, 2.0, 150.0], [1e-3, 0.5, 8.0, 29.0, 31.0, 1e3])
    found = nb_loss(*(torch.as_tensor(v) for v in (y.astype(float), np.log(mean), np.log(theta))))
    expected = -stats.nbinom.logpmf(y, theta, theta / (theta + mean)) - special.gammaln(y + 1)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)


def test_nb_loss_has_the_gradients_of_the_log_pmf():
    y, mean, theta = np.meshgrid([0.0, 1, 13], [0.3, 150.0], [1e-3, 0.5, 29.0, 31.0, 1e3])
    inputs = [torch.as_tensor(np.log(v)).requires_grad_() for v in (mean, theta)]
    by_mean, by_theta = torch.autograd.grad(nb_loss(torch.as_tensor(y), *inputs).sum(), inputs)
    np.testing.assert_allclose(by_mean, theta * (mean - y) / (mean + theta), rtol=1e-9, atol=1e-12)
    digammas = special.digamma(theta) - special.digamma(theta + y)
    expected = theta * (digammas + np.log1p(mean / theta) + (y - mean) / (mean + theta))
    np.testing.assert_allclose(by_theta, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("log_theta", [-20.0, -5.0, 0.0, 10.0, 14.0, 18.0, 30.0])
@pytest.mark.parametrize("log_mean", [-30.0, 0.0, 10.0])
def test_nb_loss_at_the_extremes_of_single_precision(log_mean, log_theta):
    y = torch.tensor([0.0, 1.0, 3.0, 1000.0])
    log_mean, log_theta = (torch.full((4,), v, requires_grad=True) for v in (log_mean, log_theta))
    loss = nb_loss(y, log_mean, log_theta)
    gradients = torch.autograd.grad(loss.sum(), [log_mean, log_theta])
    assert loss.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("log_theta", [12.0, 16.0, 20.0])
def test_a_large_dispersion_is_poisson_in_single_precision_too(log_theta):
    # log Gamma(theta + y) - log Gamma(theta) is a difference of numbers of some 10^7 to 10^10 here.
    y, log_mean = torch.tensor([0.0, 1.0, 3.0, 20.0]), torch.zeros(4)
    log_theta = torch.full((4,), log_theta, requires_grad=True)
    loss = nb_loss(y, log_mean, log_theta)
    (gradient,) = torch.autograd.grad(loss.sum(), log_theta)
    torch.testing.assert_close(loss.detach(), count_loss(y, log_mean), rtol=0, atol=2e-3)
    torch.testing.assert_close(gradient, torch.zeros(4), rtol=0, atol=2e-3)


# The exact weight ---------------------------------------------------------------------------------------------------


def test_nll_weight_in_closed_form():
    t = torch.linspace(0.01, 0.99, 50, dtype=torch.float64)
    torch.testing.assert_close(nll_weight(Cosine(), t), math.pi / torch.tan(math.pi / 2 * t))
    p = Fisher().survival(t)
    torch.testing.assert_close(nll_weight(Fisher(), t), 2 * math.log(math.e**15 - 1) * p)


def test_the_weighted_loss_is_the_likelihood_up_to_a_constant(schedule):
    # Eq. 6 is linear in y, so that E[y] = (1 - p) x0 stands for its expectation over the forward process.
    x0, rates = 5.0, torch.tensor([2.0, 7.5], dtype=torch.float64)
    t = (torch.arange(20_000, dtype=torch.float64) + 0.5) / 20_000
    lost = 1 - schedule.survival(t)[:, None]
    loss = (nll_weight(schedule, t)[:, None] * count_loss(lost * x0, (lost * rates).log())).mean(0)
    found = (loss[0] - loss[1]).item()
    expected = stats.poisson.logpmf(x0, 7.5) - stats.poisson.logpmf(x0, 2.0)
    assert found == pytest.approx(expected, abs=1e-5)


class LikelihoodCosine(Cosine):
    def weight(self, t):
        return nll_weight(self, t)


def test_models_can_be_trained_with_the_exact_weight(simulate, train):
    adata = simulate(40).adata
    model, other = (
        train(adata, model_kwargs={"schedule": schedule, "observed_training": False})
        for schedule in (LikelihoodCosine(), Cosine())
    )
    x0 = torch.from_numpy(adata.X.toarray())
    no_covariates = torch.zeros(40, 0, dtype=torch.long), torch.zeros(40, 0)
    drawn = model.module.inference(x0, torch.zeros_like(x0, dtype=torch.bool), *no_covariates)["noised"]
    torch.testing.assert_close(drawn.weight, math.pi / torch.tan(math.pi / 2 * drawn.t), rtol=1e-4, atol=1e-4)
    assert np.isfinite(model.history["train_loss"].to_numpy(dtype=float)).all()
    weights, others = (torch.cat([p.flatten() for p in m.module.parameters()]) for m in (model, other))
    assert weights.isfinite().all() and not torch.equal(weights, others)


# The bound ----------------------------------------------------------------------------------------------------------


def assert_is_mean_of(estimates: torch.Tensor, expected: float) -> None:
    assert estimates.isfinite().all()
    se = estimates.std().item() / len(estimates) ** 0.5
    assert 0 < se < 0.05 * (1 + abs(expected)), "a test that could not fail"
    assert estimates.mean().item() == pytest.approx(expected, abs=5 * se)


@pytest.mark.parametrize("rate", [0.05, 2.5, 40.0])
@pytest.mark.parametrize("x0", [0, 3, 35])
def test_bound_is_the_poisson_likelihood(schedule, rate, x0, generator):
    def denoise(x, status, t):
        return Prediction((1 - schedule.survival(t)).log()[:, None].to(x) + math.log(rate) + torch.zeros_like(x))

    x = torch.full((N, 1), float(x0))
    found = log_likelihood(denoise, schedule, x, torch.full_like(x, NOISED), n_times=16, generator=generator)
    assert_is_mean_of(found, stats.poisson.logpmf(x0, rate))


@pytest.mark.parametrize(("mu", "theta"), [(0.4, 0.3), (6.0, 2.0), (20.0, 15.0)])
@pytest.mark.parametrize("x0", [0, 4, 30])
def test_bound_is_the_negative_binomial_likelihood(schedule, mu, theta, x0, generator, negative_binomial):
    def denoise(x, status, t):
        p = schedule.survival(t)[:, None]
        return Prediction(((1 - p) * (theta + x) / (theta / mu + p)).log().to(x))

    x = torch.full((N, 1), float(x0))
    found = log_likelihood(denoise, schedule, x, torch.full_like(x, NOISED), n_times=16, generator=generator)
    assert_is_mean_of(found, negative_binomial(mu, theta).logpmf(x0))


def test_bound_sums_over_the_entries_that_are_there(generator):
    rates = torch.tensor([0.5, 3.0, 8.0])

    def denoise(x, status, t):
        return Prediction((1 - Cosine().survival(t)).log()[:, None].to(x) + rates.log().expand_as(x))

    x0 = torch.tensor([1.0, 4.0, 0.0]).repeat(N, 1)
    status = torch.tensor([NOISED, NOISED, MISSING]).repeat(N, 1)
    found = log_likelihood(denoise, Cosine(), x0, status, n_times=16, generator=generator)
    assert_is_mean_of(found, stats.poisson.logpmf([1, 4], [0.5, 3.0]).sum())
    nothing = log_likelihood(denoise, Cosine(), x0, torch.full_like(x0, MISSING), n_times=2, generator=generator)
    assert not nothing.any()


def test_bound_asks_for_one_pass_per_time_point_and_obeys_the_generator():
    times = []

    def denoise(x, status, t):
        times.append(t)
        return Prediction(torch.log1p(x) + 0.1)

    x0, schedule = torch.full((50, 2), 4.0), Blackout()
    draw = lambda seed: log_likelihood(
        denoise, schedule, x0, torch.zeros_like(x0), n_times=6, generator=torch.Generator().manual_seed(seed)
    )
    first = draw(0)
    assert len(times) == 6
    assert all((t > 0).all() and (t <= 1).all() for t in times)
    torch.rand(3)
    assert torch.equal(draw(0), first)
    assert not torch.equal(draw(1), first)
