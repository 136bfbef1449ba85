"""Distances between samples: closed forms, and a second implementation where there is one."""

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics.pairwise import euclidean_distances, rbf_kernel

from sccountsdiff.benchmark import metrics
from sccountsdiff.benchmark.metrics import inputs, kernel


@pytest.fixture
def ot():
    return pytest.importorskip("ot", reason="POT, the second implementation, is not installed")


@pytest.fixture(scope="module")
def pair():
    rng = np.random.default_rng(0)
    truth = rng.negative_binomial(2, 0.3, (90, 12)).astype(np.float32)
    return truth, truth + rng.poisson(1, truth.shape).astype(np.float32)


def test_identical_cells_are_at_distance_zero(pair):
    truth, _ = pair
    shuffled = np.random.default_rng(1).permutation(truth)
    sites = np.ones(truth.shape, dtype=bool)
    assert metrics.energy_distance(truth, truth[::-1], sites) == 0
    assert metrics.sliced_wasserstein(truth, shuffled) == pytest.approx(0, abs=1e-6)
    assert metrics.mmd(truth, truth) == 0
    assert metrics.mmd(truth, shuffled) == pytest.approx(0, abs=1e-12)


def test_energy_distance_agrees_with_scipy_on_plain_samples(pair):
    truth, imputed = pair
    sites = np.random.default_rng(2).random(truth.shape) < 0.5
    assert metrics.energy_distance(truth, imputed, sites) == pytest.approx(
        stats.energy_distance(truth[sites], imputed[sites])
    )


def test_energy_distance_of_shifted_gaussians():
    """Its square is 2 E|X - Y| - E|X - X'| - E|Y - Y'|, folded normals all three."""
    rng = np.random.default_rng(3)
    shift, shape = 1.5, (400, 500)
    sites = np.ones(shape, dtype=bool)
    folded = lambda mean: 2 * stats.norm.pdf(mean / 2**0.5) * 2**0.5 + mean * (1 - 2 * stats.norm.cdf(-mean / 2**0.5))
    expected = np.sqrt(2 * folded(shift) - 2 * folded(0))
    found = metrics.energy_distance(rng.normal(size=shape), rng.normal(shift, size=shape), sites)
    assert found == pytest.approx(expected, abs=0.01)


def test_sliced_wasserstein_agrees_with_pot(pair, ot):
    truth, imputed = (m.astype(np.float64) for m in pair)
    directions = np.random.default_rng(7).standard_normal((300, truth.shape[1]))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    expected = ot.sliced_wasserstein_distance(truth, imputed, projections=directions.T, p=2)
    assert metrics.sliced_wasserstein(truth, imputed, n_projections=300, seed=7) == pytest.approx(expected)


def test_sliced_wasserstein_of_a_shift(pair):
    """A shift by v moves each projection by its part of v: |v|^2 / dimensions on average."""
    truth, _ = pair
    shift = np.arange(12.0)
    expected = np.linalg.norm(shift) / np.sqrt(12)
    found = metrics.sliced_wasserstein(truth, truth + shift, n_projections=4000)
    assert found == pytest.approx(expected, rel=4 * 0.5 * np.sqrt(2 / 4000))


def test_sliced_wasserstein_is_seeded(pair):
    values = [metrics.sliced_wasserstein(*pair, n_projections=20, seed=s) for s in (0, 0, 1)]
    assert values[0] == values[1] != values[2]


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


def test_scfid_agrees_with_pot_and_the_closed_form(ot):
    rng = np.random.default_rng(5)
    a = rng.normal(size=(500, 6)) @ rng.normal(size=(6, 6))
    b = rng.normal(size=(400, 6)) @ rng.normal(size=(6, 6)) + 1
    assert metrics.scfid(a, b) == pytest.approx(
        ot.gaussian.empirical_bures_wasserstein_distance(a, b, reg=0) ** 2, rel=0.02
    )
    assert metrics.scfid(a, a) == pytest.approx(0, abs=1e-8)
    assert metrics.scfid(a, a + 2) == pytest.approx(6 * 4)
    # Independent dimensions: squared differences of the standard deviations.
    x = rng.normal(size=(200_000, 2))
    assert metrics.scfid(x, x * [2, 3]) == pytest.approx(1 + 4, rel=0.02)
    degenerate = np.c_[a[:, 0], a[:, 0]]
    assert metrics.scfid(degenerate, degenerate) == pytest.approx(0, abs=1e-6)
    with pytest.raises(ValueError, match="same dimensions"):
        metrics.scfid(a, b[:, :3])
