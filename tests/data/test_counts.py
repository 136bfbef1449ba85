"""Every entry is checked in every storage format, and refusals say what is wrong and where."""

from __future__ import annotations

import re

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from sccountsdiff.data import counts as module
from sccountsdiff.data.counts import check_counts, find_count_layers, get_matrix, looks_like_counts


def counts(n_cells=11, n_genes=7, dtype="float32", seed=0):
    return np.random.default_rng(seed).poisson(0.6, (n_cells, n_genes)).astype(dtype)


def names(prefix, n):
    return pd.Index([f"{prefix}{i}" for i in range(n)])


def non_canonical_csr(entries, shape):
    """Build a CSR matrix of one row from (column, value) pairs in the given order, duplicates included."""
    columns, values = map(np.asarray, zip(*entries, strict=True))
    return sp.csr_matrix((values, columns, np.array([0, len(columns)])), shape=shape)


class TestCheckCounts:
    @pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "float32", "float64", "bool"])
    def test_accepts_counts_of_any_type_and_format(self, store, fmt, dtype, small_blocks):
        check_counts(store(counts(dtype=dtype), fmt), name="adata.X")

    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_accepts_missing_entries(self, store, fmt, dtype, small_blocks):
        dense = counts(dtype=dtype)
        dense[[0, 5, 10], [0, 3, 6]] = np.nan
        check_counts(store(dense, fmt), name="adata.X")

    @pytest.mark.parametrize(
        ("value", "problem"),
        [(np.inf, "infinite"), (-np.inf, "infinite"), (-1, "negative"), (2.5, "non-integer"), (2.0**54, "too large")],
    )
    @pytest.mark.parametrize("position", [(0, 0), (3, 6), (4, 0), (10, 6)])
    def test_finds_one_wrong_entry_anywhere(self, store, fmt, value, problem, position, small_blocks):
        dense = counts(dtype="float64")
        dense[1, 1] = np.nan
        dense[position] = value
        with pytest.raises(ValueError, match=rf"^adata\.X holds .*{problem} entr") as error:
            check_counts(store(dense, fmt), name="adata.X", obs_names=names("cell-", 11), var_names=names("gene-", 7))
        i, j = position
        place = f"the first is {np.float64(value)} in cell 'cell-{i}' (row {i}), gene 'gene-{j}' (column {j})."
        assert place in str(error.value)

    @pytest.mark.parametrize("dtype", ["int32", "int64"])
    def test_finds_a_negative_integer_in_the_last_entry(self, store, fmt, dtype, small_blocks):
        dense = counts(dtype=dtype)
        dense[-1, -1] = -3
        with pytest.raises(ValueError, match="holds 1 negative entry; the first is -3 in cell 10, gene 6"):
            check_counts(store(dense, fmt), name="adata.X")

    @pytest.mark.parametrize("dtype", ["int64", "uint64", "float64"])
    def test_the_largest_count_is_two_to_the_53(self, dtype):
        matrix = np.array([[0, 2**53]], dtype=dtype)
        check_counts(matrix, name="adata.X")
        matrix[0, 1] += 2
        with pytest.raises(ValueError, match=r"too large entry; the first is 9007199254740994.* at most 2\*\*53"):
            check_counts(matrix, name="adata.X")

    def test_other_cells_than_those_asked_for_are_not_looked_at(self, store, fmt, small_blocks):
        dense = counts()
        dense[8, 2] = 0.5
        check_counts(store(dense, fmt), name="adata.X", rows=np.array([0, 3, 4, 5, 6, 9]))
        with pytest.raises(
            ValueError, match=r"holds 1 non-integer entry; the first is 0.5 in cell 'c8' \(row 8\), gene 2"
        ):
            check_counts(store(dense, fmt), name="adata.X", rows=np.array([0, 3, 4, 5, 6, 8]), obs_names=names("c", 11))
        with pytest.raises(ValueError, match="holds at least 1 non-integer entry; the first is 0.5 in cell 8, gene 2"):
            check_counts(store(dense, fmt), name="adata.X", rows=np.array([8, 9, 10]))

    def test_half_precision(self):
        matrix = np.array([[0, 65504]], dtype="float16")
        check_counts(matrix, name="adata.X")
        matrix[0, 1] = np.inf
        with pytest.raises(ValueError, match="infinite"):
            check_counts(matrix, name="adata.X")

    @pytest.mark.parametrize("fmt", ["dense", "csr_matrix", "csc_matrix"])
    def test_first_means_first_cell_then_first_gene(self, store, fmt):
        dense = counts()
        dense[[7, 2, 2, 9], [0, 5, 3, 1]] = 0.25
        with pytest.raises(ValueError, match=r"holds 4 non-integer entries; the first is 0.25 in cell 2, gene 3"):
            check_counts(store(dense, fmt), name="adata.X")

    @pytest.mark.parametrize("fmt", ["dense", "csr_matrix", "csc_matrix"])
    def test_number_is_a_lower_bound_unless_the_last_block_is_the_wrong_one(self, store, fmt, small_blocks):
        dense = counts()
        dense[[1, 10], [1, 6]] = 0.5
        with pytest.raises(ValueError, match="holds at least 1 non-integer entry"):
            check_counts(store(dense, fmt), name="adata.X")
        dense[1, 1] = 0
        with pytest.raises(ValueError, match="holds 1 non-integer entry"):
            check_counts(store(dense, fmt), name="adata.X")

    def test_infinite_is_reported_before_negative_before_non_integer(self):
        dense = np.array([[0.5, -1.0, np.inf]])
        for problem, value in [("infinite", "inf in cell 0, gene 2"), ("negative", "-1.0"), ("non-integer", "0.5")]:
            with pytest.raises(ValueError, match=f"holds 1 {problem} entry; the first is {value}"):
                check_counts(dense, name="adata.X")
            dense[dense == {"infinite": np.inf, "negative": -1}.get(problem)] = 0

    def test_a_wrong_value_stored_twice_counts_as_their_sum(self):
        check_counts(non_canonical_csr([(1, 0.5), (0, 1.0), (1, 0.5)], (1, 2)), name="adata.X")
        with pytest.raises(ValueError, match=r"the first is 1.5 in cell 0, gene 1"):
            check_counts(non_canonical_csr([(1, 0.5), (0, 1.0), (1, 1.0)], (1, 2)), name="adata.X")

    def test_recognises_log_normalised_values(self):
        with pytest.raises(ValueError, match="This looks log-normalised"):
            check_counts(np.log1p(counts()), name="adata.X")
        with pytest.raises(ValueError, match="non-integer") as error:
            check_counts(1e4 * counts() / 7, name="adata.X")
        assert "log-normalised" not in str(error.value)

    def test_recognises_scaled_values(self):
        with pytest.raises(ValueError, match=r"negative.*This looks scaled or centred"):
            check_counts(counts() - 0.3, name="adata.X")

    def test_recognises_rounding_error(self):
        with pytest.raises(ValueError, match=r"within 0.001 of a whole number.*numpy.rint"):
            check_counts(counts(dtype="float64") + 1e-6, name="adata.X")

    def test_points_to_the_layers_that_are_counts(self):
        hints = ["adata.layers['counts'] looks like counts: pass it", "adata.raw.X looks like counts: use it"]
        with pytest.raises(ValueError, match=re.escape(f"{hints[0]}. {hints[1]}.")):
            check_counts(np.log1p(counts()), name="adata.X", hints=lambda: hints)

    def test_hints_are_not_computed_for_valid_counts(self):
        def fail():
            raise AssertionError

        check_counts(counts(), name="adata.X", hints=fail)

    @pytest.mark.parametrize(("shape", "what"), [((0, 3), "cells"), ((3, 0), "genes")])
    @pytest.mark.parametrize("make", [np.zeros, sp.csr_matrix, sp.csc_matrix])
    def test_refuses_empty_matrices(self, shape, what, make):
        with pytest.raises(ValueError, match=rf"adata\.X has no {what}: its shape is \({shape[0]}, {shape[1]}\)"):
            check_counts(make(shape), name="adata.X")

    @pytest.mark.parametrize(
        ("matrix", "message"),
        [
            (np.array([["a", 1]], dtype=object), "adata.X has dtype object"),
            (np.ones((2, 2), dtype=complex), "adata.X has dtype complex128"),
            (np.ones(3), r"adata.X must be a matrix of cells x genes, found shape \(3,\)"),
            (pd.DataFrame({"a": [1]}), "adata.X is a pandas.*DataFrame: use a NumPy array"),
            (np.ma.masked_equal(np.ones((2, 2)), 1), "adata.X is a masked array: mark missing entries as NaN"),
        ],
    )
    def test_refuses_what_is_not_a_matrix_of_numbers(self, matrix, message):
        with pytest.raises(ValueError, match=message):
            check_counts(matrix, name="adata.X")

    def test_does_not_change_the_input(self, small_blocks):
        matrix = sp.csr_matrix(counts())
        matrix.indices[:3] = matrix.indices[:3][::-1]
        data, indices = matrix.data.copy(), matrix.indices.copy()
        check_counts(matrix, name="adata.X")
        np.testing.assert_array_equal(matrix.data, data)
        np.testing.assert_array_equal(matrix.indices, indices)

    @pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix, sp.csc_matrix])
    def test_views_of_anndata(self, make):
        dense = counts()
        dense[8, 2] = 0.5
        adata = ad.AnnData(make(dense))
        check_counts(adata[:8].X, name="adata.X")
        with pytest.raises(ValueError, match="in cell 1, gene 2"):
            check_counts(adata[7:].X, name="adata.X")


class TestLooksLikeCounts:
    def test_tells_counts_from_other_values(self, store, fmt):
        dense = counts()
        missing = dense.copy()
        missing[0, 0] = np.nan
        assert looks_like_counts(store(dense, fmt))
        assert looks_like_counts(store(missing, fmt))
        assert not looks_like_counts(store(np.log1p(dense), fmt))
        assert not looks_like_counts(store(-dense, fmt))
        assert not looks_like_counts(store(0 * dense, fmt))
        assert not looks_like_counts(store(dense > 0, fmt))

    @pytest.mark.parametrize("matrix", [np.ones((0, 2)), np.ones((2, 0)), np.ones(3), pd.DataFrame([[1]]), "counts"])
    def test_says_no_to_what_it_cannot_read(self, matrix):
        assert not looks_like_counts(matrix)

    @pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix, sp.csc_matrix])
    @pytest.mark.parametrize("shape", [(5000, 30), (30, 5000)])
    @pytest.mark.parametrize("axis", [0, 1])
    def test_sample_spans_the_matrix(self, make, shape, axis):
        dense = np.zeros(shape, dtype="float32")
        np.moveaxis(dense, axis, 0)[-1] = 0.5
        assert not looks_like_counts(make(dense))
        np.moveaxis(dense, axis, 0)[-1] = 1
        assert looks_like_counts(make(dense))

    @pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix])
    def test_reads_at_most_a_thousand_rows(self, make, monkeypatch):
        read, n_rows = module.read_block, []

        def spy(*args):
            block = read(*args)
            n_rows.append(block.shape[0])
            return block

        monkeypatch.setattr(module, "read_block", spy)
        assert looks_like_counts(make(np.ones((20_000, 3))))
        assert sum(n_rows) == 1000


class TestFindCountLayers:
    @pytest.fixture
    def adata(self):
        raw = ad.AnnData(counts(), var=pd.DataFrame(index=names("g", 7)))
        adata = raw[:, :4].copy()
        adata.raw = raw
        adata.layers["umi"] = sp.csr_matrix(adata.X)
        adata.layers["log"] = np.log1p(adata.X)
        return adata

    def test_lists_layers_x_and_raw_with_advice_for_the_set_up(self, adata):
        assert find_count_layers(adata, "adata.layers['log']", "setup") == [
            "adata.layers['umi'] looks like counts: pass layer='umi' to setup",
            "adata.X looks like counts: pass layer='X' to setup",
            "adata.raw.X looks like counts: set adata.layers['counts'] = adata.raw[:, adata.var_names].X "
            "and pass layer='counts' to setup",
        ]

    def test_advice_for_the_method_that_was_called(self, adata):
        assert find_count_layers(adata, "adata.layers['log']", "")[:2] == [
            "adata.layers['umi'] looks like counts: pass layer='umi'",
            "adata.X looks like counts: pass layer='X'",
        ]

    def test_advice_for_what_a_model_reads_can_be_run(self, adata):
        target = "adata.layers['log']"
        found = find_count_layers(adata, target)
        assert [hint.split(" ")[0] for hint in found] == ["adata.layers['umi']", "adata.X", "adata.raw.X"]
        for hint in found:
            assert f"the model reads {target}, so set " in hint
            exec(hint.split("so set ")[1])
            assert looks_like_counts(adata.layers["log"])

    def test_what_is_read_in_vain_is_left_out(self, adata):
        for setup in (None, "setup"):
            assert not any("adata.X looks" in hint for hint in find_count_layers(adata, "adata.X", setup))

    def test_advice_for_raw_works(self):
        raw = ad.AnnData(counts(), var=pd.DataFrame(index=names("g", 7)))
        adata = raw[:, [5, 1, 2]].copy()
        adata.raw = raw
        adata.X = np.log1p(adata.X)
        adata.layers["counts"] = adata.X.copy()
        (hint,) = find_count_layers(adata, "adata.X", "setup")
        assert "adata.layers['raw_counts'] = adata.raw[:, adata.var_names].X" in hint  # keeps the layer that is there
        np.testing.assert_array_equal(adata.raw[:, adata.var_names].X, raw.X[:, [5, 1, 2]])

    def test_raw_with_other_genes(self):
        adata = ad.AnnData(np.log1p(counts()), var=pd.DataFrame(index=names("g", 7)))
        adata.raw = ad.AnnData(counts(), var=pd.DataFrame(index=names("h", 7)))
        for setup in (None, "setup"):
            (hint,) = find_count_layers(adata, "adata.X", setup)
            assert hint == "adata.raw.X looks like counts: use adata.raw.to_adata() in place of adata"

    def test_nothing_to_find(self):
        assert find_count_layers(ad.AnnData(obs=pd.DataFrame(index=["a"])), "adata.X") == []
        assert find_count_layers(ad.AnnData(np.log1p(counts())), "adata.layers['counts']") == []


class TestGetMatrix:
    def test_returns_the_matrix_itself(self):
        adata = ad.AnnData(counts())
        adata.layers["counts"] = sp.csr_matrix(counts(seed=1))
        assert get_matrix(adata, None) is adata.X
        assert get_matrix(adata, "counts") is adata.layers["counts"]

    def test_names_the_layers_there_are(self):
        adata = ad.AnnData(counts())
        with pytest.raises(KeyError, match=r"layer='counts' is not in .*, which has none\. adata\.X looks like counts"):
            get_matrix(adata, "counts")
        adata.layers["counts"] = adata.layers["log"] = adata.X
        with pytest.raises(KeyError, match=r"which has 'counts', 'log'\. Did you mean 'counts' for 'count'\?"):
            get_matrix(adata, "count")
        with pytest.raises(KeyError, match="mask_layer='count' is not in adata.layers"):
            get_matrix(adata, "count", "mask_layer")
        with pytest.raises(KeyError, match="'count', which the model reads, is not in adata.layers"):
            get_matrix(adata, "count", None)

    def test_refuses_an_empty_x(self):
        adata = ad.AnnData(layers={"counts": counts()})
        with pytest.raises(ValueError, match=r"adata\.X is None: pass layer=\.\.\., adata\.layers has 'counts'"):
            get_matrix(adata, None)
        with pytest.raises(ValueError, match=r"adata\.X is None: the model reads the counts there"):
            get_matrix(adata, None, None)
