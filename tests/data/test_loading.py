"""Rows, genes and categories of any data, as the model wants them."""

from __future__ import annotations

import logging

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch

from sccountsdiff.data.loading import encode, make_source, match_genes

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


def source_of(adata, **kwargs):
    settings = {"layer": None, "mask_layer": None, "categories": {}, "continuous_keys": []}
    return make_source(adata, GENES, **(settings | kwargs))


class TestSource:
    @pytest.mark.parametrize("make", FORMATS)
    @pytest.mark.parametrize("rows", [[0, 3, 8], [4], range(9)])
    def test_reads_counts_as_they_are_and_as_tensors(self, adata, make, rows):
        dense = adata.X.copy()
        dense[3, 1] = 2**40 + 1
        adata.X = make(dense)
        rows = np.asarray(rows)
        counts, tensors = source_of(adata).read(rows, "observed")
        assert isinstance(counts, np.ndarray) and counts.dtype == np.int64
        np.testing.assert_array_equal(counts, dense[rows])
        assert tensors["X"].dtype == torch.float32 and "observed" not in tensors
        np.testing.assert_array_equal(tensors["X"], dense[rows].astype(np.float32))

    @pytest.mark.parametrize("make", FORMATS)
    def test_genes_are_selected_by_name_but_counts_are_whole(self, adata, make):
        names = ["new", "d", "a", "c", "other", "b"]
        more = ad.AnnData(
            make(np.arange(54).reshape(9, 6)), obs=adata.obs, layers={"seen": make(np.arange(54).reshape(9, 6) % 2)}
        )
        more.var_names = names
        source = source_of(more, mask_layer="seen")
        counts, tensors = source.read(np.array([2, 5]), "observed")
        np.testing.assert_array_equal(counts, np.arange(54).reshape(9, 6)[[2, 5]])
        expected = np.arange(54).reshape(9, 6)[[2, 5]][:, [2, 5, 3, 1]]
        np.testing.assert_array_equal(tensors["X"], expected)
        np.testing.assert_array_equal(tensors["observed"], expected % 2)
        assert source.n_cells == 9
        np.testing.assert_array_equal(source.select(counts), expected)

    def test_covariates_belong_to_their_rows(self, adata):
        source = source_of(adata, categories={"kind": np.array(["y", "x"])}, continuous_keys=["age"])
        _, tensors = source.read(np.array([1, 2, 7]), "observed")
        assert tensors["extra_categorical_covs"].tolist() == [[0], [1], [0]]
        assert tensors["extra_continuous_covs"].tolist() == [[1], [2], [7]]

    def test_covariates_may_stand_elsewhere(self, adata):
        elsewhere = pd.DataFrame({"kind": ["x"] * 9, "age": np.arange(9) + 100}, index=adata.obs_names)
        source = source_of(
            adata,
            categories={"kind": np.array(["y", "x"])},
            continuous_keys=["age"],
            categorical_obs=elsewhere,
            continuous_obs=elsewhere,
        )
        assert source.categories.ravel().tolist() == [1] * 9
        assert source.continuous.ravel().tolist() == list(range(100, 109))

    def test_a_mask_that_is_not_there_means_observed(self, adata, caplog):
        assert source_of(adata, mask_layer="seen").mask is not None
        del adata.layers["seen"]
        with caplog.at_level(logging.INFO, logger="sccountsdiff"):
            assert source_of(adata, mask_layer="seen").mask is None
        assert "No adata.layers['seen']: all counts are taken as observed" in caplog.text

    def test_what_is_wrong_is_named(self, adata):
        with pytest.raises(KeyError, match="layer='counts' is not in adata.layers, which has 'seen'"):
            source_of(adata, layer="counts")
        with pytest.raises(KeyError, match="'donor' not in adata.obs, which has 'kind', 'age'"):
            source_of(adata, categories={"donor": np.array(["1"])})
        with pytest.raises(ValueError, match="'kind'.*is not numeric"):
            source_of(adata, continuous_keys=["kind"])
        adata.layers["seen"] = adata.X + 2
        with pytest.raises(ValueError, match=r"adata\.layers\['seen'\] holds"):
            source_of(adata, mask_layer="seen")
        adata.X = adata.X - 1
        with pytest.raises(ValueError, match=r"adata\.X holds .*negative"):
            source_of(adata)


class TestMatchGenes:
    @pytest.mark.parametrize("seed", range(5))
    def test_positions_lead_back_to_the_names(self, seed):
        rng = np.random.default_rng(seed)
        names = pd.Index(rng.permutation([f"g{i}" for i in range(30)]))
        genes = rng.choice(names, 12, replace=False)
        np.testing.assert_array_equal(names[match_genes(names, genes)], genes)

    def test_missing_ones_are_named_five_at_most(self):
        with pytest.raises(ValueError, match=r"lacks 1 of the 2 genes .*: b\."):
            match_genes(pd.Index(["a", "c"]), ["a", "b"])
        with pytest.raises(ValueError, match=r"lacks 6 of the 6 genes .*: a, b, c, d, e, \.\.\."):
            match_genes(pd.Index(["z"]), list("abcdef"))

    def test_ambiguous_names_are_refused(self):
        with pytest.raises(ValueError, match="var_names_make_unique"):
            match_genes(pd.Index(["a", "a"]), ["a"])


class TestEncode:
    @pytest.mark.parametrize("make", [list, pd.Categorical, np.array, pd.Series])
    def test_codes_lead_back_to_the_categories(self, make):
        values = ["T", "B", "B", "NK"]
        known = np.array(["NK", "T", "B"])
        codes = encode(pd.DataFrame({"kind": make(values)}), {"kind": known})
        assert known[codes[:, 0]].tolist() == values

    def test_several_covariates_of_several_types(self):
        obs = pd.DataFrame({"batch": [3, 1], "treated": [True, False], "other": ["u", "v"]})
        categories = {"treated": np.array([False, True]), "batch": np.array([1, 2, 3])}
        assert encode(obs, categories).tolist() == [[1, 2], [0, 0]]
        assert encode(obs, {}).shape == (2, 0)

    def test_unseen_ones_are_named_or_get_the_code_after_the_last(self):
        obs, known = pd.DataFrame({"kind": ["b", "z", "a", "q", "z"]}), {"kind": np.array(["a", "b"])}
        with pytest.raises(ValueError, match=r"adata\.obs\['kind'\] .*: q, z\. It knows a, b\."):
            encode(obs, known)
        assert encode(obs, known, unseen_to_null=True).ravel().tolist() == [1, 2, 0, 2, 2]
