"""What the model expects of the cells at hand, and how likely they are."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import scvi
from scipy import stats

import sccountsdiff


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
            np.testing.assert_allclose(expression.sum(1), size, rtol=1e-5)
            assert (expression.dtypes == np.float32).all()
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

    def test_counts_at_the_depth_of_the_cell(self, trained, simulate):
        new = simulate(100, seed=5)
        kwargs = {"silent": True, "return_numpy": True}
        latent = trained.get_normalized_expression(new.adata, library_size="latent", **kwargs)
        shares = trained.get_normalized_expression(new.adata, library_size=1, **kwargs)
        np.testing.assert_allclose(latent / latent.sum(1, keepdims=True), shares, rtol=1e-5)
        # Totals are those of the cells, but for the noise of a Poisson number and the share that the model gets wrong.
        ratio = latent.sum(1) / new.rates.sum(1)
        assert abs(np.log(ratio).mean()) < 0.05 and np.corrcoef(latent.sum(1), new.rates.sum(1))[0, 1] > 0.9

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
        monkeypatch.setattr("sccountsdiff.model.engine.sample", None)  # refused before any work
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
            ("total", TypeError, "`library_size` must be a number, not 'total'"),
            (-5, ValueError, "`library_size` must be a finite number above 0, not -5"),
            (np.inf, ValueError, "`library_size` must be a finite number above 0, not inf"),
        ],
    )
    def test_refuses_sizes_that_are_none(self, trained, query, monkeypatch, size, error, message):
        monkeypatch.setattr("sccountsdiff.model.engine.sample", None)  # refused before any work
        with pytest.raises(error, match=message):
            trained.get_normalized_expression(query, library_size=size)


class TestPosteriorPredictive:
    def test_counts_that_cover_the_data(self, trained, simulate):
        new = simulate(100, seed=3).adata
        counts = new.X.toarray()
        draws = trained.posterior_predictive_sample(new, n_samples=40, n_steps=3, n_folds=4, seed=0, silent=True)
        assert draws.shape == (100, 20, 40)
        draws = draws.todense()
        assert (draws >= 0).all() and (draws == np.rint(draws)).all()
        low, high = np.quantile(draws, [0.05, 0.95], axis=-1)
        covered = ((counts >= low) & (counts <= high)).mean(1)  # one number for each cell: entries of it depend
        standard_error = covered.std(ddof=1) / 10
        # Discrete intervals cover more than their level; 40 draws bound them a little too tightly.
        assert covered.mean() > 0.9 - 0.02 - 4 * standard_error

    def test_intervals_are_narrower_than_those_of_the_marginals(self, trained, simulate):
        new = simulate(100, seed=3).adata
        draws = trained.posterior_predictive_sample(new, n_samples=40, n_steps=3, n_folds=4, seed=0, silent=True)
        within = draws.todense().std(-1).mean()
        assert within < 0.75 * new.X.toarray().std(0).mean()

    def test_type_seed_and_order(self, trained, query):
        kwargs = {"n_samples": 2, "n_steps": 1, "n_folds": 2, "silent": True, "batch_size": 10}
        full = trained.posterior_predictive_sample(query, seed=0, **kwargs)
        query.X = query.X.astype(np.int64)
        whole = trained.posterior_predictive_sample(query, seed=0, **kwargs)
        assert whole.dtype == np.int64
        np.testing.assert_array_equal(whole.todense(), full.todense())
        rows = np.r_[19:9:-1, 19]
        some = trained.posterior_predictive_sample(query, rows, seed=0, gene_list=["gene7", "gene2"], **kwargs)
        np.testing.assert_array_equal(some.todense(), full.todense()[rows][:, [7, 2]])
        one = trained.posterior_predictive_sample(query, seed=0, **(kwargs | {"n_samples": 1}))
        np.testing.assert_array_equal(one.todense(), full.todense()[..., 0])
        means = trained.posterior_predictive_sample(query, seed=0, final="mean", **kwargs).todense()
        assert (means != np.rint(means)).any()  # not cut off to the type of the counts

    def test_checks_of_scvi_tools_run_on_it(self, saved, query, seeded):
        """Of means and zeros of the genes, which the model has learnt; correlations over few genes vary by some hundredths."""
        query.X = query.X.astype(np.int64)  # scvi-tools cannot tell whether sparse floating-point numbers are counts
        model = sccountsdiff.CountsDiffImputer.load(saved, adata=query, accelerator="cpu")
        with seeded(1):
            check = scvi.criticism.PosteriorPredictiveCheck(query, {"countsdiff": model}, n_samples=10)
        check.zero_fraction()
        check.coefficient_of_variation("cells")
        zeros, variation = (check.metrics[name] for name in ("zero_fraction", "cv_gene"))
        counts = query.X.toarray()
        np.testing.assert_allclose(zeros["Raw"], (counts > 0).mean(0), rtol=1e-5)
        np.testing.assert_allclose(variation["Raw"], counts.std(0) / counts.mean(0), rtol=1e-4)
        assert np.corrcoef(zeros["Raw"], zeros["countsdiff"])[0, 1] > 0.95
        assert np.corrcoef(variation["Raw"], variation["countsdiff"])[0, 1] > 0.8

    def test_unknown_arguments_are_named(self, trained, query):
        message = r"posterior_predictive_sample\(\) takes no argument 'n_step'; did you mean 'n_steps'\?"
        with pytest.raises(TypeError, match=message):
            trained.posterior_predictive_sample(query, n_step=3)

    @pytest.mark.parametrize("argument", ["n_samples", "n_folds", "n_steps"])
    def test_refuses_zero(self, trained, query, argument):
        with pytest.raises(ValueError, match=f"`{argument}` must be a whole number of at least 1, not 0"):
            trained.posterior_predictive_sample(query, **{argument: 0})


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

    def test_a_short_grid_of_times_will_do(self, simulate, train):
        schedule = sccountsdiff.diffusion.Blackout(n_grid=5)
        model = train(simulate(20).adata, 1, model_kwargs={"schedule": schedule, "observed_training": False})
        assert model.get_normalized_expression(silent=True, n_folds=1).shape == (20, 20)
