"""Molecules are split, and none is lost."""

import numpy as np
import pytest
from scipy import sparse

from sccountsdiff.benchmark.missingness import (
    split_molecules,
)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, sparse.csc_matrix, sparse.csr_array])
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_molecules_add_up(kind, dtype, counts):
    matrix = kind(counts.astype(dtype))
    seen, held_out = split_molecules(matrix, share=0.9, seed=2)
    assert seen.dtype == held_out.dtype == dtype
    dense = [m.toarray() if sparse.issparse(m) else m for m in (seen, held_out)]
    np.testing.assert_array_equal(sum(dense), counts)
    assert min(d.min() for d in dense) >= 0
    np.testing.assert_array_equal(matrix.toarray() if sparse.issparse(matrix) else matrix, counts)


def test_molecule_moments():
    """Poisson counts split into independent Poisson counts."""
    counts = np.random.default_rng(0).poisson(5, 200_000).reshape(-1, 10)
    seen, held_out = split_molecules(counts, share=0.8)
    for part, mean in ((seen, 4), (held_out, 1)):
        assert abs(part.mean() - mean) < 4 * np.sqrt(mean / counts.size)
        assert abs(part.var() - mean) < 4 * np.sqrt((mean + 2 * mean**2) / counts.size)
    assert abs(np.corrcoef(seen.ravel(), held_out.ravel())[0, 1]) < 4 / np.sqrt(counts.size)
