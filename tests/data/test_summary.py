"""Means and expressed genes agree with their definition, in every format and blocked in any way."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

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


def names(prefix, n):
    return pd.Index([f"{prefix}{i}" for i in range(n)])


def non_canonical_csr(entries, shape):
    """Build a CSR matrix of one row from (column, value) pairs in the given order, duplicates included."""
    columns, values = map(np.asarray, zip(*entries, strict=True))
    return sp.csr_matrix((values, columns, np.array([0, len(columns)])), shape=shape)


class TestCheckObserved:
    def test_zeros_are_observed(self, store, fmt):
        dense = counts()
        dense[3], dense[:, 2] = 0, 0
        check_observed(store(dense, fmt), None, name="adata.X")
        check_observed(store(dense, fmt), np.ones((11, 7), dtype=bool), name="adata.X")

    def test_one_observed_entry_is_enough(self, store, fmt, small_blocks):
        dense = np.full((11, 7), np.nan, dtype="float32")
        dense[np.arange(11), np.arange(11) % 7] = 0
        check_observed(store(dense, fmt), None, name="adata.X")
        dense[10, 3] = np.nan
        with pytest.raises(ValueError, match=r"for 1 of 11 cells \(10\)\. Remove them"):
            check_observed(store(dense, fmt), None, name="adata.X")

    def test_entries_can_be_missing_by_nan_by_mask_or_by_both(self, store, fmt, mask_fmt, small_blocks):
        dense, mask = counts(), np.ones((11, 7), dtype=bool)
        dense[10, ::2], mask[10, 1::2] = np.nan, False
        dense[:6, 6], mask[5:, 6] = np.nan, False
        with pytest.raises(
            ValueError,
            match=r"^adata\.X has no observed entry.* for 1 of 11 cells \('c10'\) and 1 of 7 genes \('g6'\)\.",
        ):
            check_observed(
                store(dense, fmt),
                store(mask, mask_fmt),
                name="adata.X",
                obs_names=names("c", 11),
                var_names=names("g", 7),
            )
        mask[10, 1] = mask[10, 6] = True
        check_observed(store(np.nan_to_num(dense), fmt), store(mask, mask_fmt), name="adata.X")

    @pytest.mark.parametrize("seed", range(10))
    def test_agrees_with_the_definition(self, seed, small_blocks):
        rng = np.random.default_rng(seed)
        dense = np.where(rng.random((9, 9)) < 0.6, np.nan, counts(9, 9, seed=seed))
        mask = rng.random((9, 9)) < 0.6
        observed = mask & ~np.isnan(dense)
        n_cells, n_genes = (~observed.any(axis=1)).sum(), (~observed.any(axis=0)).sum()
        expected = [f"{n} of 9 {what}" for n, what in [(n_cells, "cells"), (n_genes, "genes")] if n]
        message = ""
        try:
            check_observed(sp.csr_matrix(dense), sp.csc_matrix(mask), name="adata.X")
        except ValueError as error:
            message = str(error)
        assert re.findall(r"\d of 9 \w+", message) == expected

    @pytest.mark.parametrize("dtype", ["int64", "float32"])
    def test_masked_out_integers_and_explicit_zeros_in_the_mask(self, dtype):
        mask = sp.csr_matrix(np.ones((11, 7)))
        mask.data[:7] = 0
        with pytest.raises(ValueError, match=r"1 of 11 cells \(0\)"):
            check_observed(counts(dtype=dtype), mask, name="adata.X")

    def test_names_at_most_five(self):
        mask = np.ones((11, 7), dtype=bool)
        mask[2:8] = False
        with pytest.raises(ValueError, match=r"6 of 11 cells \('c2', 'c3', 'c4', 'c5', 'c6', \.\.\.\)"):
            check_observed(counts(), mask, name="adata.X", obs_names=names("c", 11), var_names=names("g", 7))

    def test_missing_entries_stored_twice_count_once(self):
        matrix = non_canonical_csr([(1, np.nan), (0, 1.0), (1, np.nan)], (1, 2))
        with pytest.raises(ValueError, match=r"for 1 of 2 genes \(1\)\."):
            check_observed(matrix, None, name="adata.X")
