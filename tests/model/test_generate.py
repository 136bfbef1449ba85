"""New cells, and what the model expects of the ones at hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy import stats

import sccountsdiff
from sccountsdiff import CountsDiffImputer
from sccountsdiff.model.settings import Sampler

TRAINED = {"batch_size": 64, "plan_kwargs": {"lr": 5e-3}, "early_stopping": False}


@pytest.fixture(scope="module")
def plain(simulate, train):
    """A model without covariates, hardly trained."""
    return train(simulate(30).adata, 1)


@pytest.fixture(scope="module")
def aged(simulate, train):
    """A model whose only covariate is continuous."""
    adata = simulate(30).adata
    CountsDiffImputer.setup_anndata(adata, continuous_covariate_keys=["age"])
    return train(adata, 1)


class TestGenerate:
    def test_counts_names_and_notes(self, trained):
        covariates = {"cell_type": ["T", "B", "NK", "T"], "age": 0.5}
        cells = trained.generate(4, covariates, n_steps=5, seed=3, silent=True)
        assert cells.shape == (4, 20) and sp.issparse(cells.X) and cells.X.format == "csr"
        assert (cells.X.data >= 0).all() and (cells.X.data == np.rint(cells.X.data)).all()
        assert cells.var_names.tolist() == trained.adata.var_names.tolist()
        assert cells.obs["cell_type"].tolist() == ["T", "B", "NK", "T"]
        assert cells.obs["age"].tolist() == [0.5] * 4
        noted = cells.uns["sccountsdiff"]["generated"]
        assert noted["seed"] == 3 and noted["n_steps"] == 5 and noted["version"] == sccountsdiff.__version__

    def test_seeds(self, trained):
        kwargs = {"covariates": {"cell_type": "B", "age": 0.0}, "n_steps": 3, "silent": True, "batch_size": 8}
        first = trained.generate(20, seed=1, **kwargs).X.toarray()
        np.testing.assert_array_equal(first, trained.generate(20, seed=1, **kwargs).X.toarray())
        assert (first != trained.generate(20, seed=2, **kwargs).X.toarray()).any()
        np.testing.assert_array_equal(first[:16], trained.generate(16, seed=1, **kwargs).X.toarray())  # whole blocks

    @pytest.mark.parametrize("guidance", [1.0, 1.5])
    def test_cells_of_a_type_are_like_that_type(self, trained, guidance):
        types = trained.adata.obs["cell_type"]
        counts = np.log1p(trained.adata.X.toarray())
        centres = {kind: counts[types == kind].mean(0) for kind in types.cat.categories}
        for kind in types.cat.categories:
            cells = trained.generate(
                60, {"cell_type": kind, "age": 0.0}, n_steps=15, guidance=guidance, seed=0, silent=True
            )
            mean = np.log1p(cells.X.toarray()).mean(0)
            distances = {other: np.linalg.norm(mean - centre) for other, centre in centres.items()}
            assert distances[kind] < 0.5 * min(d for other, d in distances.items() if other != kind)

    def test_without_covariates_the_types_are_mixed(self, trained):
        types = trained.adata.obs["cell_type"]
        counts = trained.adata.X.toarray()
        cells = trained.generate(150, n_steps=15, seed=0, silent=True)
        assert cells.obs.columns.empty
        profiles = np.stack([counts[types == kind].mean(0) for kind in types.cat.categories])
        profiles /= profiles.sum(1, keepdims=True)
        nearest = (cells.X.toarray() @ np.log(profiles + 1e-3).T).argmax(1)
        shares = np.bincount(nearest, minlength=3) / 150
        assert (shares > 0.1).all()

    def test_depth_varies_between_cells_as_in_the_data(self, trained):
        """More than noise would make it: the variance of totals is well above that of a Poisson number."""
        totals = trained.generate(150, n_steps=15, seed=0, silent=True).X.sum(1)
        assert totals.var() > 2 * totals.mean()

    def test_covariates_in_many_forms(self, trained):
        kinds, ages = ["B", "T", "T"], [0.1, 0.2, 0.3]
        kwargs = {"n_steps": 2, "seed": 0, "silent": True}
        expected = trained.generate(3, {"cell_type": kinds, "age": ages}, **kwargs).X.toarray()
        for covariates in (
            pd.DataFrame({"cell_type": kinds, "age": ages}, index=["x", "y", "z"]),
            {"age": np.array(ages), "cell_type": pd.Categorical(kinds)},
            {"age": pd.Series(ages), "cell_type": pd.Series(kinds, index=[5, 6, 7])},
            {"age": tuple(ages), "cell_type": np.array(kinds)},
            {"age": pd.Index(ages), "cell_type": pd.Index(kinds)},
        ):
            np.testing.assert_array_equal(trained.generate(3, covariates, **kwargs).X.toarray(), expected)

    def test_covariates_do_not_matter_without_guidance(self, trained):
        kwargs = {"n_steps": 2, "seed": 0, "silent": True, "guidance": 0}
        first = trained.generate(5, {"cell_type": "B", "age": 0.0}, **kwargs)
        second = trained.generate(5, {"cell_type": "T", "age": 3.0}, **kwargs)
        np.testing.assert_array_equal(first.X.toarray(), second.X.toarray())

    @pytest.mark.parametrize(
        ("covariates", "error", "message"),
        [
            ({"cell_type": "B"}, KeyError, r"must name cell_type, age; missing: age\."),
            ({"cell_type": "B", "age": 0, "sex": "f"}, KeyError, "must name cell_type, age; unknown: sex"),
            ({"cell_type": "HSC", "age": 0}, ValueError, "not trained on: 'HSC'. It knows 'B', 'NK', 'T'"),
            ({"cell_type": ["B", "T"], "age": 0}, ValueError, r"covariates\['cell_type'\] has 2 values for 3 cells"),
            ({"cell_type": "B", "age": "old"}, ValueError, r"^covariates\['age'\] is not numeric"),
            ({"cell_type": "B", "age": np.nan}, ValueError, r"^covariates\['age'\] is missing in 3 of 3 cells"),
            (
                {"cell_type": [np.nan] * 3, "age": 0},
                ValueError,
                r"^covariates\['cell_type'\] is missing in 3 of 3 cells",
            ),
            ("1", TypeError, "`covariates` must be a dict or a DataFrame, not '1'"),
        ],
    )
    def test_bad_covariates_are_named(self, trained, covariates, error, message):
        with pytest.raises(error, match=message):
            trained.generate(3, covariates)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"n_cells": 0}, "`n_cells` must be a whole number of at least 1, not 0"),
            ({"n_cells": 2.0}, "`n_cells` must be a whole number of at least 1, not 2.0"),
            ({"n_cells": 2, "attrition": [0.1]}, "`attrition` has 1 rates, but the walk has 50 reverse moves"),
            ({"n_cells": 2, "attrition": np.zeros((50, 3, 20))}, "`attrition` has rates for 3 cells, but there are 2"),
            ({"n_cells": 2, "n_steps": 0}, "`n_steps` must be"),
            ({"n_cells": 2, "batch_size": -1}, "`batch_size` must be"),
            ({"n_cells": 2, "attrition": 1.5}, "`attrition` must be"),
            ({"n_cells": 2, "seed": -5}, "`seed` must be"),
        ],
    )
    def test_bad_arguments_are_named(self, trained, arguments, message):
        with pytest.raises(ValueError, match=message):
            trained.generate(**arguments)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (
                {"nsteps": 3},
                r"generate\(\) takes no argument 'nsteps'\. Arguments of sampling are guidance, .* on_move",
            ),
            ({"guidence": 2}, r"generate\(\) takes no argument 'guidence'; did you mean 'guidance'\?"),
            ({"known": "noised"}, r"generate\(\) takes no argument 'known'"),
            ({"unseen_to_null": True}, r"generate\(\) takes no argument 'unseen_to_null'"),
        ],
    )
    def test_unknown_arguments_are_named(self, trained, arguments, message):
        with pytest.raises(TypeError, match=message):
            trained.generate(2, **arguments)

    def test_unseen_categories_come_with_advice_that_can_be_followed(self, trained):
        with pytest.raises(ValueError, match="Leave out `covariates` to generate cells without any") as caught:
            trained.generate(2, {"cell_type": ["B", "HSC"], "age": 0})
        assert "unseen_to_null" not in str(caught.value)
        assert trained.generate(2, n_steps=1, silent=True).shape == (2, 20)

    def test_notes_of_imputation_are_added(self, trained):
        cells = trained.generate(3, {"cell_type": "B", "age": 0.0}, n_steps=2, seed=1, silent=True)
        trained.impute(cells, n_samples=1, n_steps=1, n_folds=1, silent=True)
        assert set(cells.uns["sccountsdiff"]) == {"generated", "imputed"}

    def test_attrition_of_each_cell(self, trained):
        kwargs = {"n_steps": 3, "seed": 0, "silent": True, "batch_size": 4}
        rates = np.zeros((3, 10, 20), dtype=np.float32)
        rates[:, 5] = 1.0
        without, with_ = (trained.generate(10, attrition=a, **kwargs).X.toarray() for a in (0.0, rates))
        in_block = np.arange(10) // 4 == 1
        np.testing.assert_array_equal(with_[~in_block], without[~in_block])
        assert (with_[in_block] != without[in_block]).any()

    def test_models_without_covariates(self, plain):
        assert plain.generate(3, n_steps=2, silent=True).shape == (3, 20)
        assert plain.generate(3, {}, n_steps=2, silent=True).shape == (3, 20)
        with pytest.raises(KeyError, match="must name nothing: the model has none; unknown: cell_type"):
            plain.generate(3, {"cell_type": "B"})

    def test_models_with_continuous_covariates_only(self, aged):
        assert aged.generate(3, {"age": [0, 1, 2]}, n_steps=2, silent=True).shape == (3, 20)
        with pytest.raises(ValueError, match="Pass `covariates` with age"):
            aged.generate(3)


class TestLogLikelihood:
    def test_is_higher_for_cells_than_for_cells_with_permuted_genes(self, trained, query):
        shuffled = query.copy()
        shuffled.X = sp.csr_matrix(np.random.default_rng(0).permuted(query.X.toarray(), axis=1))
        gain = trained.log_likelihood(query, seed=0, silent=True) - trained.log_likelihood(
            shuffled, seed=0, silent=True
        )
        assert gain.shape == (50,)
        assert gain.mean() > 4 * gain.std(ddof=1) / np.sqrt(50)

    def test_is_a_lower_bound_on_average(self, trained, simulate):
        """The mean over cells cannot exceed that of the law the data comes from (Gibbs' inequality)."""
        new = simulate(200, seed=9)
        ours = trained.log_likelihood(new.adata, seed=0, silent=True)
        # Given its depth, age and type, which the model has to infer in part, a cell is Poisson.
        truth = stats.poisson.logpmf(new.adata.X.toarray(), new.rates).sum(1)
        gap = truth - ours
        assert gap.mean() > -4 * gap.std(ddof=1) / np.sqrt(200)
        assert gap.mean() < 0.5 * 20  # within half a nat for each gene

    def test_seed_and_order(self, trained, query):
        full = trained.log_likelihood(query, seed=0, silent=True, n_times=4, batch_size=10)
        rows = np.r_[20:30, 10:0:-1]
        part = trained.log_likelihood(query, np.r_[29:19:-1], seed=0, silent=True, n_times=4, batch_size=10)
        np.testing.assert_allclose(part, full[29:19:-1], rtol=1e-6)
        assert len(trained.log_likelihood(query, rows, n_times=1, silent=True)) == 20
        assert (full != trained.log_likelihood(query, seed=1, silent=True, n_times=4, batch_size=10)).any()

    def test_missing_entries_do_not_count(self, trained, query):
        counts = query.X.toarray()
        counts[:, :10] = np.nan
        query.X = counts
        half = trained.log_likelihood(query, seed=0, silent=True)
        assert np.isfinite(half).all()
        query.X = np.full_like(counts, np.nan)
        np.testing.assert_array_equal(trained.log_likelihood(query, seed=0, silent=True), 0)

    def test_refuses_no_times(self, trained, query):
        with pytest.raises(ValueError, match="`n_times` must be a whole number of at least 1, not 0"):
            trained.log_likelihood(query, n_times=0)


class TestNormalizedExpression:
    def test_cells_sum_to_the_library_size(self, trained, query):
        for size in (1e4, 7.5):
            expression = trained.get_normalized_expression(query, library_size=size, silent=True)
            np.testing.assert_allclose(expression.sum(1), size, rtol=1e-6)
            assert (expression > 0).all(axis=None)
        assert expression.index.equals(query.obs_names)
        assert expression.columns.tolist() == query.var_names.tolist()

    def test_is_close_to_the_truth(self, trained, simulate):
        new = simulate(100, seed=5)
        expression = trained.get_normalized_expression(new.adata, library_size=1, silent=True, return_numpy=True)
        truth = new.rates / new.rates.sum(1, keepdims=True)
        counts = new.adata.X.toarray()
        observed = counts / counts.sum(1, keepdims=True)
        error, raw = np.abs(expression - truth).sum(1), np.abs(observed - truth).sum(1)
        gain = raw - error
        assert gain.mean() > 4 * gain.std(ddof=1) / 10

    def test_genes_and_cells_on_request(self, trained, query):
        full = trained.get_normalized_expression(query, silent=True)
        some = trained.get_normalized_expression(query, silent=True, gene_list=["gene7", "gene2"])
        pd.testing.assert_frame_equal(some, full[["gene7", "gene2"]])
        for indices in ([9, 2, 2], -1 * np.arange(1, 4), np.arange(50) < 4, slice(3, 9, 2)):
            part = trained.get_normalized_expression(query, indices, silent=True, n_folds=1)
            assert part.index.tolist() == query.obs_names[indices].tolist()
        by_name = trained.get_normalized_expression(query, ["cell9", "cell2"], silent=True, n_folds=1)
        assert by_name.index.tolist() == ["cell9", "cell2"]

    @pytest.mark.parametrize(
        ("genes", "error", "message"),
        [
            (["gene1", "nope"], KeyError, "gene_list: the model has no gene 'nope'"),
            (["gen7"], KeyError, "no gene 'gen7'. Did you mean 'gene7'"),
            ("gene1", ValueError, r"`gene_list` must be a list of genes, not one name: pass \['gene1'\]"),
        ],
    )
    def test_genes_must_be_known_and_a_list(self, trained, query, monkeypatch, genes, error, message):
        monkeypatch.setattr(Sampler, "draw", None)  # refused before any work
        with pytest.raises(error, match=message):
            trained.get_normalized_expression(query, gene_list=genes)

    def test_a_gene_is_predicted_from_the_others(self, trained, query):
        """Changing one entry changes the prediction of others, but not its own (in the one fold it is hidden in)."""
        before = trained.get_normalized_expression(query, silent=True, return_numpy=True)
        counts = query.X.toarray()
        counts[5, 3] += 30
        query.X = counts
        ratio = trained.get_normalized_expression(query, silent=True, return_numpy=True) / before
        np.testing.assert_allclose(np.delete(ratio, 5, axis=0), 1, rtol=1e-4)
        # Those hidden together with it fall as much, the others are thought to come from a deeper cell.
        assert ratio[5, 3] == pytest.approx(ratio[5].min(), rel=1e-5) and ratio[5, 3] < ratio[5].max() / 1.2

    def test_refuses_no_folds(self, trained, query):
        with pytest.raises(ValueError, match="`n_folds` must be a whole number of at least 1, not 0"):
            trained.get_normalized_expression(query, n_folds=0)

    @pytest.mark.parametrize(
        ("size", "error", "message"),
        [
            ("latent", TypeError, "`library_size` must be a number, not 'latent'"),
            (-5, ValueError, "`library_size` must be a finite number above 0, not -5"),
            (np.inf, ValueError, "`library_size` must be a finite number above 0, not inf"),
        ],
    )
    def test_refuses_sizes_that_are_none(self, trained, query, monkeypatch, size, error, message):
        monkeypatch.setattr(Sampler, "draw", None)  # refused before any work
        with pytest.raises(error, match=message):
            trained.get_normalized_expression(query, library_size=size)


class TestPosteriorPredictive:
    def test_counts_that_cover_the_data(self, trained, simulate):
        new = simulate(100, seed=3).adata
        counts = new.X.toarray()
        draws = trained.posterior_predictive_sample(new, n_samples=40, n_steps=3, n_folds=4, seed=0, silent=True)
        assert draws.shape == (40, 100, 20)
        assert (draws >= 0).all() and (draws == np.rint(draws)).all()
        low, high = np.quantile(draws, [0.05, 0.95], axis=0)
        covered = ((counts >= low) & (counts <= high)).mean(1)  # one number for each cell: entries of it depend
        standard_error = covered.std(ddof=1) / 10
        # Discrete intervals cover more than their level; 40 draws bound them a little too tightly.
        assert covered.mean() > 0.9 - 0.02 - 4 * standard_error

    def test_intervals_are_narrower_than_those_of_the_marginals(self, trained, simulate):
        new = simulate(100, seed=3).adata
        draws = trained.posterior_predictive_sample(new, n_samples=40, n_steps=3, n_folds=4, seed=0, silent=True)
        within = draws.std(0).mean()
        assert within < 0.75 * new.X.toarray().std(0).mean()

    def test_type_seed_and_order(self, trained, query):
        kwargs = {"n_samples": 2, "n_steps": 1, "n_folds": 2, "silent": True, "batch_size": 10}
        full = trained.posterior_predictive_sample(query, seed=0, **kwargs)
        query.X = query.X.astype(np.int64)
        whole = trained.posterior_predictive_sample(query, seed=0, **kwargs)
        assert whole.dtype == np.int64
        np.testing.assert_array_equal(whole, full)
        rows = np.r_[19:9:-1]
        np.testing.assert_array_equal(trained.posterior_predictive_sample(query, rows, seed=0, **kwargs), full[:, rows])
        means = trained.posterior_predictive_sample(query, seed=0, final="mean", **kwargs)
        assert (means != np.rint(means)).any()  # not cut off to the type of the counts

    def test_unknown_arguments_are_named(self, trained, query):
        message = r"posterior_predictive_sample\(\) takes no argument 'n_step'; did you mean 'n_steps'\?"
        with pytest.raises(TypeError, match=message):
            trained.posterior_predictive_sample(query, n_step=3)

    @pytest.mark.parametrize("argument", ["n_samples", "n_folds", "n_steps"])
    def test_refuses_zero(self, trained, query, argument):
        with pytest.raises(ValueError, match=f"`{argument}` must be a whole number of at least 1, not 0"):
            trained.posterior_predictive_sample(query, **{argument: 0})


class TestDenoise:
    def test_adds_to_what_is_there_and_more_with_more_depth(self, trained, query):
        counts = query.X.toarray()
        deeper = [trained.denoise(query, depth=depth, silent=True) for depth in (1.01, 1.5, 2, 4, 8)]
        assert all((cells > counts).all() for cells in deeper)
        totals = np.stack([cells.sum(1) for cells in deeper])
        assert (np.diff(totals, axis=0) > 0).all()

    def test_totals_grow_with_depth(self, trained, simulate):
        """Given all of its counts, a cell twice as deep has about twice as many."""
        new = simulate(200, seed=11).adata
        totals = new.X.sum(1).A1
        for depth in (1.5, 2):
            ratio = trained.denoise(new, depth=depth, silent=True).sum() / totals.sum()
            assert ratio == pytest.approx(depth, rel=0.15)

    def test_is_closer_to_the_truth_than_scaling_up(self, trained, simulate):
        """The rates of the cell as sequenced are known: thin it to a half and ask for what was there."""
        new = simulate(200, seed=11)
        thinned = new.adata.copy()
        counts = np.random.default_rng(0).binomial(new.adata.X.toarray().astype(int), 0.5)
        thinned.X = counts.astype(np.float32)
        error = np.abs(trained.denoise(thinned, depth=2, silent=True) - new.rates)
        gain = (np.abs(2 * counts - new.rates) - error).mean(1)
        assert gain.mean() > 4 * gain.std(ddof=1) / np.sqrt(200)

    def test_order_and_missing_entries(self, trained, query):
        full = trained.denoise(query, silent=True)
        np.testing.assert_allclose(trained.denoise(query, [30, 4, 4], silent=True), full[[30, 4, 4]], rtol=1e-5)
        counts = query.X.toarray()
        counts[7, 3] = np.nan
        query.X = counts
        missing = trained.denoise(query, silent=True)
        assert np.isfinite(missing).all() and missing[7, 3] > 0
        np.testing.assert_allclose(np.delete(missing, 7, axis=0), np.delete(full, 7, axis=0), rtol=1e-5)

    @pytest.mark.parametrize("head", ["nb", "softplus"])
    def test_missing_entries_grow_like_observed_ones(self, request, simulate, train, head):
        """Missing completely at random, both are the same share of the true rates, whatever depth the model believes in."""
        if head == "nb":
            model = request.getfixturevalue("trained")
        else:
            adata = simulate(360).adata
            keys = {"categorical_covariate_keys": ["cell_type"], "continuous_covariate_keys": ["age"]}
            CountsDiffImputer.setup_anndata(adata, **keys)
            model = train(adata, 60, model_kwargs={"n_hidden": 32, "head": head}, **TRAINED)
        new = simulate(400, seed=11)
        missing = np.random.default_rng(0).random(new.rates.shape) < 0.3
        new.adata.X = np.where(missing, np.nan, new.adata.X.toarray())
        for depth in (1.2, 2, 5):
            deeper = model.denoise(new.adata, depth=depth, silent=True)
            of_missing = deeper[missing].sum() / new.rates[missing].sum()
            of_observed = deeper[~missing].sum() / new.rates[~missing].sum()
            # Within a tenth: 2,400 entries have a relative standard error of .02, predictions are some percent too low.
            assert of_missing == pytest.approx(of_observed, rel=0.1), depth

    @pytest.mark.parametrize("depth", [1, 0.5, -2, np.nan, np.inf])
    def test_refuses_depths_that_are_none(self, trained, query, depth):
        with pytest.raises(ValueError, match=f"`depth` must be a finite number above 1, not {depth}"):
            trained.denoise(query, depth=depth)
        with pytest.raises(TypeError, match="`depth` must be a number, not '2'"):
            trained.denoise(query, depth="2")

    def test_guidance_needs_covariates(self, plain):
        with pytest.raises(ValueError, match="`guidance=3` has nothing to act on: the model has no covariates"):
            plain.denoise(guidance=3)
        with pytest.raises(ValueError, match="`guidance=3` has nothing to act on: the model has no covariates"):
            plain.get_normalized_expression(guidance=3)


@pytest.fixture(scope="module")
def strict(simulate, train):
    """A model that has never seen a cell without its covariates."""
    adata = simulate(30).adata
    CountsDiffImputer.setup_anndata(adata, labels_key="cell_type", continuous_covariate_keys=["age"])
    return train(adata, 1, model_kwargs={"p_uncond": 0.0})


class TestNullState:
    """What a model without dropped covariates has never seen is refused, and all else works."""

    @pytest.mark.parametrize("guidance", [0, 0.5, 2])
    def test_guidance(self, strict, guidance):
        message = f"`guidance={guidance}` needs predictions without covariates, .*`p_uncond=0`. Use `guidance=1`"
        for method in (
            strict.impute,
            strict.denoise,
            strict.get_normalized_expression,
            strict.posterior_predictive_sample,
            lambda guidance: strict.generate(2, {"cell_type": "B", "age": 0.0}, guidance=guidance),
        ):
            with pytest.raises(ValueError, match=message):
                method(guidance=guidance)

    def test_generation(self, strict):
        with pytest.raises(ValueError, match="Pass `covariates` with cell_type, age: the model .* `p_uncond=0`"):
            strict.generate(2)
        with pytest.raises(ValueError, match="not trained on: 'HSC'") as caught:
            strict.generate(2, {"cell_type": "HSC", "age": 0.0})
        assert "Leave out `covariates`" not in str(caught.value)
        assert strict.generate(2, {"cell_type": "B", "age": 0.0}, n_steps=1, silent=True).shape == (2, 20)

    def test_unseen_categories(self, strict, query):
        quick = {"n_samples": 1, "n_steps": 1, "n_folds": 1, "silent": True, "unseen_to_null": True}
        strict.impute(query, **quick)  # there are none
        query.obs["cell_type"] = ["HSC", *query.obs["cell_type"][1:]]
        strict.impute(query, range(1, 50), **quick)  # none of those asked for
        for indices in (None, [3, 0]):
            with pytest.raises(ValueError, match="`unseen_to_null=True` treats .* `p_uncond=0` and has never seen"):
                strict.impute(query, indices, **quick)

    def test_models_without_covariates_have_nothing_to_drop(self, simulate, train):
        model = train(simulate(30).adata, 1, model_kwargs={"p_uncond": 0.0})
        assert model.generate(2, n_steps=1, silent=True).shape == (2, 20)
        kwargs = {"n_samples": 1, "n_steps": 1, "seed": 0, "silent": True}
        results = [model.impute(guidance=guidance, **kwargs).toarray() for guidance in (0, 1)]
        np.testing.assert_array_equal(*results)


@pytest.fixture(scope="module")
def paper(simulate, train):
    """A model that was never shown a count as it is, trained until it is of use."""
    return train(simulate(360).adata, 60, model_kwargs={"n_hidden": 32, "observed_training": False}, **TRAINED)


class TestPaperTraining:
    """The cell has to be inferred from noised counts."""

    def test_expected_expression_is_that_of_the_cell(self, paper, simulate):
        new = simulate(60, seed=5)
        kwargs = {"library_size": 1, "n_folds": 2, "batch_size": 20, "silent": True, "return_numpy": True}
        expression = paper.get_normalized_expression(new.adata, **kwargs)
        truth = new.rates / new.rates.sum(1, keepdims=True)
        error = np.abs(expression - truth).sum(1)
        of_the_mean = np.abs(expression.mean(0) - truth).sum(1)  # one answer for all cells
        gain = of_the_mean - error
        assert gain.mean() > 4 * gain.std(ddof=1) / np.sqrt(60)
        again = paper.get_normalized_expression(new.adata, slice(20, 40), **kwargs)  # a block
        np.testing.assert_array_equal(again, expression[20:40])

    def test_missing_entries_are_denoised_by_the_cell(self, paper, simulate):
        new = simulate(200, seed=6)
        missing = np.random.default_rng(0).random(new.rates.shape) < 0.3
        counts = new.adata.X.toarray()
        new.adata.X = np.where(missing, np.nan, counts)
        deeper = paper.denoise(new.adata, depth=2, silent=True)
        gene_mean = np.nanmean(new.adata.X, axis=0, keepdims=True)
        gain = np.where(missing, np.abs(2 * gene_mean - 2 * new.rates) - np.abs(deeper - 2 * new.rates), 0).sum(1)
        assert gain.mean() > 4 * gain.std(ddof=1) / np.sqrt(200)

    def test_a_short_grid_of_times_will_do(self, simulate, train):
        schedule = sccountsdiff.diffusion.Blackout(n_grid=5)
        model = train(simulate(20).adata, 1, model_kwargs={"schedule": schedule, "observed_training": False})
        assert model.get_normalized_expression(silent=True, n_folds=1).shape == (20, 20)
