"""What is missing, and masks that can say so."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from sccountsdiff.data.missing import check_mask, is_missing


def counts(n_cells=11, n_genes=7, dtype="float32", seed=0):
    return np.random.default_rng(seed).poisson(0.6, (n_cells, n_genes)).astype(dtype)


class TestIsMissing:
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
