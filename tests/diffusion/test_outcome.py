"""Mean, variance and quantiles of counts before the last draw."""

import numpy as np
import pytest
import torch
from scipy import stats

from sccountsdiff.diffusion import (
    NOISED,
    OBSERVED,
    Cosine,
    HurdlePrediction,
    MixturePrediction,
    Outcome,
    Prediction,
    Rescale,
    draw_births,
    reverse_walk,
    sample,
)

MEANS = torch.tensor([0.01, 0.5, 3.0, 40.0, 900.0], dtype=torch.float64)
THETA = torch.tensor([0.3, 1.0, 5.0, 2.0, 10.0], dtype=torch.float64)


def _poisson():
    return Prediction(MEANS.log())


def _nb():
    return Prediction(MEANS.log(), THETA.log())


def _mixture():
    share = torch.full_like(MEANS, 0.3)
    small = Prediction((MEANS / 4).log(), THETA.log())
    return MixturePrediction.of([share.log(), (1 - share).log()], [small, _nb()])


def _truncated():
    return HurdlePrediction.of(_mixture(), torch.full_like(MEANS, -50.0))


LAWS = {"poisson": _poisson, "nb": _nb, "mixture": _mixture, "hurdle": _truncated}


@pytest.mark.parametrize("name", LAWS)
def test_moments_and_tail_are_those_of_draws(name):
    law, n = LAWS[name](), 40_000
    many = law.map(lambda value: value.expand(n, -1))
    draws = draw_births(many, torch.tensor(1.0), name, torch.Generator().manual_seed(0))
    # Five standard errors of a mean and of a variance; the latter from the fourth moment of the draws.
    error = draws.std(0) / n**0.5
    assert ((draws.mean(0) - law.mean).abs() <= 5 * error).all()
    fourth = (draws - draws.mean(0)).pow(4).mean(0)
    assert ((draws.var(0) - law.variance).abs() <= 6 * (fourth / n).sqrt()).all()
    for k in (0.0, 2.0, 50.0):
        p = law.above(torch.full_like(MEANS, k))
        found = (draws > k).double().mean(0)
        assert ((found - p).abs() <= 5 * (p * (1 - p) / n).sqrt() + 1e-3).all()


def test_tails_are_those_of_scipy():
    k = torch.tensor([0.0, 1.0, 4.0, 30.0, 1500.0], dtype=torch.float64)
    nb = stats.nbinom(THETA.numpy(), (THETA / (THETA + MEANS)).numpy())
    np.testing.assert_allclose(_nb().above(k), nb.sf(k.numpy()), rtol=1e-9)
    np.testing.assert_allclose(_poisson().above(k), stats.poisson(MEANS.numpy()).sf(k.numpy()), rtol=1e-9)


@pytest.mark.parametrize("q", [0.01, 0.05, 0.5, 0.9, 0.999])
def test_quantiles_of_one_chain_are_those_of_scipy(q):
    outcome = Outcome(torch.full_like(MEANS, 2.0)[None], _nb().map(lambda value: value[None]))
    expected = stats.nbinom.ppf(q, THETA.numpy(), (THETA / (THETA + MEANS)).numpy())
    np.testing.assert_array_equal(outcome.quantile(q), 2 + expected)


@pytest.mark.parametrize("name", LAWS)
def test_a_quantile_is_the_least_count_that_is_not_exceeded_too_often(name):
    law = LAWS[name]()
    chains = [(torch.zeros_like(MEANS), law), (torch.full_like(MEANS, 7.0), law)]
    outcome = Outcome.stack(chains)
    for q in (0.05, 0.5, 0.95):
        k = outcome.quantile(q)
        assert (outcome.above(k) <= 1 - q + 1e-6).all()
        assert ((k == 0) | (outcome.above((k - 1).clamp_min(0)) > 1 - q - 1e-6)).all()


def test_quantiles_beyond_the_whole_numbers_of_single_precision():
    """Halving ends, to within what single precision can tell apart: 2^-24 of the count. An exponential law has a known one."""
    law = Outcome(torch.zeros(1, 1), Prediction(torch.tensor([[3e7]]).log(), torch.zeros(1, 1)))
    np.testing.assert_allclose(law.quantile(0.9), -3e7 * np.log(0.1), rtol=1e-6)


def test_variance_is_within_and_between_chains():
    law = Prediction(torch.tensor([4.0], dtype=torch.float64).log())
    outcome = Outcome.stack([(torch.tensor([0.0]), law), (torch.tensor([6.0]), law)])
    assert outcome.mean.item() == pytest.approx(7)
    assert outcome.sd.item() ** 2 == pytest.approx(4 + 18)  # Poisson, and the sample variance of 4 and 10


def test_nothing_to_ask_for():
    outcome = Outcome(torch.zeros(2, 0), Prediction(torch.zeros(2, 0)))
    assert outcome.mean.shape == outcome.quantile(0.5).shape == (0,)


def test_who_asks_for_the_last_law_alone_is_spared_the_last_move():
    x0 = torch.arange(60.0).view(12, 5)
    status = torch.tensor([OBSERVED, NOISED, NOISED, OBSERVED, NOISED]).expand(12, 5)

    def denoise(x, status, t):
        return Prediction((9 + x.mean(1, keepdim=True) - 8 * t[:, None]).log().expand_as(x))

    def last_law(**watching):
        laws, generator = [], torch.Generator().manual_seed(2)
        settings = {"attrition": Rescale(0.3), "generator": generator, **watching}
        on_last = lambda n, law: laws.append((n, law.mean))
        return sample(denoise, Cosine(), reverse_walk(3), x0, status, on_last=on_last, **settings), *laws[0]

    (before, n, mean), (after, same_n, same_mean) = last_law(), last_law(on_move=lambda move, x: None)
    assert torch.equal(n, same_n) and torch.equal(mean, same_mean)
    fill = status == NOISED
    assert torch.equal(before[fill], n) and not torch.equal(after[fill], n)  # to the data, nothing dies
    assert torch.equal(before[~fill], after[~fill])
