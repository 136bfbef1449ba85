"""Rows, genes and categories of any data, as the model wants them."""

from __future__ import annotations

import warnings

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch

from sccountsdiff.data.missing import OBSERVED_KEY
from sccountsdiff.data.source import CellTables, find_cells, make_source, match_genes, open_counts

GENES = ["a", "b", "c", "d"]
FORMATS = [np.asarray, sp.csr_matrix, sp.csc_matrix, sp.csr_array]


@pytest.fixture
def adata():
    rng = np.random.default_rng(0)
    data = ad.AnnData(
        rng.poisson(3, (9, 4)).astype(np.int64),
        obs=pd.DataFrame({"kind": list("xyxyxyxyx"), "age": np.arange(9)}, index=[f"cell{i}" for i in range(9)]),
        var=pd.DataFrame(index=GENES),
    )
    data.layers["seen"] = rng.random((9, 4)) < 0.7
    return data


def source_of(adata, layer=None, mask_layer=None, **kwargs):
    return make_source(find_cells(adata), open_counts(adata, layer, mask_layer), GENES, **kwargs)


class TestSource:
    @pytest.mark.parametrize("make", FORMATS)
    @pytest.mark.parametrize("rows", [[0, 3, 8], [4], range(9)])
    def test_reads_counts_as_they_are_and_as_tensors(self, adata, make, rows):
        dense = adata.X.copy()
        dense[3, 1] = 2**40 + 1
        adata.X = make(dense)
        rows = np.asarray(rows)
        counts, tensors = source_of(adata).read(rows)
        assert isinstance(counts, np.ndarray) and counts.dtype == np.int64
        np.testing.assert_array_equal(counts, dense[rows])
        assert tensors["X"].dtype == torch.float32 and OBSERVED_KEY not in tensors
        np.testing.assert_array_equal(tensors["X"], dense[rows].astype(np.float32))

    @pytest.mark.parametrize("make", FORMATS)
    def test_genes_are_selected_by_name_but_counts_are_whole(self, adata, make):
        names = ["new", "d", "a", "c", "other", "b"]
        more = ad.AnnData(
            make(np.arange(54).reshape(9, 6)), obs=adata.obs, layers={"seen": make(np.arange(54).reshape(9, 6) % 2)}
        )
        more.var_names = names
        source = source_of(more, mask_layer="seen")
        counts, tensors = source.read(np.array([2, 5]))
        np.testing.assert_array_equal(counts, np.arange(54).reshape(9, 6)[[2, 5]])
        expected = np.arange(54).reshape(9, 6)[[2, 5]][:, [2, 5, 3, 1]]
        np.testing.assert_array_equal(tensors["X"], expected)
        np.testing.assert_array_equal(tensors[OBSERVED_KEY], expected % 2)
        assert source.n_cells == 9
        np.testing.assert_array_equal(source.select(counts), expected)

    @pytest.mark.parametrize("make", FORMATS)
    def test_genes_that_the_data_lacks_are_missing(self, adata, make):
        few = ad.AnnData(
            make(adata.X[:, [3, 1]]), obs=adata.obs, layers={"seen": make(adata.layers["seen"][:, [3, 1]])}
        )
        few.var_names = ["d", "b"]
        rows = np.array([2, 5])
        source = source_of(few, mask_layer="seen")
        counts, tensors = source.read(rows)
        assert counts.dtype == np.int64 and source.present.tolist() == [False, True, False, True]
        np.testing.assert_array_equal(counts, adata.X[rows][:, [3, 1]])
        np.testing.assert_array_equal(tensors["X"], np.where(source.present, adata.X[rows], np.nan))
        np.testing.assert_array_equal(tensors[OBSERVED_KEY], source.present & adata.layers["seen"][rows])
        np.testing.assert_array_equal(source.select(counts), source.present * adata.X[rows])
        assert not source_of(few).any_missing(rows)  # nothing that a result has a place for

    def test_unknown_covariates_are_the_null_state(self, adata):
        adata.obs["kind"] = adata.obs["kind"].where(np.arange(9) != 2)
        kinds = {"kind": np.array(["y", "x"]), "donor": np.array(["d"])}
        source = source_of(adata, categories=kinds, continuous_keys=["dose"], unseen_to_null=True)
        assert source.categories[:4].tolist() == [[1, 1], [0, 1], [2, 1], [0, 1]]
        assert np.isnan(source.continuous).all()

    def test_covariates_belong_to_their_rows(self, adata):
        source = source_of(adata, categories={"kind": np.array(["y", "x"])}, continuous_keys=["age"])
        _, tensors = source.read(np.array([1, 2, 7]))
        assert tensors["extra_categorical_covs"].tolist() == [[0], [1], [0]]
        assert tensors["extra_continuous_covs"].tolist() == [[1], [2], [7]]

    def test_covariates_may_stand_elsewhere(self, adata):
        elsewhere = pd.DataFrame({"kind": ["x"] * 9, "age": np.arange(9) + 100}, index=adata.obs_names)
        source = make_source(
            CellTables(adata, elsewhere, elsewhere),
            open_counts(adata, None, None),
            GENES,
            categories={"kind": np.array(["y", "x"])},
            continuous_keys=["age"],
        )
        assert source.categories.ravel().tolist() == [1] * 9
        assert source.continuous.ravel().tolist() == list(range(100, 109))

    def test_continuous_covariates_are_not_rounded(self, adata):
        adata.obs["time"] = 1.7e9 + np.arange(9)
        _, tensors = source_of(adata, continuous_keys=["time"]).read(np.array([1, 2, 7]))
        assert (tensors["extra_continuous_covs"] - 1.7e9).tolist() == [[1], [2], [7]]

    @pytest.mark.parametrize("make", [sp.csc_matrix, sp.csc_array])
    def test_sparse_matrices_are_read_by_rows_and_left_as_they_are(self, adata, make):
        dense = adata.X.copy()
        adata.X, adata.layers["seen"] = make(dense), make(adata.layers["seen"])
        before = adata.X, adata.layers["seen"]
        source = source_of(adata, mask_layer="seen")
        assert source.counts.format == source.matrix.mask.format == "csr"
        assert adata.X is before[0] and adata.layers["seen"] is before[1]
        np.testing.assert_array_equal(source.counts.toarray(), dense)

    @pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix, sp.csc_matrix])
    def test_a_file_stored_by_columns_is_warned_about(self, adata, make, tmp_path):
        adata.X = make(adata.X)
        adata.write_h5ad(tmp_path / "data.h5ad")
        backed = ad.read_h5ad(tmp_path / "data.h5ad", backed="r")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            source_of(backed)
        messages = [str(warning.message) for warning in caught]
        assert any("adata.X is stored by columns (CSC) in a file" in m for m in messages) == (make is sp.csc_matrix)
        backed.file.close()

    def test_covariates_of_cells_that_will_not_be_read_are_not_checked(self, adata):
        adata.obs.loc["cell4", ["kind", "age"]] = [None, np.nan]
        kwargs = {"categories": {"kind": np.array(["y", "x"])}, "continuous_keys": ["age"]}
        source = source_of(adata, rows=np.array([0, 3, 5]), **kwargs)
        assert source.categories[[0, 3, 5], 0].tolist() == [1, 0, 0]
        assert source.continuous[[0, 3, 5], 0].tolist() == [0, 3, 5]
        for rows in (np.array([0, 4]), None):
            with pytest.raises(ValueError, match="'kind'. is missing in 1 of "):
                source_of(adata, rows=rows, **kwargs)

    def test_what_is_wrong_is_named(self, adata):
        with pytest.raises(KeyError, match="'counts', which the model reads, is not in adata.layers, which has 'seen'"):
            source_of(adata, layer="counts")
        with pytest.raises(KeyError, match="mask_layer='sen' is not in adata.layers, which has 'seen'"):
            source_of(adata, mask_layer="sen")
        with pytest.raises(KeyError, match="'donor' not in adata.obs, which has 'kind', 'age'"):
            source_of(adata, categories={"donor": np.array(["1"])})
        with pytest.raises(ValueError, match="'kind'.*is not numeric"):
            source_of(adata, continuous_keys=["kind"])

    @pytest.mark.parametrize("make", FORMATS)
    def test_missing_entries_are_found_among_the_cells_and_genes_of_the_model(self, adata, make):
        counts = np.hstack([adata.X, np.full((9, 1), np.nan)])  # a gene that the model does not have
        mask = np.hstack([np.ones((9, 4), dtype=bool), np.zeros((9, 1), dtype=bool)])
        counts[4, 2], mask[6, 1] = np.nan, False
        more = ad.AnnData(make(counts), obs=adata.obs, layers={"seen": make(mask)})
        more.var_names = [*GENES, "other"]
        by_nan, by_both = source_of(more), source_of(more, mask_layer="seen")
        for rows, nan, both in ((range(9), 1, 1), ([0, 1], 0, 0), ([3, 4], 1, 1), ([5, 6], 0, 1)):
            assert by_nan.any_missing(np.asarray(rows)) == nan
            assert by_both.any_missing(np.asarray(rows)) == both


class TestCountMatrix:
    def test_cells_that_are_not_asked_for_are_not_checked(self, adata):
        adata.X = adata.X.astype(np.float32)
        adata.X[4, 2] = 0.5
        matrix = open_counts(adata, None, None)
        matrix.check(np.array([0, 3, 5]))
        for rows in (np.array([0, 4]), np.arange(9), None):
            with pytest.raises(ValueError, match=r"non-integer entry; the first is 0\.5 in cell 'cell4' \(row 4\)"):
                matrix.check(rows)
        with pytest.raises(ValueError, match=r"non-integer entry; the first is 0\.5 in cell 'cell4' \(row 4\)"):
            matrix.summarise()

    @pytest.mark.parametrize("make", FORMATS)
    def test_every_block_is_checked_as_it_is_read(self, adata, make):
        counts = adata.X.astype(np.float32)
        counts[4, 2] = 0.5
        adata.X = make(counts)
        matrix = open_counts(adata, None, None)
        np.testing.assert_array_equal(matrix.read(np.array([0, 3, 8])), counts[[0, 3, 8]])
        with pytest.raises(ValueError, match=r"the first is 0\.5 in cell 'cell4' \(row 4\), gene 'c' \(column 2\)"):
            matrix.read(np.array([3, 4, 7]))

    @pytest.mark.parametrize("make", FORMATS)
    def test_what_is_read_is_never_a_view_of_the_data(self, adata, make):
        before = adata.X.copy()
        adata.X = make(before.copy())
        open_counts(adata, None, None).read(np.arange(9))[:] = -1
        np.testing.assert_array_equal(adata.X.toarray() if sp.issparse(adata.X) else adata.X, before)

    def test_counts_and_mask_are_both_checked_and_both_recognised(self, adata):
        matrix = open_counts(adata, None, "seen")
        matrix.check()
        assert matrix.summarise().has_missing and not open_counts(adata, None, None).summarise().has_missing
        before = matrix.fingerprint
        assert len(before) == 2 and len(open_counts(adata, None, None).fingerprint) == 1
        adata.layers["seen"] = ~adata.layers["seen"]
        after = open_counts(adata, None, "seen").fingerprint
        assert after[0] == before[0] and after[1] != before[1]
        adata.layers["seen"] = adata.X + 2
        matrix = open_counts(adata, None, "seen")
        for check in (matrix.check, matrix.summarise):
            with pytest.raises(ValueError, match=r"adata\.layers\['seen'\] holds"):
                check()
        adata.X = adata.X - 1 - adata.X.max()
        with pytest.raises(ValueError, match=r"adata\.X holds .*negative"):
            open_counts(adata, None, None).check()

    @pytest.mark.parametrize(
        ("setup", "advice"), [("Model.setup", "pass layer='umi' to Model.setup"), (None, "so set adata.X = adata.lay")]
    )
    def test_where_the_counts_may_be_instead_is_said(self, adata, setup, advice):
        adata.layers["umi"] = adata.X.copy()
        adata.X = np.log1p(adata.X)
        with pytest.raises(ValueError, match=advice):
            open_counts(adata, None, None, setup).check()


class TestMatchGenes:
    @pytest.mark.parametrize("seed", range(5))
    def test_positions_lead_back_to_the_names(self, seed):
        rng = np.random.default_rng(seed)
        names = pd.Index(rng.permutation([f"g{i}" for i in range(30)]))
        genes = rng.choice(names, 12, replace=False)
        np.testing.assert_array_equal(names[match_genes(names, genes)], genes)

    def test_absent_ones_are_told_of_and_named_five_at_most(self, caplog):
        with caplog.at_level("INFO", "sccountsdiff"):
            assert match_genes(pd.Index(["a", "c"]), ["a", "b"]).tolist() == [0, -1]
        assert "lacks 1 of the 2 genes the model was trained on: b. They count as missing." in caplog.text
        with pytest.raises(ValueError, match=r"lacks 6 of the 6 genes .*: a, b, c, d, e, \.\.\."):
            match_genes(pd.Index(["z"]), list("abcdef"))

    def test_ambiguous_names_are_refused(self):
        with pytest.raises(ValueError, match="var_names_make_unique"):
            match_genes(pd.Index(["a", "a"]), ["a"])


def test_tables_that_are_read_lazily_are_refused():
    class Lazy:
        obs = {"cell_type": "in a file"}

    with pytest.raises(
        TypeError, match=r"adata\.obs is a dict, as of data that is read lazily: use adata\.to_memory\(\)"
    ):
        find_cells(Lazy())
