"""The continuous ranked probability score."""

import numpy as np
import pytest

from sccountsdiff.benchmark import metrics

N_DRAWS = 15


def test_crps_agrees_with_the_direct_formula(exact):
    truth, draws, sites, _ = exact
    x = truth[sites]
    pairs = np.abs(draws[:, None] - draws[None]).sum(axis=(0, 1)) / (N_DRAWS * (N_DRAWS - 1))
    expected = (np.abs(draws - x).mean(axis=0) - pairs / 2).mean()
    assert metrics.crps(truth, draws, sites) == pytest.approx(expected)


def test_crps_agrees_with_the_closed_form_for_gaussians():
    """Expected score of N(0, 1) for a truth from N(0, 1): 1 / sqrt(pi). The number of draws does not matter."""
    rng = np.random.default_rng(4)
    sites = np.ones((200, 200), dtype=bool)
    truth = rng.normal(size=sites.shape)
    for n_draws in (2, 20):
        score = metrics.crps(truth, rng.normal(size=(n_draws, sites.sum())), sites)
        assert score == pytest.approx(1 / np.sqrt(np.pi), abs=4 * 1.2 / np.sqrt(sites.sum()))


def test_crps_is_lowest_for_exact_draws(exact):
    truth, draws, sites, mean = exact
    best = metrics.crps(truth, draws, sites)
    rng = np.random.default_rng(5)
    others = [rng.poisson(mean[sites] * f, draws.shape) for f in (0.7, 1.4)] + [np.repeat(mean[sites][None], 2, axis=0)]
    assert best < min(metrics.crps(truth, other, sites) for other in others)


def test_form_of_draws(exact):
    truth, draws, sites, _ = exact
    for function in (metrics.crps,):
        for wrong in (draws[:, 1:], draws[0]):
            with pytest.raises(ValueError, match="row-major"):
                function(truth, wrong, sites)
    with pytest.raises(ValueError, match="at least 2"):
        metrics.crps(truth, draws[:1], sites)
