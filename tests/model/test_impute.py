"""What is observed stays as it is, and what is filled in are counts."""

from __future__ import annotations

from functools import partial

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch

from sccountsdiff import CountsDiffImputer
from sccountsdiff.diffusion import MISSING, NOISED, OBSERVED, Cap, guide

FORMATS = {
    "dense": np.asarray,
    "csr_matrix": sp.csr_matrix,
    "csr_array": sp.csr_array,
    "csc_matrix": sp.csc_matrix,
    "csc_array": sp.csc_array,
}


DTYPES = ["int32", "int64", "float32", "float64"]
MEAN = {"n_steps": 1, "final": "mean"}


class TestObservedCounts:
    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("fmt", FORMATS)
    def test_come_back_bit_identical(self, impute, query, sites, dense, fmt, dtype):
        counts = query.X.toarray().astype(dtype)
        large = 2**24 + 2 if dtype == "float32" else 2**24 + 1  # what float32 cannot hold, unless it is float32
        kept = sites.copy()
        counts[[0, 20, 49], [0, 7, 19]], kept[[0, 20, 49], [0, 7, 19]] = large, False
        if np.dtype(dtype).itemsize == 8:
            counts[31, 4], kept[31, 4] = 2**40 + 1, False
        query.X = FORMATS[fmt](counts)

        one = impute(query, sites=kept, n_samples=1)
        assert sp.issparse(one) == (fmt != "dense")
        assert one.dtype == dtype
        np.testing.assert_array_equal(dense(one)[~kept], counts[~kept])
        # a mean needs fractions, so integers come back as floats that hold each of them
        mean = dense(impute(query, sites=kept))
        assert mean.dtype == "float64"  # single precision would not hold the largest of them
        assert [int(x) for x in mean[~kept]] == [int(x) for x in counts[~kept]]
        draws = impute(query, sites=kept, return_mean=False)
        assert draws.dtype == dtype
        assert all((draw[~kept] == counts[~kept]).all() for draw in draws)

    @pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "float16"])
    def test_types_too_small_for_draws_are_widened(self, impute, query, sites, dense, dtype):
        counts = query.X.toarray()
        counts = (counts > 0) if dtype == "bool" else np.minimum(counts, 100)
        query.X = counts.astype(dtype)
        one = impute(query, sites=sites, n_samples=1)
        assert one.dtype.itemsize >= 4
        np.testing.assert_array_equal(one[~sites], counts[~sites].astype(one.dtype))

    def test_negative_zero_and_explicit_zeros(self, impute, query, sites):
        counts = query.X.toarray()
        counts[counts == 0] = -0.0
        query.X = counts
        one = impute(query, sites=sites, n_samples=1)
        np.testing.assert_array_equal(one[~sites].view(np.int32), counts[~sites].view(np.int32))
        stored = sp.csr_matrix(np.ones_like(counts))
        stored.data[:] = counts.ravel()
        query.X = stored
        np.testing.assert_array_equal(impute(query, sites=sites, n_samples=1).toarray(), one)

    def test_are_seen_and_sites_are_not(self, impute, query, sites, dense):
        before = dense(impute(query, sites=sites))
        counts = query.X.toarray()
        counts[sites] = 99
        query.X = sp.csr_matrix(counts)
        np.testing.assert_array_equal(dense(impute(query, sites=sites)), before)
        counts[~sites] *= 2
        query.X = sp.csr_matrix(counts)
        assert (dense(impute(query, sites=sites))[sites] != before[sites]).any()


class TestDraws:
    @pytest.mark.parametrize("rounding", [None, "random", "nearest", "poisson", "mixture"])
    @pytest.mark.parametrize("known", ["clean", "noised"])
    def test_are_non_negative_integers(self, impute, query, sites, rounding, known):
        draws = impute(query, sites=sites, rounding=rounding, known=known, return_mean=False, n_steps=4)
        assert draws.shape == (2, *query.shape)
        assert (draws >= 0).all() and (draws == np.rint(draws)).all()
        assert (draws[0] != draws[1]).any()

    @pytest.mark.parametrize(
        "settings",
        [
            {"attrition": Cap(0.1)},
            {"attrition": torch.tensor([0.0, 0.2, 0.1])},
            {"jump_length": 2, "n_resamples": 2},
            {"guidance": 2.0},
            {"guidance": 0.0},
        ],
    )
    def test_under_other_settings(self, impute, query, sites, settings):
        draw = partial(impute, query, sites=sites, n_steps=3, spacing="even", return_mean=False)
        draws = draw(**settings)
        assert (draws >= 0).all() and (draws == np.rint(draws)).all()
        assert (draws != draw()).any()

    def test_one_draw_has_no_spread(self, model, sites):
        result = model.impute(sites=sites, n_samples=1, n_steps=2, silent=True)
        assert set(model.adata.layers) - {None} == {"imputed"}
        assert (result.data == np.rint(result.data)).all()

    def test_a_block_may_have_nothing_to_fill_in(self, impute, query, sites, dense):
        some = sites & (np.arange(50) >= 20)[:, None]
        counts = query.X.toarray()
        result = dense(impute(query, sites=some, quantiles=[0.5], key_added="imputed"))
        np.testing.assert_array_equal(result[:20], counts[:20])
        assert (result[some] != counts[some]).any()
        np.testing.assert_array_equal(dense(impute(query, sites=np.zeros_like(sites))), counts)

    @pytest.mark.parametrize("rounding", ["mixture", "random", "poisson"])
    def test_predictions_that_have_run_away(self, impute, query, sites, rounding):
        with pytest.raises(ValueError, match="it has run away. Use less `guidance`"):
            impute(query, sites=sites, guidance=1e5, rounding=rounding)


class TestBacked:
    @pytest.mark.parametrize("fmt", ["dense", "csr_matrix", "csc_matrix"])
    @pytest.mark.parametrize("dtype", ["int64", "float32"])
    def test_is_the_same_as_in_memory(self, impute, query, sites, dense, tmp_path, fmt, dtype):
        query.X = FORMATS[fmt](query.X.toarray().astype(dtype))
        query.layers["sites"] = sp.csr_matrix(sites)
        query.write_h5ad(tmp_path / "query.h5ad")
        backed = ad.read_h5ad(tmp_path / "query.h5ad", backed="r")
        for indices in (None, [40, 3, 3, 17, -1]):
            expected = dense(impute(query, indices, sites="sites"))
            result = impute(backed, indices, sites="sites")
            assert sp.issparse(result) == (fmt != "dense")
            np.testing.assert_array_equal(dense(result), expected)
        backed.file.close()

    def test_layers_are_added_and_the_file_stays(self, trained, query, sites, tmp_path):
        path = tmp_path / "query.h5ad"
        query.write_h5ad(path)
        content = path.read_bytes()
        backed = ad.read_h5ad(path, backed="r")
        result = trained.impute(backed, sites=sites, n_samples=1, n_steps=2, silent=True)
        assert backed.layers["imputed"] is result
        backed.file.close()
        assert path.read_bytes() == content


class TestOnePassMean:
    def test_is_the_mean_of_the_module_at_the_end_of_time(self, trained, query, impute, sites, dense):
        result = impute(query, sites=sites, **MEAN).toarray()
        _, tensors = trained._source(query).read(np.arange(50))
        cells = trained.module.read(tensors)
        status = torch.where(torch.from_numpy(sites), NOISED, OBSERVED)
        x = torch.where(status == OBSERVED, cells["x0"], 0.0)
        with torch.inference_mode():
            denoise = guide(trained.module.denoise_with(cells["categories"], cells["continuous"]), 1.0)
            expected = denoise(x, status, torch.ones(50)).mean.numpy()
        np.testing.assert_allclose(result[sites], expected[sites], rtol=1e-5)

    def test_is_deterministic(self, model, sites):
        first = model.impute(sites=sites, silent=True, seed=0, **MEAN).toarray()
        np.testing.assert_array_equal(first, model.impute(sites=sites, silent=True, seed=1, **MEAN).toarray())
        assert set(model.adata.layers) - {None} == {"imputed", "imputed_sd"}
        assert model.adata.uns["sccountsdiff"]["imputed"]["n_samples"] == 0

    def test_is_what_draws_average_to(self, impute, query, sites):
        mean = impute(query, sites=sites, **MEAN).toarray()[sites]
        # One step draws from the law whose mean this is. Sum over entries, in units of its standard error.
        draws = impute(query, sites=sites, n_steps=1, n_samples=200, return_mean=False)[:, sites].sum(1)
        standard_error = draws.std(ddof=1) / np.sqrt(len(draws))
        assert abs(draws.mean() - mean.sum()) < 4 * standard_error

    def test_final_mean_of_a_chain_varies_less_than_its_draws(self, impute, query, sites):
        kwargs = {"sites": sites, "n_steps": 3, "n_samples": 20, "return_mean": False}
        means = impute(query, final="mean", **kwargs)[:, sites]
        draws = impute(query, **kwargs)[:, sites]
        assert means.dtype == np.float32 and (means != np.rint(means)).any()
        assert 0 < means.var(0).mean() < draws.var(0).mean()

    def test_integers_do_not_cut_off_its_fractions(self, impute, query, sites):
        expected = impute(query, sites=sites, **MEAN).toarray()
        query.X = query.X.astype(np.int64)
        np.testing.assert_allclose(impute(query, sites=sites, **MEAN).toarray(), expected, rtol=1e-6)
        all_draws = impute(query, sites=sites, return_mean=False, n_samples=3, **MEAN)
        assert all_draws.shape == (3, *query.shape)  # all the same
        for draw in all_draws:
            np.testing.assert_allclose(draw, expected, rtol=1e-6)


class TestMissing:
    def test_nan_and_mask_are_both_filled_in_and_nothing_else(self, masked):
        model, nan, out = masked
        counts = model.adata.X
        result = model.impute(silent=True, key_added=None, **MEAN)
        assert (result[nan | out] > 0).all()
        np.testing.assert_array_equal(result[~(nan | out)], counts[~(nan | out)])
        draws = model.impute(silent=True, key_added=None, n_steps=2, n_samples=1)
        assert np.isfinite(draws).all() and (draws == np.rint(draws)).all()

    def test_the_network_never_sees_them(self, masked, spy):
        model, nan, out = masked
        before = model.impute(silent=True, key_added=None, **MEAN)
        np.testing.assert_array_equal(spy[0], np.where(nan | out, NOISED, OBSERVED))
        other = model.adata.copy()
        other.X = np.where(out & ~nan, 77, other.X)
        np.testing.assert_array_equal(
            model.impute(other, silent=True, key_added=None, **MEAN)[nan | out], before[nan | out]
        )

    def test_sites_leave_the_other_missing_entries_missing(self, masked, spy):
        model, nan, out = masked
        sites = nan & ~out
        result = model.impute(silent=True, key_added=None, sites=sites, **MEAN)
        np.testing.assert_array_equal(spy[0], np.select([sites, nan | out], [NOISED, MISSING], OBSERVED))
        np.testing.assert_array_equal(np.isnan(result), nan & ~sites)

    def test_nan_in_sparse_counts(self, masked):
        model, _, _ = masked
        other = model.adata.copy()
        other.X = sp.csr_matrix(other.X)
        result = model.impute(other, silent=True, key_added=None, **MEAN)
        np.testing.assert_array_equal(result.toarray(), model.impute(silent=True, key_added=None, **MEAN))

    def test_query_data_without_the_mask_counts_as_observed(self, masked):
        model, nan, out = masked
        other = model.adata.copy()
        del other.layers["seen"]
        result = model.impute(other, silent=True, key_added=None, **MEAN)
        np.testing.assert_array_equal(result[~nan], other.X[~nan])
        assert (result[nan] > 0).all()

    def test_zeros_of_expressed_genes_are_missing_on_request(self, train):
        # Algorithm 1 by hand: type a expresses genes 0 and 1, type b genes 1 and 2, nobody gene 3.
        counts = np.array([[5, 0, 0, 0], [0, 3, 0, 0], [4, 2, 0, 0], [0, 1, 6, 0], [0, 0, 2, 0]], dtype=np.float32)
        missing = np.array([[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0], [0, 1, 0, 0]], dtype=bool)
        adata = ad.AnnData(
            counts.repeat(4, axis=0),
            obs=pd.DataFrame({"type": np.repeat(["a", "a", "a", "b", "b"], 4)}, index=[str(i) for i in range(20)]),
        )
        CountsDiffImputer.setup_anndata(adata, labels_key="type", zeros="missing")
        model = train(adata, 1)
        np.testing.assert_array_equal(model.module.expressed.numpy(), [[1, 1, 0, 0], [0, 1, 1, 0]])
        result = model.impute(silent=True, **MEAN)
        np.testing.assert_array_equal(result != adata.X, missing.repeat(4, axis=0))
        # gene means are means of what is there
        np.testing.assert_allclose(model.module.denoiser.gene_means[:3], [9 / 4, 6 / 3, 8 / 5])

    def test_zeros_of_an_unknown_type_are_missing_if_any_type_expresses_the_gene(self, train):
        adata = ad.AnnData(
            np.tile(np.array([[5, 0, 0], [0, 3, 0]], dtype=np.float32), (8, 1)),
            obs=pd.DataFrame({"type": ["a", "b"] * 8}, index=[str(i) for i in range(16)]),
        )
        CountsDiffImputer.setup_anndata(adata, labels_key="type", zeros="missing")
        model = train(adata, 1)
        query = adata[:2].copy()
        query.obs["type"] = "c"
        result = model.impute(query, unseen_to_null=True, silent=True, **MEAN)
        np.testing.assert_array_equal(result != query.X, [[0, 1, 0], [1, 0, 0]])
        assert model.generate(3, silent=True).shape == (3, 3)


class TestTraining:
    def test_without_observed_training_observed_counts_are_noised(self, simulate, train):
        model = train(simulate(40).adata, 1, model_kwargs={"observed_training": False})
        with pytest.raises(ValueError, match=r"observed_training=False.*known='noised'"):
            model.impute(known="clean", silent=True)
        quick = {"n_samples": 1, "n_steps": 2, "n_folds": 2, "seed": 0, "silent": True}
        result = model.impute(known="noised", **quick)
        assert (result.data == np.rint(result.data)).all()
        np.testing.assert_array_equal(model.impute(**quick).toarray(), result.toarray())  # the default
        assert model.adata.uns["sccountsdiff"]["imputed"]["known"] == "noised"
        assert model.generate(3, n_steps=1, silent=True).shape == (3, 20)  # where nothing is observed, one step is fine

    @pytest.mark.parametrize("schedule", ["cosine", "fisher", "blackout"])
    @pytest.mark.parametrize("head", ["nb", "poisson", "softplus"])
    @pytest.mark.parametrize("backbone", ["mlp", "transformer"])
    def test_every_combination_trains_and_imputes(self, simulate, train, backbone, head, schedule):
        model_kwargs = {"backbone": backbone, "head": head, "schedule": schedule}
        model = train(simulate(32).adata, 1, model_kwargs=model_kwargs)
        assert np.isfinite(model.history["validation_loss"].to_numpy(dtype=float)).all()
        zeros = model.adata.X.toarray() == 0
        for known in ("clean", "noised"):
            result = model.impute(known=known, sites=zeros, n_samples=1, n_steps=3, silent=True).toarray()
            assert (result >= 0).all() and (result == np.rint(result)).all()
            np.testing.assert_array_equal(result[~zeros], model.adata.X.toarray()[~zeros])


class TestGuidance:
    def test_moves_predictions_away_from_the_unconditional_ones(self, impute, query, sites):
        without, with_, beyond = (
            impute(query, sites=sites, guidance=g, **MEAN).toarray()[sites].astype(float) for g in (0, 1, 2)
        )
        np.testing.assert_allclose(np.log(beyond), 2 * np.log(with_) - np.log(without), rtol=1e-3, atol=1e-3)
        assert np.abs(np.log(with_ / without)).max() > 0.1

    def test_at_zero_covariates_do_not_matter(self, impute, query, sites):
        before = impute(query, sites=sites, guidance=0).toarray()
        query.obs["age"] += 1
        query.obs["cell_type"] = "B"
        np.testing.assert_array_equal(impute(query, sites=sites, guidance=0).toarray(), before)
        assert (impute(query, sites=sites, guidance=1).toarray() != before).any()


class TestRefusals:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"n_steps": 0}, "`n_steps` must be a whole number of at least 1, not 0"),
            ({"n_steps": 2.5}, "`n_steps` must be a whole number"),
            ({"n_steps": 3.0}, r"`n_steps` must be a whole number of at least 1, not 3.0 \(float\): pass an int"),
            ({"n_samples": -1}, "`n_samples` must be a whole number of at least 0, not -1"),
            ({"n_samples": 2.0}, "`n_samples` must be a whole number of at least 0, not 2.0"),
            ({"n_samples": 0}, "`n_samples=0` makes no draws, and `n_steps` is a setting of how they are made"),
            (
                {"n_samples": 0, "return_mean": False},
                "`return_mean=False` returns draws: say with `n_samples` how many",
            ),
            ({"out": "result.h5ad"}, "`out` holds layers of all cells: .* name `key_added`"),
            ({"n_folds": 2.0}, "`n_folds` must be a whole number"),
            ({"batch_size": 16.0}, "`batch_size` must be a whole number"),
            ({"attrition": torch.zeros(1)}, "`attrition` has 1 rates, but the walk has 2 reverse moves"),
            ({"attrition": torch.zeros(3)}, "`attrition` has 3 rates, but the walk has 2 reverse moves"),
            ({"attrition": torch.zeros(2, 19)}, "`attrition` has rates for 19 genes, but there are 20"),
            ({"attrition": torch.zeros(2, 49, 20)}, "`attrition` has rates for 49 cells, but there are 50"),
            ({"attrition": "small"}, "`attrition` must be a number, a tensor of rates or"),
            ({"attrition": 1.5}, r"`attrition` must be within \[0, 1\], not 1.5"),
            ({"attrition": -0.1}, r"`attrition` must be within \[0, 1\], not -0.1"),
            ({"known": "hidden"}, "`known` must be 'clean' or 'noised', not 'hidden'"),
            ({"final": "median"}, "`final` must be 'sample', 'mean', 'log_mean' or None, not 'median'"),
            (
                {"rounding": "up"},
                "`rounding` must be 'random', 'nearest', 'poisson', 'nb', 'mixture', 'hurdle' or None, not 'up'",
            ),
            ({"guidance": -1}, "`guidance` must be finite and at least 0, not -1"),
            ({"guidance": np.nan}, "`guidance` must be finite and at least 0, not nan"),
            ({"jump_length": 0}, "`jump_length` must be"),
            ({"n_resamples": 0}, "`n_resamples` must be"),
            ({"n_folds": 0}, "`n_folds` must be a whole number of at least 1, not 0"),
            ({"batch_size": 0}, "`batch_size` must be a whole number of at least 1, not 0"),
            ({"batch_size": -3}, "`batch_size` must be a whole number of at least 1, not -3"),
            ({"seed": -1}, "`seed` must be a whole number of at least 0, not -1"),
            ({"seed": 2.7}, "`seed` must be a whole number of at least 0, not 2.7"),
            ({"quantiles": [0.5], "n_samples": 1}, "`quantiles` of draws need `n_samples` above 1"),
            ({"quantiles": [1.0], **MEAN}, "`quantiles` must be .*, and of a predicted law between 0 and 1"),
            ({"quantiles": [1.5]}, r"`quantiles` must be within \[0, 1\]"),
            ({"quantiles": np.nan}, r"`quantiles` must be within \[0, 1\]"),
            ({"quantiles": 0.5, "key_added": None}, "`quantiles` are written to layers, but nothing is written"),
            ({"quantiles": 0.5, "indices": [1], "key_added": "x"}, "`quantiles` are written to layers"),
            ({"known": "noised", **MEAN}, "`known='noised'` with `n_steps=1` has nothing to go by.*Use more steps"),
            ({"known": "noised", "n_resamples": 4, **MEAN}, "`known='noised'` with `n_steps=1` has nothing to go by"),
        ],
    )
    def test_bad_arguments_are_named_before_any_work(self, impute, query, spy, arguments, message):
        with pytest.raises(ValueError, match=message):
            impute(query, **arguments)
        assert not spy

    def test_numbers_of_numpy_are_numbers(self, impute, query, sites):
        expected = impute(query, sites=sites, attrition=0.25, return_mean=False)
        numpy_too = {"n_samples": np.int64(2), "n_steps": np.int32(2), "batch_size": np.uint8(16), "seed": np.int64(0)}
        draws = impute(query, sites=sites, attrition=np.float32(0.25), return_mean=False, **numpy_too)
        np.testing.assert_array_equal(draws, expected)

    @pytest.mark.parametrize(
        ("value", "message"),
        [(np.inf, "infinite"), (-1, "negative"), (0.5, "non-integer")],
    )
    def test_query_data_that_are_no_counts(self, impute, query, value, message):
        counts = query.X.toarray()
        counts[3, 4] = value
        query.X = counts
        with pytest.raises(ValueError, match=rf"{message} .*in cell 'cell3' \(row 3\), gene 'gene4'"):
            impute(query)
