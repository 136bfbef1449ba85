"""Data other than the model's own: genes are matched by name, categories are known or not."""

from __future__ import annotations

import re
import warnings
from unittest import mock

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from lightning.pytorch.callbacks import Callback

from sccountsdiff import CountsDiffImputer

QUICK = {"n_samples": 2, "n_steps": 2, "seed": 0, "batch_size": 16, "silent": True, "key_added": None}


@pytest.fixture
def expected(trained, query, sites, dense):
    return dense(trained.impute(query, sites=sites, **QUICK))


class TestProperties:
    def test_are_those_of_the_set_up(self, trained):
        assert trained.gene_names.tolist() == [f"gene{j}" for j in range(20)]
        assert {key: known.tolist() for key, known in trained.categories.items()} == {"cell_type": ["B", "NK", "T"]}
        assert trained.continuous_keys == ["age"]

    def test_are_empty_without_covariates(self, plain):
        assert plain.categories == {} and plain.continuous_keys == []

    def test_are_known_without_data(self, saved, trained):
        model = CountsDiffImputer.load(saved, adata=False, accelerator="cpu")
        np.testing.assert_array_equal(model.gene_names, trained.gene_names)
        assert list(model.categories) == ["cell_type"] and model.continuous_keys == ["age"]


class TestSummary:
    """What the check at set-up found holds as long as the data is the same."""

    @pytest.fixture
    def checked(self, simulate):
        """A model, and a function that returns what is known of its data."""
        adata = simulate(40).adata
        CountsDiffImputer.setup_anndata(adata)
        model = CountsDiffImputer(adata, n_hidden=4, n_layers=1)
        return model, lambda: model._summary(model._open_counts(model._cells(None)))

    def test_is_kept(self, checked):
        model, find = checked
        assert find() is find() is model.adata_manager.checked_data.summary
        np.testing.assert_allclose(find().gene_means(), model.module.denoiser.gene_means, rtol=1e-6)

    def test_does_not_hold_for_other_counts(self, checked):
        model, find = checked
        model.adata.X = model.adata.X * 2
        assert find() is None

    def test_is_not_there_without_a_set_up(self, checked):
        model, find = checked
        del model.adata_manager.checked_data
        assert find() is None


def test_a_gene_of_the_model_s_own_data_may_be_hidden_and_filled_in(model, dense):
    """Data that was changed as a whole is treated like any other: what is missing now can be filled in."""
    counts = model.adata.X.toarray()
    model.adata.X = np.where(np.arange(20) == 3, np.nan, counts)
    filled = dense(model.impute(what="missing", n_samples=1, n_steps=2, silent=True, key_added=None))
    assert np.isfinite(filled).all()
    np.testing.assert_array_equal(np.delete(filled, 3, axis=1), np.delete(counts, 3, axis=1))


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

    def test_too_few_are_refused(self, trained, query):
        message = r"lacks 19 of the 20 genes .*: gene1, gene2, .*, \.\.\.\. .*var_names, which are gene0; at least 10%"
        with pytest.raises(ValueError, match=message):
            trained.log_likelihood(query[:, :1].copy())
        trained.log_likelihood(query[:, :2].copy(), n_times=1, silent=True)

    def test_absent_ones_are_missing(self, trained, query, sites, caplog, dense):
        """The same is said as of data with NaN in their place, and nothing else comes back than genes of the data."""
        absent = query.var_names.isin(["gene4", "gene11"])
        few, full = query[:, ~absent].copy(), query.copy()
        full.X = np.where(absent, np.nan, query.X.toarray())
        with caplog.at_level("INFO", "sccountsdiff"):
            trained.denoise(few, silent=True)
        assert "lacks 2 of the 20 genes the model was trained on: gene4, gene11. They count as missing." in caplog.text
        np.testing.assert_array_equal(trained.denoise(few, silent=True), trained.denoise(full, silent=True))
        bounds = [trained.log_likelihood(cells, seed=0, n_times=4, silent=True) for cells in (few, full)]
        np.testing.assert_array_equal(*bounds)
        # With all that is missing filled in, in one pass, and with only what the data has a place for.
        both = trained.impute(full, sites=sites | absent, **QUICK)
        np.testing.assert_array_equal(dense(trained.impute(few, sites=sites[:, ~absent], **QUICK)), both[:, ~absent])

    def test_absent_ones_do_not_change_what_is_filled_in(self, trained, query, spy, dense):
        few = query[:, 3:].copy()
        filled = dense(trained.impute(few, **QUICK))  # the zeros
        counts = few.X.toarray()
        np.testing.assert_array_equal(filled[counts > 0], counts[counts > 0])
        assert all((status[:, :3] == 0).all() for status in spy)  # drawn along, never shown as missing
        few.X = np.where(np.arange(17) == 5, np.nan, counts)
        filled = trained.impute(few, what="missing", **QUICK)
        np.testing.assert_array_equal(np.delete(filled, 5, 1), np.delete(counts, 5, 1))
        assert np.isfinite(filled).all()

    def test_absent_ones_are_predicted(self, trained, simulate):
        """As far as the other genes tell, and so better than by the mean of the gene."""
        new = simulate(100, seed=5)
        few = new.adata[:, 5:].copy()
        expected = trained.get_normalized_expression(few, library_size="latent", return_numpy=True, silent=True)[:, :5]
        naive = np.abs(new.rates[:, :5] - new.rates[:, :5].mean(0)).mean(1)
        gain = naive - np.abs(new.rates[:, :5] - expected).mean(1)
        assert gain.mean() > 4 * gain.std(ddof=1) / 10
        assert trained.posterior_predictive_sample(few, n_folds=1, n_steps=1, silent=True).shape == (100, 20)

    def test_names_must_be_unique(self, trained, query):
        query.var_names = ["gene1", *query.var_names[1:]]
        with pytest.raises(ValueError, match="not unique"):
            trained.impute(query, **QUICK)

    def test_other_methods_return_the_genes_of_the_model(self, trained, query, dense):
        order = np.random.default_rng(0).permutation(20)
        other = query[:, order].copy()
        for method in (trained.denoise, trained.get_normalized_expression):
            np.testing.assert_allclose(method(other, silent=True), method(query, silent=True), rtol=1e-5)
        results = [trained.log_likelihood(cells, silent=True, seed=0) for cells in (other, query)]
        np.testing.assert_allclose(*results, rtol=1e-5)
        results = [trained.posterior_predictive_sample(cells, silent=True, seed=0) for cells in (other, query)]
        np.testing.assert_array_equal(*(draws.todense() for draws in results))
        assert trained.get_normalized_expression(other, silent=True).columns.tolist() == query.var_names.tolist()


class TestCategories:
    @pytest.fixture
    def strange(self, query):
        """The query, with a block of cells (16 to 31) of types that the model has never seen."""
        query.obs["cell_type"] = [*query.obs["cell_type"][:16], *["platelet", "HSC"] * 8, *query.obs["cell_type"][32:]]
        return query

    def test_unseen_ones_are_named(self, trained, strange):
        message = (
            r"adata\.obs\['cell_type'\] holds .*not trained on: 'HSC', 'platelet'\. It knows 'B', 'NK', 'T'\."
            ".*unseen_to_null"
        )
        for method in (trained.impute, trained.denoise, trained.log_likelihood, trained.posterior_predictive_sample):
            with pytest.raises(ValueError, match=message):
                method(strange)

    def test_unseen_ones_are_the_null_state_on_request(self, trained, strange, sites, simulate, dense):
        expected = dense(trained.impute(simulate(50, seed=1).adata, sites=sites, **QUICK))
        result = dense(trained.impute(strange, sites=sites, unseen_to_null=True, **QUICK))
        without = dense(trained.impute(strange, sites=sites, unseen_to_null=True, guidance=0, **QUICK))
        unseen = np.arange(50) // 16 == 1
        np.testing.assert_array_equal(result[unseen], without[unseen])
        np.testing.assert_array_equal(result[~unseen], expected[~unseen])
        mean = {"n_steps": 1, "final": "mean", "sites": sites, "silent": True, "key_added": None}
        conditional = dense(trained.impute(strange, unseen_to_null=True, **mean))
        null = dense(trained.impute(strange, unseen_to_null=True, guidance=0, **mean))
        np.testing.assert_allclose(conditional[unseen], null[unseen], rtol=1e-5)
        assert (np.abs(conditional - null)[~unseen].max(1) > 1e-3).all()

    def test_unseen_ones_stay_null_under_guidance(self, trained, strange, sites, dense):
        mean = {"n_steps": 1, "final": "mean", "sites": sites, "silent": True, "key_added": None}
        guided, null = (dense(trained.impute(strange, unseen_to_null=True, guidance=g, **mean))[16:32] for g in (3, 0))
        np.testing.assert_allclose(guided, null, rtol=1e-4)

    def test_fewer_categories_and_other_codes(self, trained, query, sites, expected, dense):
        query.obs["cell_type"] = pd.Categorical(query.obs["cell_type"], categories=["T", "NK", "B", "none"])
        np.testing.assert_array_equal(dense(trained.impute(query, sites=sites, **QUICK)), expected)
        one = query[query.obs["cell_type"] == "T"].copy()
        one.obs["cell_type"] = one.obs["cell_type"].cat.remove_unused_categories()
        mean = {"n_steps": 1, "final": "mean", "silent": True, "key_added": None, "n_folds": 1}
        np.testing.assert_allclose(
            dense(trained.impute(one, **mean)),
            dense(trained.impute(query, np.flatnonzero(query.obs["cell_type"] == "T"), **mean)),
            rtol=1e-5,
        )

    def test_unseen_categories(self, strict, query):
        quick = {"n_samples": 1, "n_steps": 1, "n_folds": 1, "silent": True, "unseen_to_null": True}
        strict.impute(query, **quick)  # there are none
        query.obs["cell_type"] = ["HSC", *query.obs["cell_type"][1:]]
        strict.impute(query, range(1, 50), **quick)  # none of those asked for
        for indices in (None, [3, 0]):
            with pytest.raises(ValueError, match="`unseen_to_null=True` treats .* `p_uncond=0` and has never seen"):
                strict.impute(query, indices, **quick)


def test_data_that_are_no_counts_come_with_advice_that_can_be_followed(trained, query, sites, expected, dense):
    query.layers["umi"] = query.X.copy()
    query.X = query.X.log1p()
    with pytest.raises(ValueError, match=r"adata\.layers\['umi'\] looks like counts: pass layer='umi'\."):
        trained.impute(query)
    np.testing.assert_array_equal(dense(trained.impute(query, sites=sites, layer="umi", **QUICK)), expected)


def test_a_layer_that_queries_lack_is_named(simulate, train, query):
    adata = simulate(30).adata
    adata.layers["counts"] = adata.X.copy()
    model = train(adata)
    message = "'counts', which the model reads, is not in adata.layers, which has none. adata.X looks like counts: pass layer='X'"
    with pytest.raises(KeyError, match=message):
        model.impute(query)
    with pytest.raises(KeyError, match="layer='umi' is not in adata.layers"):
        model.impute(query, layer="umi")
    right = query.copy()
    right.layers["counts"], query.uns["note"] = right.X, "untouched"
    methods = (model.denoise, model.get_normalized_expression, model.log_likelihood, model.posterior_predictive_sample)
    for method in methods:
        seed = {"seed": 0} if method in methods[2:] else {}
        results = [
            method(cells, silent=True, **seed, **given) for cells, given in ((query, {"layer": "X"}), (right, {}))
        ]
        np.testing.assert_array_equal(*map(np.asarray, map(_array, results)))
    model.impute(query, layer="X", n_samples=1, n_steps=1, silent=True)
    assert "layer" not in query.uns["sccountsdiff"]["imputed"]
    with pytest.raises(ValueError, match="would overwrite adata.layers.'imputed'., which holds the counts"):
        model.impute(query, layer="imputed")


def _array(result):
    return result.todense() if hasattr(result, "todense") else result


def test_other_types_are_refused(trained, query):
    with pytest.raises(TypeError, match="`adata` must be an AnnData, not ndarray"):
        trained.impute(query.X.toarray())


def test_a_view(trained, query, sites, dense):
    view = query[16:48]
    mean = {"n_steps": 1, "final": "mean", "silent": True, "key_added": None}
    np.testing.assert_allclose(
        dense(trained.impute(view, sites=sites[16:48], **mean)),
        dense(trained.impute(query, range(16, 48), sites=sites, **mean)),
        rtol=1e-5,
    )


def test_cells_that_are_not_asked_for_need_not_be_counts(trained, query, dense):
    mean = {"n_steps": 1, "final": "mean", "silent": True, "key_added": None}
    expected = dense(trained.impute(query, [3, 30], **mean, n_folds=1))
    query.X = query.X.toarray()
    query.X[7] = np.log1p(query.X[7])
    np.testing.assert_allclose(trained.impute(query, [3, 30], **mean, n_folds=1), expected, rtol=1e-5)
    calls = (
        lambda rows: trained.impute(query, rows, **mean),
        lambda rows: trained.denoise(query, rows, silent=True),
        lambda rows: trained.get_normalized_expression(query, rows, n_folds=1, silent=True),
        lambda rows: trained.posterior_predictive_sample(query, rows, n_steps=1, n_folds=1, silent=True),
        lambda rows: trained.log_likelihood(query, rows, n_times=1, silent=True),
    )
    for call in calls:
        call([3, 30])
        for rows in (None, [30, 7]):
            with pytest.raises(ValueError, match=r"non-integer .*'cell7' \(row 7\)"):
                call(rows)


@pytest.mark.parametrize("fmt", [np.asarray, sp.csc_matrix, sp.csc_array])
def test_the_data_are_left_as_they_are_stored(trained, query, sites, expected, dense, fmt):
    query.X = fmt(query.X.toarray())
    stored = query.X
    np.testing.assert_array_equal(dense(trained.impute(query, sites=sites, **QUICK)), expected)
    assert query.X is stored


class TestMask:
    @pytest.fixture
    def masked(self, simulate, train):
        adata = simulate(40).adata
        adata.layers["seen"] = np.random.default_rng(0).random(adata.shape) < 0.8
        CountsDiffImputer.setup_anndata(adata, mask_layer="seen")
        return train(adata)

    def test_data_without_it_are_warned_about(self, masked, query):
        with pytest.warns(UserWarning, match="mask_layer='seen', which these data do not have"):
            masked.denoise(query, silent=True)
        query.layers["seen"] = np.ones(query.shape, dtype=bool)
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            masked.denoise(query, silent=True)

    @pytest.mark.parametrize("fmt", [sp.csr_matrix, sp.csc_matrix])
    def test_may_be_sparse(self, masked, query, fmt, dense):
        seen = np.random.default_rng(1).random(query.shape) < 0.7
        results = []
        for mask in (seen, fmt(seen)):
            query.layers["seen"] = mask
            results.append(dense(masked.impute(query, **QUICK)))
        np.testing.assert_array_equal(*results)


class TestContinuousCovariates:
    """They reach the network standardised, in training, queries and generation alike."""

    def network_sees(self, model, cells):
        _, tensors = model._source(cells).read(np.arange(cells.n_obs))
        return model.module.read(tensors)["continuous"].numpy().ravel()

    def test_a_constant_one_does_not_blow_up_queries(self, simulate):
        adata, query = simulate(1000).adata, simulate(5).adata
        adata.obs["dose"], query.obs["dose"] = 0.1, 0.2
        CountsDiffImputer.setup_anndata(adata, continuous_covariate_keys=["dose"])
        model = CountsDiffImputer(adata, n_hidden=4)
        np.testing.assert_allclose(self.network_sees(model, adata), 0, atol=1e-6)
        np.testing.assert_allclose(self.network_sees(model, query), 0.1, rtol=1e-5)

    def test_dates_in_seconds(self, simulate, train):
        adata = simulate(100).adata
        adata.obs["time"] = 1.7e9 + np.arange(100)
        CountsDiffImputer.setup_anndata(adata, continuous_covariate_keys=["time"])
        z = (np.arange(100) - 49.5) / np.arange(100).std()
        seen = []

        class Watch(Callback):
            def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
                seen.append(pl_module.module.read(batch)["continuous"].numpy().ravel())

        model = train(adata, train_size=1.0, batch_size=40, callbacks=[Watch()])
        np.testing.assert_allclose(np.sort(np.concatenate(seen)), z, atol=1e-5)
        np.testing.assert_allclose(self.network_sees(model, adata), z, atol=1e-5)

        read = model.module.read
        with mock.patch.object(model.module, "read", side_effect=read) as spy:
            model.generate(100, {"time": adata.obs["time"]}, n_steps=1, silent=True, batch_size=100)
        generated = read(*spy.call_args.args)["continuous"].numpy().ravel()
        np.testing.assert_allclose(generated, z, atol=1e-5)


class TestCellsThatAreNotAskedFor:
    """What their covariates are does not matter."""

    @pytest.mark.parametrize("value", ["new", None])
    def test_may_have_any_category(self, trained, query, sites, expected, value):
        query.obs["cell_type"] = query.obs["cell_type"].astype(object)
        query.obs.loc[query.obs_names[20:], "cell_type"] = value
        result = trained.impute(query, indices=np.arange(20), sites=sites, **(QUICK | {"batch_size": 10}))
        again = trained.impute(query[:20].copy(), sites=sites[:20], **(QUICK | {"batch_size": 10}))
        np.testing.assert_array_equal(result.toarray(), again.toarray())
        with pytest.raises(ValueError, match="cell_type"):
            trained.impute(query, indices=np.arange(21), sites=sites, **QUICK)

    def test_may_have_any_number(self, trained, query, sites):
        query.obs.loc[query.obs_names[20:], "age"] = np.nan
        trained.impute(query, indices=np.arange(20), sites=sites, **QUICK)
        with pytest.raises(ValueError, match=r"\['age'\] is missing in 1 of 21 cells"):
            trained.impute(query, indices=np.arange(21), sites=sites, **QUICK)


def test_own_data_that_was_normalised_in_place_is_noticed(model):
    model.adata.X = model.adata.X.log1p()
    for rows in (None, [7]):
        with pytest.raises(ValueError, match="looks log-normalised"):
            model.impute(indices=rows, silent=True)


@pytest.mark.parametrize(
    "method", ["impute", "denoise", "get_normalized_expression", "posterior_predictive_sample", "log_likelihood"]
)
def test_a_model_that_is_not_trained(query, method):
    model = CountsDiffImputer(query, n_hidden=4, n_layers=1)
    with pytest.raises(RuntimeError, match=re.escape("not trained yet: call `model.train()` first")):
        getattr(model, method)()
    with pytest.raises(RuntimeError, match="not trained yet"):
        model.generate(2)
