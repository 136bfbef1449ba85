import numpy as np
import pytest
from scipy import stats
from sklearn.metrics.pairwise import euclidean_distances, rbf_kernel

from sccountsdiff.benchmark import metrics
from sccountsdiff.benchmark.metrics import inputs, kernel


@pytest.fixture(scope="module")
def pair():
    rng = np.random.default_rng(0)
    truth = rng.negative_binomial(2, 0.3, (90, 12)).astype(np.float32)
    return truth, truth + rng.poisson(1, truth.shape).astype(np.float32)


def test_identical_cells_are_at_distance_zero(pair):
    truth, _ = pair
    assert metrics.mmd(truth, truth) == 0
    assert metrics.mmd(truth, np.random.default_rng(1).permutation(truth)) == pytest.approx(0, abs=1e-12)


def test_mmd_agrees_with_scikit_learn_kernels(pair, monkeypatch):
    truth, imputed = (m.astype(np.float64) for m in pair)
    width = np.median(euclidean_distances(truth)[np.triu_indices(90, k=1)])
    assert kernel.median_distance(truth) == pytest.approx(width)
    expected = np.mean(
        [
            rbf_kernel(truth, gamma=g).mean()
            + rbf_kernel(imputed, gamma=g).mean()
            - 2 * rbf_kernel(truth, imputed, g).mean()
            for g in 1 / (2 * (np.array([0.25, 0.5, 1, 2, 4]) * width) ** 2)
        ]
    )
    assert metrics.mmd(truth, imputed) == pytest.approx(expected)
    monkeypatch.setattr(inputs.blocks, "__defaults__", (17,))
    assert metrics.mmd(truth, imputed) == pytest.approx(expected)


def test_mmd_of_shifted_gaussians():
    """E k(x, y) of two normals at distance d is (w^2 / (w^2 + 2))^(D/2) exp(-d^2 / (2 (w^2 + 2)))."""
    rng = np.random.default_rng(4)
    n, dims, shift = 3000, 2, 1.0
    truth, other = rng.normal(size=(n, dims)), rng.normal(size=(n, dims)) + [shift, 0]
    width = kernel.median_distance(truth[:2000])
    assert width == pytest.approx(np.sqrt(2 * stats.chi2(dims).median()), rel=0.05)
    kernel_mean = lambda d: (width**2 / (width**2 + 2)) ** (dims / 2) * np.exp(-(d**2) / (2 * (width**2 + 2)))
    expected = 2 * kernel_mean(0) - 2 * kernel_mean(shift) + 2 * (1 - kernel_mean(0)) / n  # V-statistic
    found = metrics.mmd(truth, other, scales=(1,))
    assert found == pytest.approx(expected, abs=4 * np.sqrt(2 * expected / n))


def test_mmd_on_some_cells(pair):
    truth, imputed = pair
    assert metrics.mmd(truth, imputed, max_cells=1000) == metrics.mmd(truth, imputed)
    some = [metrics.mmd(truth, imputed, max_cells=40, seed=s) for s in (0, 0, 1)]
    assert some[0] == some[1] != some[2] and some[0] == pytest.approx(metrics.mmd(truth, imputed), rel=0.5)
    assert metrics.mmd(np.zeros((5, 2)), np.zeros((5, 2))) == 0
