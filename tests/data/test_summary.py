"""One pass over the counts agrees with its definition, in every format and blocked in any way."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from sccountsdiff.data import reading, summary
from sccountsdiff.data.summary import N_SAMPLED_LINES, sample_checksum, summarise_counts

FORMATS = [np.asarray, sp.csr_matrix, sp.csc_matrix, sp.csr_array]


def some_counts(n_cells=11, n_genes=7, dtype="float32", seed=0):
    return np.random.default_rng(seed).poisson(0.6, (n_cells, n_genes)).astype(dtype)


def gene_means(counts, mask=None):
    return summarise_counts(counts, mask).gene_means()


def non_canonical_csr(entries, shape):
    """Build a CSR matrix of one row from (column, value) pairs in the given order, duplicates included."""
    columns, values = map(np.asarray, zip(*entries, strict=True))
    return sp.csr_matrix((values, columns, np.array([0, len(columns)])), shape=shape)


@pytest.fixture(params=[20, 10_000_000])
def block_entries(request, monkeypatch):
    """Many small blocks, or a single one."""
    monkeypatch.setattr(reading, "BLOCK_ENTRIES", request.param)


@pytest.fixture(params=range(3))
def table(request):
    """Counts with NaN, a mask, and labels; something is observed of every cell and gene."""
    rng = np.random.default_rng(request.param)
    counts = rng.poisson(0.8, (23, 7)).astype(np.float64)
    counts[rng.random(counts.shape) < 0.1] = np.nan
    return counts, rng.random(counts.shape) < 0.8, rng.integers(3, size=23)


@pytest.mark.usefixtures("block_entries")
class TestMeans:
    @pytest.mark.parametrize("make", FORMATS)
    @pytest.mark.parametrize("make_mask", [None, *FORMATS])
    def test_are_those_of_what_is_observed(self, table, make, make_mask):
        counts, mask, _ = table
        observed = ~np.isnan(counts) & (mask if make_mask else True)
        expected = [max(counts[observed[:, j], j].sum(), 0.5) / observed[:, j].sum() for j in range(7)]
        found = summarise_counts(make(counts), make_mask(mask) if make_mask else None)
        np.testing.assert_allclose(found.gene_means(), expected)
        np.testing.assert_array_equal(found.largest, np.where(observed, counts, 0).max(0))
        np.testing.assert_array_equal(found.n_observed, observed.sum(0)[None])
        np.testing.assert_array_equal(found.n_positive, ((counts > 0) & observed).sum(0)[None])
        assert found.has_missing

    @pytest.mark.parametrize("make", FORMATS)
    @pytest.mark.parametrize("dtype", ["int32", "bool", "float32", "uint8"])
    def test_of_complete_counts(self, table, make, dtype):
        counts = np.nan_to_num(table[0]).astype(dtype)
        found = summarise_counts(make(counts))
        np.testing.assert_allclose(found.gene_means(), np.maximum(counts.sum(0, dtype=float), 0.5) / 23)
        assert not found.has_missing
        assert not summarise_counts(make(counts), np.ones(counts.shape, dtype=bool)).has_missing

    def test_a_gene_without_a_count_counts_as_half_a_molecule(self):
        np.testing.assert_allclose(gene_means(np.array([[0, 4], [0, 2.0]])), [0.25, 3])
        np.testing.assert_allclose(gene_means(np.array([[np.nan, 4], [0, 2.0]])), [0.5, 3])

    def test_sums_are_exact_where_single_precision_is_not(self):
        counts = np.full((3, 1), 2**24 + 1, dtype=np.int64)
        assert gene_means(counts)[0] == gene_means(sp.csr_matrix(counts))[0] == 2**24 + 1
        single = np.array([[2**24], [1], [1], [1], [1]], dtype=np.float32)
        assert gene_means(single)[0] == gene_means(sp.csr_matrix(single))[0] == (2**24 + 4) / 5
        small = sp.csr_matrix(np.full((300, 1), 255, dtype=np.uint8))
        assert gene_means(small)[0] == 255


@pytest.mark.usefixtures("block_entries")
class TestLabels:
    @pytest.mark.parametrize("make", FORMATS)
    @pytest.mark.parametrize("make_mask", [None, *FORMATS])
    def test_expressed_genes_have_a_count_in_any_cell_of_the_label(self, table, make, make_mask):
        counts, mask, labels = table
        positive = (counts > 0) & (mask if make_mask else True)
        kinds = pd.Categorical.from_codes(labels, ["a", "b", "c", "none"])
        found = summarise_counts(make(counts), make_mask(mask) if make_mask else None, labels=kinds)
        expected = np.array([positive[labels == k].any(0) for k in range(3)])
        np.testing.assert_array_equal(found.expressed(["c", "a", "b"]), expected[[2, 0, 1]])
        assert not found.expressed(["none", "unheard of"]).any(), "labels without cells"

    @pytest.mark.parametrize("make", FORMATS)
    def test_missing_zeros_do_not_count_towards_the_means(self, table, make):
        counts, mask, labels = table
        found = summarise_counts(make(counts), mask, labels=pd.Categorical.from_codes(labels, ["a", "b", "c"]))
        expressed = found.expressed(["a", "b", "c"])
        observed = ~np.isnan(counts) & mask & ~((counts == 0) & expressed[labels])
        expected = [max(counts[observed[:, j], j].sum(), 0.5) / max(observed[:, j].sum(), 1) for j in range(7)]
        np.testing.assert_allclose(found.gene_means(zeros_missing=True), expected)

    def test_do_not_matter_for_the_means_otherwise(self, table):
        counts, mask, labels = table
        kinds = pd.Categorical.from_codes(labels, ["a", "b", "c"])
        np.testing.assert_allclose(
            summarise_counts(counts, mask, labels=kinds).gene_means(), summarise_counts(counts, mask).gene_means()
        )


@pytest.mark.usefixtures("block_entries")
class TestChecks:
    """All that is wrong is found on the way."""

    @pytest.mark.parametrize("make", FORMATS)
    def test_entries_that_are_no_counts(self, make):
        counts = some_counts()
        counts[8, 3] = 0.5
        with pytest.raises(
            ValueError, match=r"^umi holds (at least )?1 non-integer entry; the first is 0\.5 in cell 8, gene 3\."
        ):
            summarise_counts(make(counts), name="umi")

    @pytest.mark.parametrize("make", FORMATS)
    def test_entries_that_are_no_mask(self, make):
        mask = np.ones((11, 7))
        mask[9, 2] = 3
        with pytest.raises(ValueError, match=r"^umi's mask holds 3\.0 in cell 9, gene 2: it must be boolean"):
            summarise_counts(some_counts(), make(mask), mask_name="umi's mask")
        with pytest.raises(ValueError, match=r"mask has shape \(11, 6\), but the counts have shape \(11, 7\)"):
            summarise_counts(some_counts(), make(mask[:, 1:]))

    def test_nothing_to_summarise(self):
        with pytest.raises(ValueError, match=r"adata\.X has no cells"):
            summarise_counts(np.ones((0, 3)))

    def test_each_entry_is_read_once(self, monkeypatch):
        rows, read = [], reading.read_block

        def noting(matrix, some, columns=None):
            rows.extend((matrix.dtype.kind, row) for row in some)
            return read(matrix, some, columns)

        monkeypatch.setattr(reading, "read_block", noting)
        monkeypatch.setattr(summary, "read_block", noting)
        summarise_counts(some_counts(), np.ones((11, 7), dtype=bool))
        assert sorted(rows) == sorted([*(("f", row) for row in range(11)), *(("b", row) for row in range(11))])


@pytest.mark.usefixtures("small_blocks")
class TestNothingObserved:
    def test_zeros_are_observed(self, store, fmt):
        dense = some_counts()
        dense[3], dense[:, 2] = 0, 0
        summarise_counts(store(dense, fmt))
        summarise_counts(store(dense, fmt), np.ones((11, 7), dtype=bool))

    def test_one_observed_entry_is_enough(self, store, fmt):
        dense = np.full((11, 7), np.nan, dtype="float32")
        dense[np.arange(11), np.arange(11) % 7] = 0
        summarise_counts(store(dense, fmt))
        dense[10, 3] = np.nan
        with pytest.raises(ValueError, match=r"for 1 of 11 cells \(10\)\. Remove them"):
            summarise_counts(store(dense, fmt))

    def test_entries_can_be_missing_by_nan_by_mask_or_by_both(self, store, fmt, mask_fmt):
        dense, mask = some_counts(), np.ones((11, 7), dtype=bool)
        dense[10, ::2], mask[10, 1::2] = np.nan, False
        dense[:6, 6], mask[5:, 6] = np.nan, False
        names = {"obs_names": [f"c{i}" for i in range(11)], "var_names": [f"g{j}" for j in range(7)]}
        message = r"^adata\.X has no observed entry.* for 1 of 11 cells \('c10'\) and 1 of 7 genes \('g6'\)\."
        with pytest.raises(ValueError, match=message):
            summarise_counts(store(dense, fmt), store(mask, mask_fmt), **names)
        with pytest.raises(ValueError, match=r"for 1 of 11 cells \('c10'\)\. Remove"):
            summarise_counts(store(dense, fmt), store(mask, mask_fmt), may_lack_genes=True, **names)
        mask[10, 1] = mask[10, 6] = True
        summarise_counts(store(np.nan_to_num(dense), fmt), store(mask, mask_fmt))

    @pytest.mark.parametrize("seed", range(10))
    def test_agrees_with_the_definition(self, seed):
        rng = np.random.default_rng(seed)
        dense = np.where(rng.random((9, 9)) < 0.6, np.nan, some_counts(9, 9, seed=seed))
        mask = rng.random((9, 9)) < 0.6
        observed = mask & ~np.isnan(dense)
        n_cells, n_genes = (~observed.any(axis=1)).sum(), (~observed.any(axis=0)).sum()
        expected = [f"{n} of 9 {what}" for n, what in [(n_cells, "cells"), (n_genes, "genes")] if n]
        message = ""
        try:
            summarise_counts(sp.csr_matrix(dense), sp.csc_matrix(mask))
        except ValueError as error:
            message = str(error)
        assert re.findall(r"\d of 9 \w+", message) == expected

    @pytest.mark.parametrize("dtype", ["int64", "float32"])
    def test_masked_out_integers_and_explicit_zeros_in_the_mask(self, dtype):
        mask = sp.csr_matrix(np.ones((11, 7)))
        mask.data[:7] = 0
        with pytest.raises(ValueError, match=r"1 of 11 cells \(0\)"):
            summarise_counts(some_counts(dtype=dtype), mask)

    def test_names_at_most_five(self):
        mask = np.ones((11, 7), dtype=bool)
        mask[2:8] = False
        with pytest.raises(ValueError, match=r"6 of 11 cells \('c2', 'c3', 'c4', 'c5', 'c6', \.\.\.\)"):
            summarise_counts(some_counts(), mask, obs_names=[f"c{i}" for i in range(11)])

    def test_missing_entries_stored_twice_count_once(self):
        matrix = non_canonical_csr([(1, np.nan), (0, 1.0), (1, np.nan)], (1, 2))
        with pytest.raises(ValueError, match=r"for 1 of 2 genes \(1\)\."):
            summarise_counts(matrix)


class TestFingerprint:
    def test_is_the_same_for_the_same_counts(self, store, fmt):
        counts = some_counts(40)
        matrix = store(counts, fmt)
        if fmt != "coo_matrix":  # which is never kept
            assert sample_checksum(matrix) == sample_checksum(matrix) == sample_checksum(store(counts, fmt))

    @pytest.mark.parametrize(
        "change",
        [np.log1p, lambda x: x * 2, lambda x: x[::-1], lambda x: x.astype("float64"), lambda x: x[:-1], lambda x: x.T],
        ids=["logarithm", "scale", "order", "type", "fewer cells", "turned"],
    )
    @pytest.mark.parametrize("make", FORMATS)
    def test_tells_changes_of_the_whole(self, make, change):
        counts = some_counts(50, 50)
        assert sample_checksum(make(change(counts))) != sample_checksum(make(counts))

    def test_reads_a_few_lines_alone(self, monkeypatch):
        rows, read = [], reading.read_block
        monkeypatch.setattr(summary, "read_block", lambda matrix, some: rows.extend(some) or read(matrix, some))
        sample_checksum(some_counts(1000, 3))
        assert len(rows) == len(set(rows)) == N_SAMPLED_LINES
        assert min(rows) == 0 and max(rows) == 999 and np.diff(rows).max() < 60
