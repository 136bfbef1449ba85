import numpy as np
import pytest
from scipy import sparse

from sccountsdiff.benchmark.matrices import are_counts, log_normalised
from sccountsdiff.data.reading import dense

KINDS = [np.asarray, sparse.csr_matrix, sparse.csc_array]


@pytest.fixture(scope="module")
def counts():
    return np.random.default_rng(0).poisson(0.5, (7, 5))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wrong", [-1, 0.5, np.nan, np.inf])
def test_one_wrong_value_is_enough(kind, wrong, counts):
    assert are_counts(kind(counts)) and are_counts(kind(counts.astype(np.float32)))
    changed = counts.astype(float)
    changed[3, 2] = wrong
    assert not are_counts(kind(changed))


@pytest.mark.parametrize("kind", KINDS)
def test_log_normalisation_takes_the_depth_away(kind, counts):
    counts = counts.copy()
    counts[0] = 0
    found = dense(log_normalised(kind(counts), np.float64))
    np.testing.assert_allclose(np.expm1(found).sum(axis=1), np.where(counts.sum(axis=1) > 0, 1e4, 0))
    np.testing.assert_allclose(dense(log_normalised(kind(3 * counts), np.float64)), found)
