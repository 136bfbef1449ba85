import numpy as np
import pytest

from sccountsdiff.benchmark import metrics


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
    assert metrics.sliced_wasserstein(truth, np.random.default_rng(1).permutation(truth)) == pytest.approx(0, abs=1e-6)


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
