"""Data other than the model's own: genes are matched by name, categories are known or not."""

from __future__ import annotations

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

QUICK = {"n_samples": 2, "n_steps": 2, "seed": 0, "batch_size": 16, "silent": True, "key_added": None}


@pytest.fixture
def expected(trained, query, sites):
    return trained.impute(query, sites=sites, **QUICK).toarray()


class TestGenes:
    def test_may_stand_in_any_order(self, trained, query, sites, expected):
        order = np.random.default_rng(0).permutation(20)
        result = trained.impute(query[:, order].copy(), sites=sites[:, order], **QUICK)
        np.testing.assert_array_equal(result.toarray(), expected[:, order])

    @pytest.mark.parametrize("fmt", [np.asarray, sp.csr_matrix, sp.csc_matrix])
    def test_may_be_more_and_those_are_untouched(self, trained, query, sites, expected, dense, fmt):
        order = np.random.default_rng(0).permutation(25)
        extra = np.random.default_rng(1).poisson(3, (50, 5)).astype(np.float32)
        more = ad.AnnData(
            fmt(np.hstack([query.X.toarray(), extra])[:, order]),
            obs=query.obs,
            var=pd.DataFrame(index=np.array([*query.var_names, *"abcde"])[order]),
        )
        asked = np.hstack([sites, np.zeros((50, 5), dtype=bool)])[:, order]
        result = dense(trained.impute(more, sites=asked, **QUICK))
        np.testing.assert_array_equal(result, np.hstack([expected, extra])[:, order])

    def test_zeros_of_unknown_genes_stay(self, trained, query, dense):
        names = pd.Index([*query.var_names, "silent"])
        more = ad.AnnData(
            np.hstack([query.X.toarray(), np.zeros((50, 1))]), obs=query.obs, var=pd.DataFrame(index=names)
        )
        result = trained.impute(more, **QUICK, n_folds=2)
        assert (result[:, -1] == 0).all()
        np.testing.assert_array_equal(result[:, :-1], trained.impute(query, **QUICK, n_folds=2).toarray())

    def test_sites_of_unknown_genes_are_refused(self, trained, query):
        names = pd.Index(["stranger", *query.var_names])
        more = ad.AnnData(
            np.hstack([np.ones((50, 1)), query.X.toarray()]), obs=query.obs, var=pd.DataFrame(index=names)
        )
        asked = np.zeros((50, 21), dtype=bool)
        asked[3, 0] = True
        with pytest.raises(ValueError, match="`sites` asks for gene 'stranger', which the model was not trained on"):
            trained.impute(more, sites=asked, **QUICK)

    def test_missing_ones_are_named(self, trained, query):
        with pytest.raises(ValueError, match=r"lacks 2 of the 20 genes .*: gene4, gene11\."):
            trained.impute(query[:, ~query.var_names.isin(["gene4", "gene11"])].copy(), **QUICK)
        with pytest.raises(ValueError, match=r"lacks 19 of the 20 genes .*: gene1, gene2, gene3, gene4, gene5, \.\.\."):
            trained.log_likelihood(query[:, :1].copy())

    def test_names_must_be_unique(self, trained, query):
        query.var_names = ["gene1", *query.var_names[1:]]
        with pytest.raises(ValueError, match="not unique"):
            trained.impute(query, **QUICK)

    def test_other_methods_return_the_genes_of_the_model(self, trained, query):
        order = np.random.default_rng(0).permutation(20)
        other = query[:, order].copy()
        for method in (trained.denoise, trained.get_normalized_expression):
            np.testing.assert_allclose(method(other, silent=True), method(query, silent=True), rtol=1e-5)
        for method in (trained.log_likelihood, trained.posterior_predictive_sample):
            np.testing.assert_allclose(
                method(other, silent=True, seed=0), method(query, silent=True, seed=0), rtol=1e-5
            )
        assert trained.get_normalized_expression(other, silent=True).columns.tolist() == query.var_names.tolist()


class TestCategories:
    @pytest.fixture
    def strange(self, query):
        """The query, with a block of cells (16 to 31) of types that the model has never seen."""
        query.obs["cell_type"] = [*query.obs["cell_type"][:16], *["platelet", "HSC"] * 8, *query.obs["cell_type"][32:]]
        return query

    def test_unseen_ones_are_named(self, trained, strange):
        message = (
            r"adata\.obs\['cell_type'\] holds .*not trained on: HSC, platelet\. It knows B, NK, T\..*unseen_to_null"
        )
        for method in (trained.impute, trained.denoise, trained.log_likelihood, trained.posterior_predictive_sample):
            with pytest.raises(ValueError, match=message):
                method(strange)

    def test_unseen_ones_are_the_null_state_on_request(self, trained, strange, sites, simulate):
        expected = trained.impute(simulate(50, seed=1).adata, sites=sites, **QUICK).toarray()
        result = trained.impute(strange, sites=sites, unseen_to_null=True, **QUICK).toarray()
        without = trained.impute(strange, sites=sites, unseen_to_null=True, guidance=0, **QUICK).toarray()
        unseen = np.arange(50) // 16 == 1
        np.testing.assert_array_equal(result[unseen], without[unseen])
        np.testing.assert_array_equal(result[~unseen], expected[~unseen])
        mean = {"n_steps": 1, "final": "mean", "sites": sites, "silent": True, "key_added": None}
        conditional = trained.impute(strange, unseen_to_null=True, **mean).toarray()
        null = trained.impute(strange, unseen_to_null=True, guidance=0, **mean).toarray()
        np.testing.assert_allclose(conditional[unseen], null[unseen], rtol=1e-5)
        assert (np.abs(conditional - null)[~unseen].max(1) > 1e-3).all()

    def test_unseen_ones_stay_null_under_guidance(self, trained, strange, sites):
        mean = {"n_steps": 1, "final": "mean", "sites": sites, "silent": True, "key_added": None}
        guided, null = (
            trained.impute(strange, unseen_to_null=True, guidance=g, **mean).toarray()[16:32] for g in (3, 0)
        )
        np.testing.assert_allclose(guided, null, rtol=1e-4)

    def test_fewer_categories_and_other_codes(self, trained, query, sites, expected):
        query.obs["cell_type"] = pd.Categorical(query.obs["cell_type"], categories=["T", "NK", "B", "none"])
        np.testing.assert_array_equal(trained.impute(query, sites=sites, **QUICK).toarray(), expected)
        one = query[query.obs["cell_type"] == "T"].copy()
        one.obs["cell_type"] = one.obs["cell_type"].cat.remove_unused_categories()
        mean = {"n_steps": 1, "final": "mean", "silent": True, "key_added": None, "n_folds": 1}
        np.testing.assert_allclose(
            trained.impute(one, **mean).toarray(),
            trained.impute(query, np.flatnonzero(query.obs["cell_type"] == "T"), **mean).toarray(),
            rtol=1e-5,
        )


def test_missing_covariates_are_named(trained, query):
    del query.obs["age"]
    with pytest.raises(KeyError, match=r"'age' not in adata\.obs, which has 'cell_type'"):
        trained.impute(query)


def test_other_types_are_refused(trained, query):
    with pytest.raises(TypeError, match="`adata` must be an AnnData, not ndarray"):
        trained.impute(query.X.toarray())


def test_a_view(trained, query, sites):
    view = query[16:48]
    mean = {"n_steps": 1, "final": "mean", "silent": True, "key_added": None}
    np.testing.assert_allclose(
        trained.impute(view, sites=sites[16:48], **mean).toarray(),
        trained.impute(query, range(16, 48), sites=sites, **mean).toarray(),
        rtol=1e-5,
    )
