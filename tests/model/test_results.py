"""Rows that come in blocks are put together without a second copy of them."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

from sccountsdiff.model.results import Canvas


def collect(matrix, is_sparse, n_rows=7, order=None):
    canvas = Canvas(matrix.shape, matrix.dtype, is_sparse)
    for start in range(0, len(matrix), n_rows):
        canvas.add(matrix[start : start + n_rows])
    return canvas.finish(order)


@pytest.mark.parametrize("dtype", ["int32", "float32", "float64"])
@pytest.mark.parametrize("is_sparse", [True, False])
@pytest.mark.parametrize("n_rows", [1, 7, 100])
def test_the_rows_are_those_that_were_added(is_sparse, dtype, n_rows):
    rng = np.random.default_rng(0)
    density = np.linspace(0, 1, 30)[:, None]  # from empty to full, so that the first blocks say little of the rest
    for share in (density, density[::-1], 0.0, 1.0):
        matrix = (rng.integers(1, 9, (30, 5)) * (rng.random((30, 5)) < share)).astype(dtype)
        for order in (None, np.array([3, 29, 3, 0])):
            result = collect(matrix, is_sparse, n_rows, order)
            assert sp.issparse(result) == is_sparse and result.dtype == dtype
            found = result.toarray() if is_sparse else result
            np.testing.assert_array_equal(found, matrix if order is None else matrix[order])
            if is_sparse:
                assert result.nnz == np.count_nonzero(found) and result.has_canonical_format
                result.check_format(full_check=True)


@pytest.mark.parametrize("share", [0.3, 1.0])
def test_nothing_is_held_twice(share):
    rng = np.random.default_rng(0)
    matrix = (rng.random((400, 500)) + 1).astype(np.float32) * (rng.random((400, 500)) < share)
    tracemalloc.start()
    result = collect(matrix, is_sparse=True, n_rows=10)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # Two copies would be a ratio of two; a block of a fortieth and a guess that is a little too large are beside it.
    assert peak < 1.3 * (result.data.nbytes + result.indices.nbytes)
