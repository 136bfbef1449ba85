"""Every entry is checked in every storage format, and refusals say what is wrong and where."""

from __future__ import annotations

import re

import anndata as ad
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from sccountsdiff.data import reading, validation
from sccountsdiff.data.reading import iter_row_chunks
from sccountsdiff.data.validation import (
    check_counts,
    check_covariates,
    check_mask,
    check_observed,
    find_count_layers,
    get_matrix,
    looks_like_counts,
)

IN_MEMORY = {
    "dense": np.asarray,
    "fortran": np.asfortranarray,
    "csr_matrix": sp.csr_matrix,
    "csc_matrix": sp.csc_matrix,
    "csr_array": sp.csr_array,
    "csc_array": sp.csc_array,
    "coo_matrix": sp.coo_matrix,
}
BACKED = {"backed dense": np.asarray, "backed csr": sp.csr_matrix, "backed csc": sp.csc_matrix}
FORMATS = [*IN_MEMORY, *BACKED]


@pytest.fixture
def store(tmp_path):
    """Return a function that stores a dense matrix in a given format, in memory or in an h5ad file."""
    opened = []

    def _store(dense, fmt):
        if fmt in IN_MEMORY:
            return IN_MEMORY[fmt](dense)
        path = tmp_path / f"{len(opened)}.h5ad"
        ad.AnnData(BACKED[fmt](dense)).write_h5ad(path)
        opened.append(ad.read_h5ad(path, backed="r"))
        return opened[-1].X

    yield _store
    for adata in opened:
        adata.file.close()


@pytest.fixture
def small_blocks(monkeypatch):
    """Make blocks of 20 entries, so that small matrices have many."""
    monkeypatch.setattr(reading, "BLOCK_ENTRIES", 20)


def counts(n_cells=11, n_genes=7, dtype="float32", seed=0):
    return np.random.default_rng(seed).poisson(0.6, (n_cells, n_genes)).astype(dtype)


def names(prefix, n):
    return pd.Index([f"{prefix}{i}" for i in range(n)])


def as_dense(block):
    return block.toarray() if sp.issparse(block) else block


def non_canonical_csr(entries, shape):
    """Build a CSR matrix of one row from (column, value) pairs in the given order, duplicates included."""
    columns, values = map(np.asarray, zip(*entries, strict=True))
    return sp.csr_matrix((values, columns, np.array([0, len(columns)])), shape=shape)


class TestIterRowChunks:
    @pytest.mark.parametrize("fmt", FORMATS)
    @pytest.mark.parametrize("n_rows", [1, 4, 10, 11, 12, None])
    def test_chunks_concatenate_to_the_matrix(self, store, fmt, n_rows):
        dense = counts()
        starts, blocks = zip(*iter_row_chunks(store(dense, fmt), n_rows), strict=True)
        np.testing.assert_array_equal(np.concatenate([as_dense(block) for block in blocks]), dense)
        lengths = [block.shape[0] for block in blocks]
        np.testing.assert_array_equal(starts, np.cumsum([0, *lengths[:-1]]))
        assert all(length == (n_rows or 11) for length in lengths[:-1])

    @pytest.mark.parametrize("seed", range(20))
    def test_random_shapes(self, seed):
        rng = np.random.default_rng(seed)
        shape, n_rows = rng.integers(1, 40, size=2), int(rng.integers(1, 50))
        matrix = sp.random(*shape, density=rng.random(), format=rng.choice(["csr", "csc"]), random_state=seed)
        blocks = list(iter_row_chunks(matrix, n_rows))
        assert len(blocks) == -(-shape[0] // n_rows)
        np.testing.assert_array_equal(sp.vstack([block for _, block in blocks]).toarray(), matrix.toarray())

    @pytest.mark.parametrize("fmt", FORMATS)
    def test_default_blocks_are_bounded(self, store, fmt, small_blocks):
        sizes = [block.shape[0] * block.shape[1] for _, block in iter_row_chunks(store(counts(), fmt))]
        assert len(sizes) == 6
        assert max(sizes) <= 20

    def test_rows_longer_than_a_block_come_one_by_one(self, small_blocks):
        assert [start for start, _ in iter_row_chunks(np.ones((3, 50)))] == [0, 1, 2]

    @pytest.mark.parametrize("fmt", [fmt for fmt in FORMATS if "cs" in fmt or "coo" in fmt])
    def test_sparse_blocks_are_csr(self, store, fmt):
        assert {block.format for _, block in iter_row_chunks(store(counts(), fmt), 4)} == {"csr"}

    def test_unsorted_and_duplicate_entries_are_put_in_order_without_touching_the_input(self):
        matrix = non_canonical_csr([(2, 1.0), (0, 3.0), (2, 4.0)], shape=(1, 3))
        ((_, block),) = iter_row_chunks(matrix)
        np.testing.assert_array_equal(block.indices, [0, 2])
        np.testing.assert_array_equal(block.data, [3, 5])
        np.testing.assert_array_equal(matrix.indices, [2, 0, 2])
        np.testing.assert_array_equal(matrix.data, [1, 3, 4])

    def test_h5py_dataset(self, tmp_path):
        dense = counts()
        with h5py.File(tmp_path / "x.h5", "w") as file:
            dataset = file.create_dataset("x", data=dense, chunks=(3, 2), compression="gzip")
            blocks = [block for _, block in iter_row_chunks(dataset, 4)]
        np.testing.assert_array_equal(np.concatenate(blocks), dense)

    def test_no_rows_no_blocks(self):
        assert list(iter_row_chunks(np.ones((0, 3)))) == []

    def test_refuses_empty_blocks(self):
        with pytest.raises(ValueError, match="n_rows must be at least 1, found 0"):
            list(iter_row_chunks(np.ones((2, 2)), 0))


class TestCheckCounts:
    @pytest.mark.parametrize("fmt", FORMATS)
    @pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "float32", "float64", "bool"])
    def test_accepts_counts_of_any_type_and_format(self, store, fmt, dtype, small_blocks):
        check_counts(store(counts(dtype=dtype), fmt), name="adata.X")

    @pytest.mark.parametrize("fmt", FORMATS)
    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_accepts_missing_entries(self, store, fmt, dtype, small_blocks):
        dense = counts(dtype=dtype)
        dense[[0, 5, 10], [0, 3, 6]] = np.nan
        check_counts(store(dense, fmt), name="adata.X")

    @pytest.mark.parametrize("fmt", FORMATS)
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
    @pytest.mark.parametrize("fmt", FORMATS)
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

    def test_points_to_the_layers_that_are_counts_but_not_to_itself(self):
        hints = ["adata.layers['counts'] looks like counts: pass layer='counts'", "adata.X looks like counts: ..."]
        for layers_hint in (hints, lambda: hints):
            with pytest.raises(ValueError, match=re.escape(hints[0])) as error:
                check_counts(np.log1p(counts()), name="adata.X", layers_hint=layers_hint)
            assert "adata.X looks like" not in str(error.value)

    def test_hints_are_not_computed_for_valid_counts(self):
        def fail():
            raise AssertionError

        check_counts(counts(), name="adata.X", layers_hint=fail)

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
    @pytest.mark.parametrize("fmt", FORMATS)
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
        read, n_rows = validation.read_block, []

        def spy(*args):
            block = read(*args)
            n_rows.append(block.shape[0])
            return block

        monkeypatch.setattr(validation, "read_block", spy)
        assert looks_like_counts(make(np.ones((20_000, 3))))
        assert sum(n_rows) == 1000


class TestFindCountLayers:
    def test_lists_layers_x_and_raw_with_advice(self):
        raw = ad.AnnData(counts(), var=pd.DataFrame(index=names("g", 7)))
        adata = raw[:, :4].copy()
        adata.raw = raw
        adata.layers["umi"] = sp.csr_matrix(adata.X)
        adata.layers["log"] = np.log1p(adata.X)
        assert find_count_layers(adata) == [
            "adata.layers['umi'] looks like counts: pass layer='umi'",
            "adata.X looks like counts: pass layer=None",
            "adata.raw.X looks like counts: set adata.layers['counts'] = adata.raw[:, adata.var_names].X "
            "and pass layer='counts'",
        ]

    def test_advice_for_raw_works(self):
        raw = ad.AnnData(counts(), var=pd.DataFrame(index=names("g", 7)))
        adata = raw[:, [5, 1, 2]].copy()
        adata.raw = raw
        adata.X = np.log1p(adata.X)
        adata.layers["counts"] = adata.X.copy()
        (hint,) = find_count_layers(adata)
        assert "adata.layers['raw_counts'] = adata.raw[:, adata.var_names].X" in hint  # keeps the layer that is there
        np.testing.assert_array_equal(adata.raw[:, adata.var_names].X, raw.X[:, [5, 1, 2]])

    def test_raw_with_other_genes(self):
        adata = ad.AnnData(np.log1p(counts()), var=pd.DataFrame(index=names("g", 7)))
        adata.raw = ad.AnnData(counts(), var=pd.DataFrame(index=names("h", 7)))
        assert find_count_layers(adata) == ["adata.raw.X looks like counts: use adata.raw.to_adata() in place of adata"]

    def test_nothing_to_find(self):
        assert find_count_layers(ad.AnnData(obs=pd.DataFrame(index=["a"]))) == []
        assert find_count_layers(ad.AnnData(np.log1p(counts()))) == []


class TestCheckMask:
    @pytest.mark.parametrize("fmt", FORMATS)
    @pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "float32"])
    def test_accepts_booleans_and_zeros_and_ones(self, store, fmt, dtype, small_blocks):
        check_mask(store((counts() > 0).astype(dtype), fmt), (11, 7), name="mask")

    @pytest.mark.parametrize("fmt", FORMATS)
    @pytest.mark.parametrize("value", [2, -1, 0.5, np.nan])
    @pytest.mark.parametrize("position", [(0, 0), (10, 6)])
    def test_names_the_first_wrong_value(self, store, fmt, value, position, small_blocks):
        mask = (counts() > 0).astype("float64")
        mask[position] = value
        message = f"^mask holds {np.float64(value)} in cell {position[0]}, gene {position[1]}: a mask must be boolean"
        with pytest.raises(ValueError, match=message):
            check_mask(store(mask, fmt), (11, 7), name="mask")

    @pytest.mark.parametrize("shape", [(7, 11), (11, 1), (11,), (11, 7, 1)])
    def test_names_both_shapes(self, shape):
        with pytest.raises(ValueError, match=re.escape(f"mask has shape {shape}, but the counts have shape (11, 7)")):
            check_mask(np.ones(shape, dtype=bool), (11, 7), name="mask")

    def test_names_both_shapes_of_sparse_and_backed_masks(self, store):
        for fmt in FORMATS:
            with pytest.raises(ValueError, match=r"mask has shape \(11, 7\), but the counts have shape \(11, 8\)"):
                check_mask(store(counts() > 0, fmt), (11, 8), name="mask")

    def test_refuses_other_types(self):
        with pytest.raises(ValueError, match="mask has dtype <U4: a mask must be boolean"):
            check_mask(np.full((2, 2), "True"), (2, 2), name="mask")
        with pytest.raises(ValueError, match=r"mask is a builtins.list"):
            check_mask([[True]], (1, 1), name="mask")


class TestCheckObserved:
    @pytest.mark.parametrize("fmt", FORMATS)
    def test_zeros_are_observed(self, store, fmt):
        dense = counts()
        dense[3], dense[:, 2] = 0, 0
        check_observed(store(dense, fmt), None, name="adata.X")
        check_observed(store(dense, fmt), np.ones((11, 7), dtype=bool), name="adata.X")

    @pytest.mark.parametrize("fmt", FORMATS)
    def test_one_observed_entry_is_enough(self, store, fmt, small_blocks):
        dense = np.full((11, 7), np.nan, dtype="float32")
        dense[np.arange(11), np.arange(11) % 7] = 0
        check_observed(store(dense, fmt), None, name="adata.X")
        dense[10, 3] = np.nan
        with pytest.raises(ValueError, match=r"for 1 of 11 cells \(10\)\. Remove them"):
            check_observed(store(dense, fmt), None, name="adata.X")

    @pytest.mark.parametrize("fmt", FORMATS)
    @pytest.mark.parametrize("mask_fmt", FORMATS)
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


class TestCheckCovariates:
    @pytest.fixture
    def obs(self):
        return pd.DataFrame(
            {
                "cell_type": pd.Categorical(["B", "T", "B"]),
                "donor": ["d1", "d2", "d2"],
                "batch": [0, 1, 1],
                "age": [31.0, 47.0, 52.0],
                "n_umi": pd.array([3, 4, 5], dtype="Int64"),
                "treated": [True, False, True],
            }
        )

    def test_accepts_complete_columns(self, obs):
        check_covariates(obs, ["cell_type", "donor", "batch", "treated"], ["age", "n_umi", "batch", "treated"])
        check_covariates(obs, pd.Index(["cell_type"]), ("age",))
        check_covariates(obs, None, None)

    @pytest.mark.parametrize("continuous", [False, True])
    def test_names_absent_keys_what_exists_and_a_close_match(self, obs, continuous):
        keys = ["donor", "cel_type", "zzz"] if not continuous else ["age", "cel_type", "zzz"]
        argument = "continuous" if continuous else "categorical"
        with pytest.raises(
            KeyError,
            match=f"{argument}_covariate_keys: 'cel_type', 'zzz' not in adata.obs, which has 'cell_type', 'donor', .*"
            r"'treated'\. Did you mean 'cell_type' for 'cel_type'\?\"$",
        ):
            check_covariates(obs, *((None, keys) if continuous else (keys, None)))

    def test_refuses_a_string_for_a_list(self, obs):
        with pytest.raises(ValueError, match=r"categorical_covariate_keys must be a list.*pass \['donor'\]"):
            check_covariates(obs, "donor", None)

    @pytest.mark.parametrize(
        ("key", "argument"),
        [("cell_type", "categorical"), ("donor", "categorical"), ("age", "continuous"), ("n_umi", "continuous")],
    )
    def test_refuses_missing_values(self, obs, key, argument):
        obs.loc[[0, 2], key] = None
        keys = ([key], None) if argument == "categorical" else (None, [key])
        message = rf"adata\.obs\['{key}'\] \({argument}_covariate_keys\) is missing in 2 of 3 cells"
        with pytest.raises(ValueError, match=message):
            check_covariates(obs, *keys)

    @pytest.mark.parametrize("key", ["cell_type", "donor", "complex"])
    def test_continuous_must_be_numeric(self, obs, key):
        obs["complex"] = 1j
        with pytest.raises(
            ValueError, match=rf"obs\['{key}'\] \(continuous_covariate_keys\) is not numeric, its dtype"
        ):
            check_covariates(obs, None, [key])

    def test_continuous_must_be_finite(self, obs):
        obs.loc[1, "age"] = -np.inf
        with pytest.raises(ValueError, match=r"obs\['age'\] .* is infinite in 1 of 3 cells"):
            check_covariates(obs, None, ["age"])


class TestGetMatrix:
    def test_returns_the_matrix_itself(self):
        adata = ad.AnnData(counts())
        adata.layers["counts"] = sp.csr_matrix(counts(seed=1))
        assert get_matrix(adata, None) is adata.X
        assert get_matrix(adata, "counts") is adata.layers["counts"]

    def test_names_the_layers_there_are(self):
        adata = ad.AnnData(counts())
        with pytest.raises(KeyError, match=r"layer='counts' is not in adata.layers, which has none"):
            get_matrix(adata, "counts")
        adata.layers["counts"] = adata.layers["log"] = adata.X
        with pytest.raises(KeyError, match=r"which has 'counts', 'log'\. Did you mean 'counts' for 'count'\?"):
            get_matrix(adata, "count")

    def test_refuses_an_empty_x(self):
        adata = ad.AnnData(layers={"counts": counts()})
        with pytest.raises(ValueError, match=r"adata\.X is None: pass layer=\.\.\., adata\.layers has 'counts'"):
            get_matrix(adata, None)
