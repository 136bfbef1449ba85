"""What is filled in: the entries that are named, those that are missing, or else the zeros."""

from __future__ import annotations

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import sccountsdiff.data.source
from sccountsdiff import CountsDiffImputer
from sccountsdiff.diffusion import NOISED, OBSERVED
from sccountsdiff.model.sites import digest_of, missing_entries, named_sites, only, zeros

QUICK = {"n_samples": 2, "n_steps": 2, "seed": 0, "batch_size": 16, "silent": True, "key_added": None}
MEAN = {"n_steps": 1, "final": "mean"}


class TestDefaults:
    """What is filled in if nothing is named."""

    rows, counts = np.arange(2), np.array([[0.0, 2.0], [np.nan, 0.0]])
    missing = np.array([[False, True], [True, False]])

    def test_are_what_is_missing_or_the_zeros(self):
        np.testing.assert_array_equal(missing_entries(self.rows, self.counts, self.missing), self.missing)
        nothing = np.zeros_like(self.missing)
        np.testing.assert_array_equal(zeros(self.rows, self.counts, nothing), [[True, False], [False, True]])

    def test_what_is_missing_is_filled_in_with_the_zeros(self):
        np.testing.assert_array_equal(zeros(self.rows, self.counts, self.missing), [[True, True], [True, True]])

    def test_some_genes_only(self):
        for choose in (missing_entries, zeros):
            everything = choose(self.rows, self.counts, self.missing)
            some = only(np.array([1]), choose)(self.rows, self.counts, self.missing)
            np.testing.assert_array_equal(some, everything & [False, True])


class TestNamedSites:
    @pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix, sp.csc_matrix])
    @pytest.mark.parametrize("dtype", ["bool", "int8", "float32"])
    def test_are_those_of_the_rows_in_the_order_of_the_model_s_genes(self, trained, query, sites, make, dtype):
        order = np.random.default_rng(0).permutation(20)
        other = query[:, order].copy()
        choose = named_sites(make(sites[:, order].astype(dtype)), other, trained._source(other))
        rows = np.array([3, 17, 49])
        found = choose(rows, None, None)
        assert found.dtype == bool
        np.testing.assert_array_equal(found, sites[rows])

    def test_every_entry_is_checked_whichever_rows_are_asked_for(self, trained, query, sites):
        asked = sites.astype(np.float32)
        asked[31, 7] = 3
        with pytest.raises(ValueError, match=r"sites holds 3\.0 in cell 31, gene 7: .*\(True = fill in\)"):
            named_sites(asked, query, trained._source(query))


def test_the_digest_is_that_of_the_entries(query, sites):
    same = [sites, sp.csr_matrix(sites), sites.astype(np.float32), sp.csc_matrix(sites)]
    assert len({digest_of(given, query) for given in same}) == 1
    other = sites.copy()
    other[3, 3] = not other[3, 3]
    assert digest_of(other, query) != digest_of(sites, query) and digest_of(None, query) is None


class TestSites:
    def test_may_be_given_in_many_ways(self, trained, impute, query, sites):
        expected = impute(query, sites=sites).toarray()
        query.layers["dense"], query.layers["sparse"] = sites, sp.csr_matrix(sites)
        query.layers["numbers"] = sites.astype(np.int8)
        frame = pd.DataFrame(sites, index=query.obs_names, columns=query.var_names)
        for given in (sp.csr_matrix(sites), sp.csc_array(sites), frame, "dense", "sparse", "numbers", sites * 1.0):
            np.testing.assert_array_equal(impute(query, sites=given).toarray(), expected)

    @pytest.mark.parametrize("axis", ["index", "columns"])
    def test_a_table_must_have_the_names_of_the_data(self, impute, query, sites, axis):
        frame = pd.DataFrame(sites, index=query.obs_names, columns=query.var_names)
        for other in (
            frame.sort_index(axis=axis, ascending=False),
            frame.set_axis(range(len(getattr(frame, axis))), axis=axis),
        ):
            with pytest.raises(ValueError, match=r"`sites` does not have the names.*sites\.loc\[adata\.obs_names"):
                impute(query, sites=other)

    @pytest.mark.parametrize(
        ("given", "error", "message"),
        [
            (np.ones((50, 19), dtype=bool), ValueError, r"sites has shape \(50, 19\), but .* shape \(50, 20\)"),
            (np.full((50, 20), 2), ValueError, r"sites holds 2 in cell 0, gene 0: .*boolean \(True = fill in\)"),
            (np.full((50, 20), "yes"), ValueError, r"sites has dtype <U3: .*boolean \(True = fill in\)"),
            ("holes", KeyError, "sites='holes' is not in adata.layers, which has 'a', 'b'"),
            ([[True]], ValueError, "sites is a builtins.list"),
        ],
    )
    def test_refuses_what_is_no_mask(self, impute, query, given, error, message):
        query.layers["a"] = query.layers["b"] = query.X
        with pytest.raises(error, match=message):
            impute(query, sites=given)


class TestUnknownGenes:
    def test_sites_of_unknown_genes_are_refused(self, trained, query):
        names = pd.Index(["stranger", *query.var_names])
        more = ad.AnnData(
            np.hstack([np.ones((50, 1)), query.X.toarray()]), obs=query.obs, var=pd.DataFrame(index=names)
        )
        asked = np.zeros((50, 21), dtype=bool)
        asked[3, 0] = True
        with pytest.raises(ValueError, match="`sites` asks for gene 'stranger', which the model was not trained on"):
            trained.impute(more, sites=asked, **QUICK)

    def test_zeros_of_unknown_genes_stay(self, trained, query, dense):
        names = pd.Index([*query.var_names, "silent"])
        more = ad.AnnData(
            np.hstack([query.X.toarray(), np.zeros((50, 1))]), obs=query.obs, var=pd.DataFrame(index=names)
        )
        result = trained.impute(more, **QUICK, n_folds=2)
        assert (result[:, -1] == 0).all()
        np.testing.assert_array_equal(result[:, :-1], dense(trained.impute(query, **QUICK, n_folds=2)))

    def test_genes_that_the_model_does_not_know_may_be_missing(self, impute, query, dense):
        expected = dense(impute(query, **MEAN))
        more = ad.AnnData(
            np.column_stack([np.full(50, np.nan), query.X.toarray()]),
            obs=query.obs,
            var=pd.DataFrame(index=["other", *query.var_names]),
        )
        result = impute(more, **MEAN)
        np.testing.assert_array_equal(result[:, 1:], expected)
        assert np.isnan(result[:, 0]).all()


class TestZeros:
    def test_every_zero_is_filled_and_nothing_else(self, impute, query):
        counts = query.X.toarray()
        result = impute(query, **MEAN)  # dense: CSR would be larger
        assert (result[counts == 0] > 0).all()  # an expectation is never 0
        np.testing.assert_array_equal(result[counts > 0], counts[counts > 0])

    @pytest.mark.parametrize("n_folds", [1, 3])
    def test_each_is_predicted_once_from_all_other_entries(self, impute, query, spy, n_folds):
        impute(query, n_folds=n_folds, n_samples=1, batch_size=50)
        counts = query.X.toarray()
        assert len(spy) == n_folds
        np.testing.assert_array_equal(sum(status == NOISED for status in spy), counts == 0)
        assert all(((status == NOISED) | (status == OBSERVED)).all() for status in spy)

    def test_genes_are_in_one_fold_in_all_cells_and_folds_are_equally_large(self, trained, query, spy):
        trained.get_normalized_expression(query, n_folds=3, batch_size=20, silent=True)
        hidden = np.array([status[:1] == NOISED for status in spy[:3]])
        for number, status in enumerate(spy):  # block by block, fold by fold
            np.testing.assert_array_equal(status == NOISED, np.broadcast_to(hidden[number % 3], status.shape))
        sizes = hidden[:, 0].sum(1)
        assert sizes.sum() == query.n_vars and sizes.max() - sizes.min() <= 1 and len(spy) > 3

    def test_one_pass_mean_does_not_depend_on_where_the_zeros_are_marked(self, impute, query):
        is_zero = query.X.toarray() == 0
        np.testing.assert_array_equal(impute(query, n_folds=1, **MEAN), impute(query, sites=is_zero, **MEAN).toarray())


class TestMissing:
    def test_the_model_settles_it_and_not_the_query(self, impute, masked, query, caplog):
        """What is filled in never depends on what a query happens to contain."""
        counts = query.X.toarray()
        counts[49, 3] = np.nan
        query.X = counts
        is_filled = impute(query, what="zeros", **MEAN) != counts
        np.testing.assert_array_equal(impute(query, **MEAN) != counts, is_filled)
        np.testing.assert_array_equal(is_filled, ~(counts > 0))
        np.testing.assert_array_equal(impute(query, what="missing", **MEAN) != counts, np.isnan(counts))

        model, _, _ = masked
        complete = model.adata.copy()
        complete.X, complete.layers["seen"] = np.nan_to_num(complete.X), np.ones(complete.shape, dtype=bool)
        with caplog.at_level("INFO", logger="sccountsdiff"):
            np.testing.assert_array_equal(model.impute(complete, silent=True, key_added=None), complete.X)
        assert "Nothing is missing: adata comes back as it is" in caplog.text
        filled = model.impute(complete, what="zeros", silent=True, key_added=None)
        np.testing.assert_array_equal(filled != complete.X, complete.X == 0)

    def test_it_is_saved_with_the_model(self, masked, trained, tmp_path):
        for model, what in ((masked[0], "missing"), (trained, "zeros")):
            model.save(tmp_path / what)
            assert CountsDiffImputer.load(tmp_path / what, adata=False).fills_in_ == what

    def test_sites_and_what_are_refused_together(self, impute, query, sites):
        with pytest.raises(ValueError, match="`what` and `sites` both say what to fill in"):
            impute(query, what="zeros", sites=sites)
        with pytest.raises(ValueError, match="`what` must be 'missing', 'zeros' or None, not 'nothing'"):
            impute(query, what="nothing")

    def test_only_the_genes_that_are_named(self, impute, query, sites):
        some = query.var_names[[2, 7]]
        filled = impute(query, genes=list(some), **MEAN).toarray() != query.X.toarray()
        np.testing.assert_array_equal(filled.any(0), query.var_names.isin(some))
        everything = impute(query, **MEAN)
        at_sites = impute(query, sites=sites, genes=list(some), **MEAN).toarray() != query.X.toarray()
        np.testing.assert_array_equal(at_sites, sites & query.var_names.isin(some))
        assert everything.shape == query.shape
        with pytest.raises(KeyError, match="genes: the model has no gene 'nope'"):
            impute(query, genes=["nope"])

    @pytest.mark.parametrize("what", ["counts", "mask"])
    def test_only_the_cells_that_are_asked_for_are_read(self, masked, monkeypatch, what):
        model, _, _ = masked
        other = model.adata.copy()
        if what == "mask":
            other.X = other.layers["seen"].toarray().astype(np.int32)  # integers cannot be missing
        looked_at, read = [], sccountsdiff.data.source.iter_some_rows

        def spy(matrix, rows):
            for some, block in read(matrix, rows):
                looked_at.extend(some)
                yield some, block

        monkeypatch.setattr("sccountsdiff.data.source.iter_some_rows", spy)
        model.impute(other, range(10, 30), silent=True, **MEAN)
        assert set(looked_at) == set(range(10, 30))
