import numpy as np
import pytest
from scipy import stats

from sccountsdiff.benchmark import metrics
from sccountsdiff.benchmark.metrics.inputs import CHUNK


@pytest.fixture(scope="module")
def pair():
    rng = np.random.default_rng(0)
    truth = rng.negative_binomial(2, 0.3, (90, 12)).astype(np.float32)
    return truth, truth + rng.poisson(1, truth.shape).astype(np.float32)


def test_identical_values_are_at_distance_zero(pair):
    truth, _ = pair
    assert metrics.energy_distance(truth, truth[::-1], np.ones(truth.shape, dtype=bool)) == 0


def test_energy_distance_agrees_with_scipy_on_plain_samples(pair):
    truth, imputed = pair
    sites = np.random.default_rng(2).random(truth.shape) < 0.5
    assert metrics.energy_distance(truth, imputed, sites) == pytest.approx(
        stats.energy_distance(truth[sites], imputed[sites])
    )


@pytest.mark.parametrize("whole", [True, False])
def test_more_cells_than_are_looked_at_at_once(whole):
    rng = np.random.default_rng(4)
    shape = (2 * CHUNK + 7, 3)
    truth, imputed = rng.poisson(2, shape), rng.poisson(2.5, shape) + (0 if whole else rng.random(shape))
    sites = rng.random(shape) < 0.5
    expected = stats.energy_distance(truth[sites], imputed[sites])
    assert metrics.energy_distance(truth, imputed, sites) == pytest.approx(expected, rel=1e-9)


def test_energy_distance_of_shifted_gaussians():
    """Its square is 2 E|X - Y| - E|X - X'| - E|Y - Y'|, folded normals all three."""
    rng = np.random.default_rng(3)
    shift, shape = 1.5, (400, 500)
    sites = np.ones(shape, dtype=bool)
    folded = lambda mean: 2 * stats.norm.pdf(mean / 2**0.5) * 2**0.5 + mean * (1 - 2 * stats.norm.cdf(-mean / 2**0.5))
    expected = np.sqrt(2 * folded(shift) - 2 * folded(0))
    found = metrics.energy_distance(rng.normal(size=shape), rng.normal(shift, size=shape), sites)
    assert found == pytest.approx(expected, abs=0.01)
