"""Deeper cells have what is there, and more of it with more depth."""

from __future__ import annotations

import numpy as np
import pytest

from sccountsdiff import CountsDiffImputer

TRAINED = {"batch_size": 64, "plan_kwargs": {"lr": 5e-3}, "early_stopping": False}


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

    def test_unseen_counts_are_those_that_are_added(self, trained, query):
        deeper, unseen = (trained.denoise(query, depth=3, unseen=unseen, silent=True) for unseen in (False, True))
        np.testing.assert_allclose(deeper - query.X.toarray(), unseen, rtol=1e-4, atol=1e-4)

    def test_mean_of_logarithms_is_closer_to_log_counts(self, trained, simulate):
        """A second sequencing run, scaled to the total that was expected of it."""
        new = simulate(200, seed=11)
        counts = np.random.default_rng(0).poisson(new.rates)
        mean, log_mean = (trained.denoise(new.adata, final=f, unseen=True, silent=True) for f in ("mean", "log_mean"))
        assert ((0 < log_mean) & (log_mean < mean)).all()
        scale = 1e4 / mean.sum(1, keepdims=True)
        truth = np.log1p(scale * counts)
        gain = ((np.log1p(scale * mean) - truth) ** 2 - (np.log1p(scale * log_mean) - truth) ** 2).mean(1)
        assert gain.mean() > 4 * gain.std(ddof=1) / np.sqrt(200)
        with pytest.raises(ValueError, match="`final` must be 'mean' or 'log_mean', not 'sample'"):
            trained.denoise(new.adata, final="sample")

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
            model = train(adata, 100, model_kwargs={"n_hidden": 32, "head": head}, **TRAINED)
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

    def test_missing_entries_are_denoised_by_the_cell(self, paper, simulate):
        new = simulate(200, seed=6)
        missing = np.random.default_rng(0).random(new.rates.shape) < 0.3
        counts = new.adata.X.toarray()
        new.adata.X = np.where(missing, np.nan, counts)
        deeper = paper.denoise(new.adata, depth=2, silent=True)
        gene_mean = np.nanmean(new.adata.X, axis=0, keepdims=True)
        gain = np.where(missing, np.abs(2 * gene_mean - 2 * new.rates) - np.abs(deeper - 2 * new.rates), 0).sum(1)
        assert gain.mean() > 4 * gain.std(ddof=1) / np.sqrt(200)


class TestTargetSum:
    def test_every_cell_has_the_total(self, trained, query):
        totals = np.asarray(query.X.sum(1)).ravel()
        target = float(np.median(totals))
        result = trained.denoise(query, target_sum=target, silent=True)
        np.testing.assert_allclose(result.sum(1), target, rtol=1e-4)
        deep = totals >= target  # these are only scaled
        counts = query.X.toarray()[deep]
        np.testing.assert_allclose(result[deep], counts * (target / totals[deep])[:, None], rtol=1e-4)

    def test_is_depth_for_cells_of_one_total(self, trained, query):
        cell = query[[0] * 3].copy()
        cell.obs_names_make_unique()
        total = float(cell.X[0].sum())
        by_depth = trained.denoise(cell, depth=3, silent=True)
        by_total = trained.denoise(cell, target_sum=3 * total, silent=True)
        np.testing.assert_allclose(by_total, by_depth * (3 * total / by_depth.sum(1, keepdims=True)), rtol=1e-4)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"target_sum": 0}, "`target_sum` must be a finite number above 0"),
            ({"target_sum": 10, "depth": 2}, "`depth` and `target_sum` both say"),
            ({"target_sum": 10, "unseen": True}, "`target_sum` scales expected counts"),
        ],
    )
    def test_refusals(self, trained, query, arguments, message):
        with pytest.raises(ValueError, match=message):
            trained.denoise(query, **arguments)
