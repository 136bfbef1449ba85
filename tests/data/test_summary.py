"""Means and expressed genes agree with their definition, in every format and blocked in any way."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sccountsdiff.data.statistics import expressed_genes, gene_means

from sccountsdiff.data import reading

FORMATS = [np.asarray, sp.csr_matrix, sp.csc_matrix, sp.csr_array]


@pytest.fixture(params=[20, 10_000_000], autouse=True)
def block_entries(request, monkeypatch):
    """Many small blocks, or a single one."""
    monkeypatch.setattr(reading, "BLOCK_ENTRIES", request.param)


@pytest.fixture(params=range(3))
def table(request):
    """Counts with NaN, a mask, and labels."""
    rng = np.random.default_rng(request.param)
    counts = rng.poisson(0.8, (23, 7)).astype(np.float64)
    counts[rng.random(counts.shape) < 0.1] = np.nan
    return counts, rng.random(counts.shape) < 0.8, rng.integers(3, size=23)


@pytest.mark.parametrize("make", FORMATS)
@pytest.mark.parametrize("make_mask", [None, *FORMATS])
def test_means_are_those_of_what_is_there(table, make, make_mask):
    counts, mask, _ = table
    there = ~np.isnan(counts) & (mask if make_mask else True)
    expected = [max(counts[there[:, j], j].sum(), 0.5) / there[:, j].sum() for j in range(7)]
    np.testing.assert_allclose(gene_means(make(counts), make_mask(mask) if make_mask else None), expected)


@pytest.mark.parametrize("make", FORMATS)
@pytest.mark.parametrize("dtype", ["int32", "bool", "float32", "uint8"])
def test_means_of_complete_counts(table, make, dtype):
    counts = np.nan_to_num(table[0]).astype(dtype)
    expected = np.maximum(counts.sum(0, dtype=float), 0.5) / 23
    np.testing.assert_allclose(gene_means(make(counts)), expected)


def test_a_gene_that_was_never_seen_counts_as_half_a_molecule():
    np.testing.assert_allclose(gene_means(np.array([[0, 4], [0, 2.0]])), [0.25, 3])
    np.testing.assert_allclose(gene_means(np.array([[np.nan, 4], [np.nan, 2.0]])), [0.5, 3])


def test_sums_are_exact_where_single_precision_is_not():
    counts = np.full((3, 1), 2**24 + 1, dtype=np.int64)
    assert gene_means(counts)[0] == gene_means(sp.csr_matrix(counts))[0] == 2**24 + 1
    single = np.array([[2**24], [1], [1], [1], [1]], dtype=np.float32)
    assert gene_means(single)[0] == gene_means(sp.csr_matrix(single))[0] == (2**24 + 4) / 5
    small = sp.csr_matrix(np.full((300, 1), 255, dtype=np.uint8))
    assert gene_means(small)[0] == 255


@pytest.mark.parametrize("make", FORMATS)
@pytest.mark.parametrize("make_mask", [None, *FORMATS])
def test_expressed_genes_have_a_count_in_any_cell_of_the_label(table, make, make_mask):
    counts, mask, labels = table
    seen = (counts > 0) & (mask if make_mask else True)
    expected = np.array([seen[labels == k].any(0) for k in range(4)])
    result = expressed_genes(make(counts), labels, 4, make_mask(mask) if make_mask else None)
    np.testing.assert_array_equal(result, expected)
    assert not result[3].any()  # a label without cells


@pytest.mark.parametrize("make", FORMATS)
def test_missing_zeros_do_not_count_towards_the_means(table, make):
    counts, mask, labels = table
    expressed = expressed_genes(counts, labels, 3, mask)
    there = ~np.isnan(counts) & mask & ~((counts == 0) & expressed[labels])
    expected = [max(counts[there[:, j], j].sum(), 0.5) / max(there[:, j].sum(), 1) for j in range(7)]
    np.testing.assert_allclose(gene_means(make(counts), mask, labels, expressed), expected)
