"""What is absent, and masks that can say so."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch

from sccountsdiff.data.missing import check_mask, check_observed, is_missing


def counts(n_cells=11, n_genes=7, dtype="float32", seed=0):
    return np.random.default_rng(seed).poisson(0.6, (n_cells, n_genes)).astype(dtype)


def names(prefix, n):
    return pd.Index([f"{prefix}{i}" for i in range(n)])


def non_canonical_csr(entries, shape):
    """Build a CSR matrix of one row from (column, value) pairs in the given order, duplicates included."""
    columns, values = map(np.asarray, zip(*entries, strict=True))
    return sp.csr_matrix((values, columns, np.array([0, len(columns)])), shape=shape)


class TestIsAbsent:
    @pytest.fixture(params=range(3))
    def parts(self, request):
        rng = np.random.default_rng(request.param)
        values = rng.poisson(0.8, (9, 6)).astype(np.float32)
        values[rng.random(values.shape) < 0.2] = np.nan
        return values, rng.random(values.shape) < 0.7, rng.random(values.shape) < 0.5

    @pytest.mark.parametrize("make", [np.asarray, torch.from_numpy])
    @pytest.mark.parametrize("with_mask", [False, True])
    @pytest.mark.parametrize("with_expressed", [False, True])
    def test_each_reason_is_enough(self, parts, make, with_mask, with_expressed):
        values, observed, expressed = parts
        expected = np.isnan(values)
        if with_mask:
            expected |= ~observed
        if with_expressed:
            expected |= (values == 0) & expressed
        for kind in (bool, np.float32):  # a mask is read as either
            result = is_missing(
                make(values),
                make(observed.astype(kind)) if with_mask else None,
                make(expressed) if with_expressed else None,
            )
            np.testing.assert_array_equal(np.asarray(result), expected)

    def test_nothing_is_changed(self, parts):
        before = [part.copy() for part in parts]
        is_missing(*parts)
        for part, old in zip(parts, before, strict=True):
            np.testing.assert_array_equal(part, old)


class TestCheckMask:
    @pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "float32"])
    def test_accepts_booleans_and_zeros_and_ones(self, store, fmt, dtype, small_blocks):
        check_mask(store((counts() > 0).astype(dtype), fmt), (11, 7), name="mask")

    @pytest.mark.parametrize("value", [2, -1, 0.5, np.nan])
    @pytest.mark.parametrize("position", [(0, 0), (10, 6)])
    def test_names_the_first_wrong_value(self, store, fmt, value, position, small_blocks):
        mask = (counts() > 0).astype("float64")
        mask[position] = value
        message = f"^mask holds {np.float64(value)} in cell {position[0]}, gene {position[1]}: it must be boolean"
        with pytest.raises(ValueError, match=message):
            check_mask(store(mask, fmt), (11, 7), name="mask")

    @pytest.mark.parametrize("shape", [(7, 11), (11, 1), (11,), (11, 7, 1)])
    def test_names_both_shapes(self, shape):
        with pytest.raises(ValueError, match=re.escape(f"mask has shape {shape}, but the counts have shape (11, 7)")):
            check_mask(np.ones(shape, dtype=bool), (11, 7), name="mask")

    def test_names_both_shapes_of_sparse_and_backed_masks(self, store, fmt):
        with pytest.raises(ValueError, match=r"mask has shape \(11, 7\), but the counts have shape \(11, 8\)"):
            check_mask(store(counts() > 0, fmt), (11, 8), name="mask")

    def test_other_cells_than_those_asked_for_are_not_looked_at(self, store, fmt, small_blocks):
        mask = (counts() > 0).astype("float64")
        mask[8, 2] = 2
        check_mask(store(mask, fmt), (11, 7), name="mask", rows=np.array([0, 3, 9]))
        with pytest.raises(ValueError, match="mask holds 2.0 in cell 8, gene 2"):
            check_mask(store(mask, fmt), (11, 7), name="mask", rows=np.array([0, 3, 8]))

    def test_refuses_other_types(self):
        with pytest.raises(ValueError, match=r"mask has dtype <U4: it must be boolean \(True = observed\)"):
            check_mask(np.full((2, 2), "True"), (2, 2), name="mask")
        with pytest.raises(ValueError, match=r"sites has dtype <U4: it must be boolean \(True = fill in\)"):
            check_mask(np.full((2, 2), "True"), (2, 2), name="sites", meaning="fill in")
        with pytest.raises(ValueError, match=r"mask is a builtins.list"):
            check_mask([[True]], (1, 1), name="mask")


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
