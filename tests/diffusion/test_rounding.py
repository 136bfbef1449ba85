"""Births have the law that their rounding promises."""

import numpy as np
import pytest
import torch
from scipy import stats

from sccountsdiff.diffusion import ROUNDINGS, HurdlePrediction, MixturePrediction, Prediction, draw_births, thin
from sccountsdiff.diffusion import rounding as rounding_module

N = 20_000


@pytest.fixture(autouse=True, params=["host", "device"])
def _seen_or_not(request, monkeypatch):
    """On a device, where nobody looks which entries have any birth, all are drawn."""
    if request.param == "device":
        monkeypatch.setattr(rounding_module, "host_sees", lambda values: False)


MEANS = [0.0, 0.05, 0.5, 3.0, 7.3, 55.8]
BETAS = [0.2, 1.0]


def remaining(mean: float, theta: float | None = None) -> Prediction:
    log_mean = torch.full((N,), mean, dtype=torch.float64).log()
    return Prediction(log_mean, None if theta is None else torch.full_like(log_mean, theta).log())


def as_asked(law: Prediction, rounding: str) -> Prediction:
    """A law of the kind that a rounding draws from, which says the same as the one given."""
    if rounding == "mixture":
        half = torch.full_like(law.log_mean, 0.5).log()
        return MixturePrediction.of([half, half], [law, law])
    return HurdlePrediction.of(law, torch.zeros_like(law.log_mean)) if rounding == "hurdle" else law


@pytest.mark.parametrize("mean", MEANS)
def test_random_rounding_goes_up_or_down_and_keeps_the_mean(mean, generator):
    y = draw_births(remaining(mean), torch.tensor(1.0), "random", generator).numpy()
    floor = np.floor(np.round(mean, 9))
    up = mean - floor
    assert set(y) <= {floor, floor + 1}
    se = np.sqrt(up * (1 - up) / N)
    assert y.mean() == pytest.approx(mean, abs=5 * se + 1e-9)


@pytest.mark.parametrize("mean", MEANS)
def test_random_rounding_then_births(mean, generator):
    beta, up = 0.2, mean % 1
    births = draw_births(remaining(mean), torch.tensor(beta), "random", generator).numpy()
    variance = beta * (1 - beta) * mean + beta**2 * up * (1 - up)  # of the births, then of the rounding
    se = np.sqrt(variance / N)
    assert births.mean() == pytest.approx(beta * mean, abs=5 * se)
    fourth = ((births - births.mean()) ** 4).mean()
    se = np.sqrt((fourth - births.var() ** 2) / N)
    assert births.var() == pytest.approx(variance, abs=5 * se)


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("mean", MEANS)
def test_nearest(mean, beta, generator, assert_follows):
    births = draw_births(remaining(mean), torch.tensor(beta), "nearest", generator)
    assert_follows(births, stats.binom(round(mean), beta))


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("mean", MEANS)
def test_poisson(mean, beta, generator, assert_follows):
    assert_follows(draw_births(remaining(mean), torch.tensor(beta), "poisson", generator), stats.poisson(beta * mean))


@pytest.mark.parametrize("theta", [0.3, 2.0, 40.0])
@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("mean", [0.05, 3.0, 55.8])
def test_negative_binomial(mean, beta, theta, generator, assert_follows, negative_binomial):
    law = negative_binomial(beta * mean, theta)
    assert law.var() == pytest.approx(beta * mean + (beta * mean) ** 2 / theta)
    assert_follows(draw_births(remaining(mean, theta), torch.tensor(beta), "nb", generator), law)


def test_negative_binomial_births_are_a_thinned_negative_binomial(generator, assert_follows, negative_binomial):
    everything = draw_births(remaining(9.0, 2.0), torch.tensor(1.0), "nb", generator)
    assert_follows(thin(everything, 0.3, generator), negative_binomial(0.3 * 9.0, 2.0))


def enumerated(pmf: np.ndarray, beta: float):
    """The law of what is born of a count with these probabilities."""
    counts = np.arange(len(pmf))
    born = (stats.binom.pmf(counts[:, None], counts[None], beta) * pmf).sum(1)
    return stats.rv_discrete(values=(counts, born / born.sum()))()


def pmf_of(mean: float, theta: float) -> np.ndarray:
    return stats.nbinom(theta, theta / (theta + mean)).pmf(np.arange(400))


@pytest.mark.parametrize("beta", BETAS)
def test_mixture(beta, generator, assert_follows):
    weights, parameters = [0.5, 0.2, 0.3], [(0.1, 1.0), (3.0, 0.5), (25.0, 9.0)]
    log_weights = [torch.full((N,), weight, dtype=torch.float64).log() for weight in weights]
    law = MixturePrediction.of(log_weights, [remaining(*each) for each in parameters])
    assert law.mean[0].item() == pytest.approx(0.5 * 0.1 + 0.2 * 3 + 0.3 * 25)
    pmf = sum(weight * pmf_of(*each) for weight, each in zip(weights, parameters, strict=True))
    births = draw_births(law, torch.tensor(beta), "mixture", generator)
    assert_follows(births, enumerated(pmf, beta))
    # The same without most of its zeros.
    pmf[0] *= np.exp(-3)
    hurdle = HurdlePrediction.of(law, torch.full((N,), -3.0, dtype=torch.float64))
    births = draw_births(hurdle, torch.tensor(beta, dtype=torch.float64), "hurdle", generator)
    assert_follows(births, enumerated(pmf / pmf.sum(), beta))


@pytest.mark.parametrize("log_odds", [-40.0, -1.5, 0.0, 2.0], ids="log-odds {}".format)
@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize(("mean", "theta"), [(0.05, 2.0), (1.5, 0.3), (12.0, 5.0)])
def test_hurdle(mean, theta, beta, log_odds, generator, assert_follows):
    law = HurdlePrediction.of(remaining(mean, theta), torch.full((N,), log_odds, dtype=torch.float64))
    pmf = pmf_of(mean, theta)
    pmf[0] *= np.exp(log_odds)
    pmf /= pmf.sum()
    assert law.mean[0].item() == pytest.approx((pmf * np.arange(400)).sum(), rel=1e-6)
    for share in (0.01, 0.4, 1.0):
        expected = 1 - (pmf * (1 - share) ** np.arange(400)).sum()
        assert law.any_of(share)[0].item() == pytest.approx(expected, rel=1e-6)
    births = draw_births(law, torch.tensor(beta, dtype=torch.float64), "hurdle", generator)
    assert_follows(births, enumerated(pmf, beta))


def test_a_birth_probability_for_each_entry(generator, assert_follows):
    beta = torch.tensor([0.0, 0.4, 1.0], dtype=torch.float64).repeat(N // 3)
    births = draw_births(remaining(6.0).map(lambda parameter: parameter[: len(beta)]), beta, "nearest", generator)
    for k, p in enumerate([0.0, 0.4, 1.0]):
        assert_follows(births[k::3], stats.binom(6, p))


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_nothing_remains_nothing_is_born(rounding):
    prediction = as_asked(Prediction(torch.full((100,), -60.0), torch.zeros(100)), rounding)
    assert not draw_births(prediction, torch.tensor(1.0), rounding).any()


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_all_randomness_is_the_generators(rounding):
    draw = lambda seed: draw_births(
        as_asked(remaining(4.4, 2.0), rounding), torch.tensor(0.5), rounding, torch.Generator().manual_seed(seed)
    )
    first = draw(1)
    torch.rand(10)
    assert torch.equal(first, draw(1))
    assert not torch.equal(first, draw(2))


def test_errors():
    with pytest.raises(ValueError, match="`rounding='nb'` needs a model that predicts a dispersion"):
        draw_births(remaining(1.0), torch.tensor(0.5), "nb")
    for rounding, kind in (("mixture", "mixture"), ("hurdle", "hurdle")):
        with pytest.raises(ValueError, match=f"`rounding='{rounding}'` needs a model that predicts a {kind}"):
            draw_births(remaining(1.0, 1.0), torch.tensor(0.5), rounding)
    with pytest.raises(ValueError, match="`rounding` must be 'random', .* not 'up'"):
        draw_births(remaining(1.0), torch.tensor(0.5), "up")


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("log_mean", [float("nan"), 200.0, 40.0], ids=["no number", "infinite", "above 2**53"])
def test_predictions_that_have_run_away_raise(rounding, log_mean):
    prediction = Prediction(torch.tensor([0.0, log_mean, 1.0]), torch.zeros(3))
    with pytest.raises(ValueError, match="has run away. Use less `guidance`"):
        draw_births(prediction, torch.tensor(0.5), rounding)


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_large_counts_are_no_reason_to_raise(rounding, generator):
    births = draw_births(
        as_asked(Prediction(torch.full((10,), 30.0), torch.full((10,), 9.0)), rounding),
        torch.tensor(1.0),
        rounding,
        generator,
    )
    # A negative binomial with theta = exp(9) has a coefficient of variation of .011: five of them.
    torch.testing.assert_close(births, torch.full((10,), 30.0).exp(), rtol=0.06, atol=0)
