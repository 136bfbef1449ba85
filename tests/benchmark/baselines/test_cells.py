"""Cells are read without loss, and what is hidden is never read."""

import tracemalloc

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from scipy import sparse

from sccountsdiff.benchmark.baselines import Cells, Zero
from sccountsdiff.benchmark.baselines.cells import boolean_matrix, read_counts


def test_large_integers_survive():
    counts = np.array([[2**53 - 1, 5], [2**40 + 1, 3]])
    cells = AnnData(counts)
    answer = Zero().fit(cells).impute(cells, np.array([[False, True], [False, False]]))
    assert answer[0, 0] == 2**53 - 1 and answer[1, 0] == 2**40 + 1


def test_means_are_over_what_is_observed():
    rng = np.random.default_rng(5)
    counts, observed = rng.poisson(3.0, (80, 5)).astype(np.float32), rng.random((80, 5)) < 0.6
    observed[:, 2] = False
    means = Cells(np.where(observed, counts, 0), observed, pd.DataFrame(index=range(80))).gene_means()
    expected = np.ma.masked_array(counts, ~observed).mean(axis=0).filled(0)
    assert means[2] == 0
    np.testing.assert_allclose(means, expected, rtol=1e-6)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_hidden_entries_are_read_as_zero_whatever_they_are(form):
    counts, hidden = np.array([[3.0, np.nan], [-1.0, 5.0]]), np.array([[False, True], [True, False]])
    np.testing.assert_array_equal(read_counts(AnnData(form(counts)), None, "test", hidden), [[3, 0], [0, 5]])
    for other, message in ((hidden & ~hidden, "1 NaN or infinite"), (np.isnan(counts), "negative entries")):
        with pytest.raises(ValueError, match=message):
            read_counts(AnnData(form(counts)), None, "test", other)


def test_sparse_counts_are_made_dense_once():
    adata = AnnData(sparse.random_array((4000, 200), density=0.1, format="csr", dtype=np.float32, rng=0))
    tracemalloc.start()
    try:
        counts = read_counts(adata, None, "test")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1.5 * counts.nbytes


def test_reading_makes_a_copy():
    adata = AnnData(np.ones((2, 2), dtype=np.float32))
    read_counts(adata, None, "test")[:] = 7
    assert (adata.X == 1).all()


def test_rows_of_cells_are_cells():
    counts = np.arange(6.0).reshape(3, 2)
    cells = Cells(counts, counts > 1, pd.DataFrame({"type": list("abc")}))[[2, 0]]
    assert (
        len(cells) == 2
        and cells.counts.tolist() == [[4, 5], [0, 1]]
        and cells.covariates["type"].tolist() == ["c", "a"]
    )


def test_only_boolean_matrices_of_the_right_shape_are_masks():
    mask = np.array([[True, False]])
    np.testing.assert_array_equal(boolean_matrix(sparse.csr_matrix(mask), (1, 2), "sites"), mask)
    with pytest.raises(ValueError, match="sites must be a boolean matrix, found dtype int"):
        boolean_matrix(mask.astype(int), (1, 2), "sites")
    with pytest.raises(ValueError, match=r"sites must have the shape of the cells, \(2, 1\)"):
        boolean_matrix(mask, (2, 1), "sites")
