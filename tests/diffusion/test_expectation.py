"""Expected logarithms are those of a sum over all counts, and the guess they give is the best one on that scale."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from scipy import stats

from sccountsdiff.diffusion import (
    NOISED,
    Cosine,
    HurdlePrediction,
    MixturePrediction,
    Prediction,
    Rescale,
    expected_log1p,
    log_mean,
    reverse_walk,
    sample,
)


def by_summation(mean: float, theta: float | None, scale: float) -> float:
    law = stats.poisson(mean) if theta is None else stats.nbinom(theta, theta / (theta + mean))
    counts = np.arange(law.isf(1e-10) + 2)
    return float((law.pmf(counts) * np.log1p(scale * counts)).sum())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("theta", [1e-2, 0.3, 1.0, 20.0, 1e3, None])
@pytest.mark.parametrize("scale", [1.0, 50.0, 1 / 300])
def test_is_the_sum_over_counts(theta, scale, dtype):
    means = [1e-4, 1e-2, 0.3, 1.0, 10.0, 1e3, 1e4]
    log_mean = torch.tensor(means, dtype=dtype).log()
    law = Prediction(log_mean, None if theta is None else torch.full_like(log_mean, theta).log())
    expected = [by_summation(mean, theta, scale) for mean in means]
    np.testing.assert_allclose(expected_log1p(law, scale), expected, rtol=1e-4)


def test_of_mixtures_and_hurdles():
    """Linear in the probabilities of positive counts, whatever law they belong to."""
    laws = [Prediction(torch.tensor([m]).log(), torch.tensor([theta]).log()) for m, theta in ((0.2, 1.0), (30.0, 4.0))]
    expected = [by_summation(0.2, 1.0, 2.0), by_summation(30.0, 4.0, 2.0)]
    mixture = MixturePrediction.of(torch.tensor([[0.7], [0.3]]).log(), laws)
    assert expected_log1p(mixture, 2.0).item() == pytest.approx(0.7 * expected[0] + 0.3 * expected[1], rel=1e-4)
    truncated = HurdlePrediction.of(laws[0], torch.tensor([-50.0]))
    positive = 1 - stats.nbinom(1.0, 1 / 1.2).pmf(0)
    assert expected_log1p(truncated, 2.0).item() == pytest.approx(expected[0] / positive, rel=1e-4)


def test_births_are_the_thinned_law():
    law = Prediction(torch.tensor([0.2, 7.0, 300.0]).log(), torch.tensor([0.5, 2.0, 9.0]).log())
    beta = torch.tensor([0.3, 0.9, 0.01])
    thinned = Prediction(law.log_mean + beta.log(), law.log_dispersion)
    torch.testing.assert_close(expected_log1p(law, beta=beta), expected_log1p(thinned), rtol=1e-4, atol=0)


def test_the_guess_has_the_least_error_of_log_counts():
    mean, theta, n, pseudo = 6.0, 0.8, 3, 0.4
    guess = float(log_mean(Prediction(torch.tensor(mean).log(), torch.tensor(theta).log()), n, pseudo=pseudo))
    law = stats.nbinom(theta, theta / (theta + mean))
    counts = n + np.arange(law.isf(1e-12))

    def error(value):
        return (law.pmf(counts - n) * (np.log(pseudo + counts) - np.log(pseudo + value)) ** 2).sum()

    assert n < guess < n + mean
    assert error(guess) < min(error(guess * 0.999), error(guess * 1.001), error(n + mean))


def test_is_the_mean_of_logarithms_of_draws():
    x0, status = torch.zeros(20_000, 1), torch.full((20_000, 1), NOISED)
    draw = partial(sample, lambda x, status, t: Prediction(torch.full_like(x, 1.0)), Cosine(), reverse_walk(1))
    found = draw(x0[:1], status[:1], attrition=Rescale(0.0), final="log_mean")
    generator = torch.Generator().manual_seed(0)
    logs = draw(x0, status, attrition=Rescale(0.0), rounding="poisson", generator=generator).log1p()
    assert found.log1p().item() == pytest.approx(logs.mean().item(), abs=4 * logs.std().item() / len(logs) ** 0.5)


def test_of_no_entries_and_of_none_to_come():
    assert expected_log1p(Prediction(torch.zeros(0, 3))).shape == (0, 3)
    nothing = Prediction(torch.full((2,), -float("inf")), torch.zeros(2))
    assert log_mean(nothing, torch.tensor([0.0, 5.0])).tolist() == [0, 5]


def test_a_prediction_that_has_run_away_is_refused():
    with pytest.raises(ValueError, match="run away"):
        log_mean(Prediction(torch.tensor([float("nan")])))
