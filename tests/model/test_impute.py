"""What is observed stays as it is, what is filled in are counts, and the same seed gives the same ones."""

from __future__ import annotations

import logging
import re

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch

import sccountsdiff
from sccountsdiff import CountsDiffImputer
from sccountsdiff.diffusion import MISSING, NOISED, OBSERVED, Cap, guide
from sccountsdiff.model.engine import FillMixin
from sccountsdiff.model.impute import _quantile
from sccountsdiff.model.results import Canvas
from sccountsdiff.model.settings import Sampler
from sccountsdiff.module import OBSERVED_KEY

FORMATS = {
    "dense": np.asarray,
    "csr_matrix": sp.csr_matrix,
    "csr_array": sp.csr_array,
    "csc_matrix": sp.csc_matrix,
    "csc_array": sp.csc_array,
}
DTYPES = ["int32", "int64", "float32", "float64"]
MEAN = {"n_steps": 1, "final": "mean"}


@pytest.fixture
def impute(trained):
    """``impute`` of the trained model, with two draws of two steps unless told otherwise."""

    def _impute(adata, indices=None, **kwargs):
        quick = {"n_samples": 2, "n_steps": 2, "seed": 0, "batch_size": 16, "silent": True, "key_added": None}
        return trained.impute(adata, indices, **(quick | kwargs))

    return _impute


@pytest.fixture
def assert_unchanged(dense):
    """Return a function that compares two AnnData but for the keys named."""

    def _assert_unchanged(after, before, layers=(), uns=()):
        assert type(after.X) is type(before.X) and after.X.dtype == before.X.dtype
        np.testing.assert_array_equal(dense(after.X), dense(before.X))
        pd.testing.assert_frame_equal(after.obs, before.obs)
        pd.testing.assert_frame_equal(after.var, before.var)
        assert set(after.layers) - set(layers) == set(before.layers)
        for key in before.layers:
            np.testing.assert_array_equal(dense(after.layers[key]), dense(before.layers[key]))
        for name in ("obsm", "varm", "obsp", "varp"):
            theirs, ours = getattr(before, name), getattr(after, name)
            assert set(ours) == set(theirs)
            for key in theirs:
                np.testing.assert_array_equal(np.asarray(ours[key]), np.asarray(theirs[key]))
        assert {k: v for k, v in after.uns.items() if k not in uns} == {
            k: v for k, v in before.uns.items() if k not in uns
        }

    return _assert_unchanged


@pytest.fixture
def spy(monkeypatch):
    """The status of every entry in each call of the sampler, in order."""
    calls, draw = [], Sampler.draw

    def _spy(self, x0, status, *args):
        calls.append(status.numpy().copy())
        return draw(self, x0, status, *args)

    monkeypatch.setattr(Sampler, "draw", _spy)
    return calls


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
        assert mean.dtype == (dtype if dtype == "float32" else "float64")
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
    @pytest.mark.parametrize("rounding", [None, "random", "nearest", "poisson", "nb"])
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
        draws = impute(query, sites=sites, n_steps=3, return_mean=False, **settings)
        assert (draws >= 0).all() and (draws == np.rint(draws)).all()
        assert (draws != impute(query, sites=sites, n_steps=3, return_mean=False)).any()

    def test_summaries_are_those_of_the_draws(self, model, sites, dense):
        kwargs = {"sites": sites, "n_samples": 7, "n_steps": 3, "seed": 3, "silent": True}
        draws = model.impute(return_mean=False, key_added="d", quantiles=[0.1, 0.5], **kwargs)
        layers = model.adata.layers
        assert set(layers) == {"d", "d_sd", "d_q0.1", "d_q0.5"}
        np.testing.assert_allclose(dense(layers["d"]), draws.mean(0), rtol=1e-6)
        np.testing.assert_allclose(dense(layers["d_sd"]), draws.std(0, ddof=1), rtol=1e-5)
        assert (dense(layers["d_sd"])[~sites] == 0).all() and (dense(layers["d_sd"])[sites] > 0).any()
        # The least draw with at least that share of the seven at or below it: the first and the fourth.
        for q, rank in ((0.1, 0), (0.5, 3)):
            np.testing.assert_array_equal(dense(layers[f"d_q{q}"]), np.sort(draws, axis=0)[rank])
        np.testing.assert_array_equal(dense(model.impute(key_added=None, **kwargs)), dense(layers["d"]))

    @pytest.mark.parametrize("dtype", ["int64", "float32"])
    def test_quantiles_of_an_even_number_of_draws_are_counts(self, trained, query, sites, dense, dtype):
        query.X = query.X.astype(dtype)
        kwargs = {"sites": sites, "n_steps": 2, "seed": 0, "silent": True}
        trained.impute(query, n_samples=4, quantiles=[0.1, 0.5, 0.9], **kwargs)
        for q in (0.1, 0.5, 0.9):
            layer = query.layers[f"imputed_q{q}"]
            assert layer.dtype == dtype and (layer.data == np.rint(layer.data)).all()
            np.testing.assert_array_equal(dense(layer)[~sites], dense(query.X)[~sites])

    @pytest.mark.parametrize(
        "quantiles",
        [
            np.array([0.25, 0.75]),
            (0.25, 0.75),
            pd.Series([0.25, 0.75]),
            0.25,
            np.float32(0.25),
            [],
            [0.5, 0.5, 0.5 + 1e-9],
        ],
    )
    def test_quantiles_may_be_given_in_many_ways(self, model, sites, quantiles):
        model.impute(sites=sites, n_samples=2, n_steps=1, quantiles=quantiles, silent=True)
        expected = {f"imputed_q{q:g}" for q in np.ravel(quantiles)}
        assert set(model.adata.layers) == {"imputed", "imputed_sd"} | expected

    def test_one_draw_has_no_spread(self, model, sites):
        result = model.impute(sites=sites, n_samples=1, n_steps=2, silent=True)
        assert set(model.adata.layers) == {"imputed"}
        assert (result.data == np.rint(result.data)).all()

    def test_a_block_may_have_nothing_to_fill_in(self, impute, query, sites, dense):
        some = sites & (np.arange(50) >= 20)[:, None]
        counts = query.X.toarray()
        result = dense(impute(query, sites=some, quantiles=[0.5], key_added="imputed"))
        np.testing.assert_array_equal(result[:20], counts[:20])
        assert (result[some] != counts[some]).any()
        np.testing.assert_array_equal(dense(impute(query, sites=np.zeros_like(sites))), counts)


class TestRepeatability:
    def test_seed_and_batch_size_decide(self, impute, query, sites):
        draws = impute(query, sites=sites, return_mean=False)
        np.testing.assert_array_equal(draws, impute(query, sites=sites, return_mean=False))
        assert (draws != impute(query, sites=sites, return_mean=False, seed=1)).any()

    def test_without_a_seed_the_global_one_decides_and_is_noted(self, model, sites, seeded):
        draws = []
        for seed in (4, 4, 5):
            with seeded(seed):
                draws.append(model.impute(sites=sites, n_samples=1, n_steps=2, silent=True).toarray())
        np.testing.assert_array_equal(draws[0], draws[1])
        assert (draws[0] != draws[2]).any()
        noted = model.adata.uns["sccountsdiff"]["imputed"]["seed"]
        again = model.impute(sites=sites, n_samples=1, n_steps=2, silent=True, seed=noted)
        np.testing.assert_array_equal(draws[2], again.toarray())

    def test_the_default_type_of_torch_does_not_matter(self, trained, impute, query):
        before = impute(query, return_mean=False), trained.generate(5, n_steps=2, seed=0, silent=True).X.toarray()
        torch.set_default_dtype(torch.float64)
        try:
            after = impute(query, return_mean=False), trained.generate(5, n_steps=2, seed=0, silent=True).X.toarray()
        finally:
            torch.set_default_dtype(torch.float32)
        for first, second in zip(before, after, strict=True):
            np.testing.assert_array_equal(first, second)

    @pytest.mark.parametrize("kind", ["sites", "zeros"])
    def test_blocks_may_be_done_in_any_order_or_alone(self, impute, query, sites, kind):
        kwargs = {"return_mean": False, "sites": sites if kind == "sites" else None}
        full = impute(query, **kwargs)  # blocks of 16: rows 0-15, 16-31, 32-47, 48-49
        for blocks in ([3, 1], [2], [1, 0, 2, 3]):
            rows = np.concatenate([np.arange(16 * b, min(16 * b + 16, 50)) for b in blocks])
            np.testing.assert_array_equal(impute(query, rows, **kwargs), full[:, rows])
            np.testing.assert_array_equal(impute(query, rows[::-1], **kwargs), full[:, rows[::-1]])

    @pytest.mark.parametrize("kind", ["sites", "zeros"])
    def test_a_draw_does_not_depend_on_how_many_there_are(self, impute, query, sites, kind):
        kwargs = {"return_mean": False, "sites": sites if kind == "sites" else None}
        three = impute(query, n_samples=3, **kwargs)
        np.testing.assert_array_equal(three[:2], impute(query, n_samples=2, **kwargs))
        np.testing.assert_array_equal(three[:1], impute(query, n_samples=1, **kwargs))

    def test_blocks_and_draws_have_random_numbers_of_their_own(self, impute, query, sites):
        rows = np.tile(np.arange(16), 3)  # the same cells in each of three blocks
        draws = impute(query[rows].copy(), sites=sites[rows], return_mean=False, n_samples=3)[:, sites[rows]]
        streams = draws.reshape(9, -1)
        agreement = [(streams[i] == streams[j]).mean() for i in range(9) for j in range(i)]
        assert max(agreement) < 0.8

    def test_format_and_type_do_not_matter(self, impute, query, sites, dense):
        expected = impute(query, sites=sites).toarray()
        counts = query.X.toarray()
        for make in FORMATS.values():
            for dtype in DTYPES:
                query.X = make(counts.astype(dtype))
                np.testing.assert_array_equal(dense(impute(query, sites=sites)), expected)


class TestIndices:
    @pytest.mark.parametrize(
        "indices",
        [
            slice(None, None, -7),
            np.array([3, 1], dtype=np.uint64),
            [7, 3, 40, 21],
            [5, 5, 2, 5],
            [-1, 0, -50],
            np.arange(50) % 7 == 0,
            [i % 7 == 0 for i in range(50)],
            pd.Index([9, 8]),
            range(10, 2, -3),
        ],
    )
    def test_come_back_in_the_order_asked_for(self, impute, query, sites, dense, indices):
        rows = np.arange(50)[indices if isinstance(indices, slice) else np.asarray(indices)]
        mean = impute(query, sites=sites, **MEAN).toarray()
        np.testing.assert_allclose(impute(query, indices, sites=sites, **MEAN).toarray(), mean[rows], rtol=1e-5)
        draws = impute(query, indices, sites=sites, return_mean=False)
        assert draws.shape == (2, len(rows), query.n_vars)
        np.testing.assert_array_equal(draws[0][~sites[rows]], query.X.toarray()[rows][~sites[rows]])

    @pytest.mark.parametrize(
        "kind", [list, tuple, np.array, pd.Index, pd.Series, lambda names: pd.Index(names, dtype="string")]
    )
    def test_may_be_names(self, impute, query, sites, kind):
        by_position = impute(query, [4, 40, 4], sites=sites, return_mean=False)
        by_name = impute(query, kind(["cell4", "cell40", "cell4"]), sites=sites, return_mean=False)
        np.testing.assert_array_equal(by_name, by_position)

    def test_write_nothing(self, model, sites, assert_unchanged):
        before = model.adata.copy()
        model.impute(indices=np.arange(50), sites=sites, n_samples=2, n_steps=2, silent=True)
        assert_unchanged(model.adata, before)

    @pytest.mark.parametrize(
        ("indices", "message"),
        [
            ([], "names no cell"),
            ([50], "positions among the 50 cells"),
            ([-51], "positions among the 50 cells"),
            (np.ones(49, dtype=bool), "one value for each of the 50 cells"),
            (np.zeros(50, dtype=bool), "names no cell"),
            (slice(0, 0), "names no cell"),
            (["cell4", "cell50"], "names cell 'cell50', which is not in adata.obs_names"),
            ([1.0, 2.0], r"must be a list .* of whole numbers, of names .* or a slice; found \[1.0, 2.0\]"),
            ([[1, 2], [3, 4]], r"must be a list .* found \[\[1, 2\], \[3, 4\]\]"),
            (np.zeros((2, 2)), r"must be a list .* found float64 of shape \(2, 2\)"),
            (3, "must be a list .* found 3"),
            ("cell4", "must be a list .* found 'cell4'"),
        ],
    )
    def test_refuses_cells_that_are_not_there(self, impute, query, spy, indices, message):
        with pytest.raises((ValueError, IndexError, KeyError), match=message):
            impute(query, indices)
        assert not spy

    def test_names_must_be_unique(self, impute, query):
        query.obs_names = ["cell"] * 50
        with pytest.raises(ValueError, match="adata.obs_names are not unique: pass positions"):
            impute(query, ["cell"])


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


class TestWhatIsWritten:
    def test_nothing_but_the_keys_that_are_documented(self, model, sites, assert_unchanged):
        model.adata.layers["other"] = model.adata.X.copy()
        model.adata.obsm["X_pca"] = np.ones((50, 2))
        model.adata.uns["sccountsdiff"] = {"earlier": {"seed": 1}}
        before = model.adata.copy()
        result = model.impute(sites=sites, n_samples=2, n_steps=2, quantiles=[0.9], silent=True, seed=8, batch_size=20)
        layers = ["imputed", "imputed_sd", "imputed_q0.9"]
        assert_unchanged(model.adata, before, layers=layers, uns=["sccountsdiff"])
        assert set(model.adata.layers) == {"other", *layers}
        assert model.adata.layers["imputed"] is result
        noted = model.adata.uns["sccountsdiff"]
        assert noted["earlier"] == {"seed": 1}
        assert noted["imputed"] == {
            "n_samples": 2,
            "n_steps": 2,
            "known": "clean",
            "guidance": 1.0,
            "attrition": "Rescale(eta=0.005)",
            "rounding": "nb",
            "final": "sample",
            "jump_length": 1,
            "n_resamples": 1,
            "n_folds": 1,
            "seed": 8,
            "batch_size": 20,
            "version": sccountsdiff.__version__,
            "layers": layers,
        }

    def test_can_be_written_to_a_file(self, model, tmp_path, dense):
        model.impute(n_samples=2, n_steps=1, n_folds=2, attrition=torch.tensor([0.1]), silent=True)
        model.adata.write_h5ad(tmp_path / "imputed.h5ad")
        again = ad.read_h5ad(tmp_path / "imputed.h5ad")
        np.testing.assert_array_equal(dense(again.layers["imputed"]), dense(model.adata.layers["imputed"]))
        assert again.uns["sccountsdiff"]["imputed"]["n_folds"] == 2

    def test_a_second_key_leaves_the_first(self, model, sites):
        first = model.impute(sites=sites, n_samples=1, n_steps=1, silent=True, seed=0)
        values = first.toarray()
        model.impute(sites=sites, n_samples=1, n_steps=1, silent=True, seed=1, key_added="second")
        assert set(model.adata.uns["sccountsdiff"]) == {"imputed", "second"}
        assert model.adata.layers["imputed"] is first
        np.testing.assert_array_equal(first.toarray(), values)

    @pytest.mark.parametrize("saved", [False, True])
    def test_layers_of_an_earlier_call_go_with_it(self, trained, query, sites, tmp_path, saved):
        kwargs = {"sites": sites, "n_steps": 1, "silent": True}
        trained.impute(query, n_samples=2, quantiles=[0.5], **kwargs)
        query.layers["imputed_note"] = query.X.copy()  # of the user
        if saved:
            query.write_h5ad(tmp_path / "query.h5ad")
            query = ad.read_h5ad(tmp_path / "query.h5ad")
        trained.impute(query, n_samples=1, **kwargs)
        assert set(query.layers) == {"imputed", "imputed_note"}
        assert list(query.uns["sccountsdiff"]["imputed"]["layers"]) == ["imputed"]

    def test_layers_of_another_call_stay(self, model, sites):
        kwargs = {"sites": sites, "n_steps": 1, "silent": True}
        model.impute(n_samples=2, quantiles=[0.5], **kwargs)
        mine = model.impute(n_samples=1, key_added="imputed_sd", **kwargs)
        model.impute(n_samples=1, **kwargs)
        assert set(model.adata.layers) == {"imputed", "imputed_sd"} and model.adata.layers["imputed_sd"] is mine

    def test_notes_of_another_kind_stay(self, model, sites):
        model.adata.uns["sccountsdiff"] = {"seed": 3, "n_steps": 50}
        model.impute(sites=sites, n_samples=1, n_steps=1, silent=True)
        assert model.adata.uns["sccountsdiff"]["seed"] == 3

    def test_what_the_model_reads_is_not_overwritten(self, simulate, train, sites, spy):
        adata = simulate(50).adata
        adata.layers["raw"], adata.layers["raw_sd"] = adata.X.copy(), ~sites
        CountsDiffImputer.setup_anndata(adata, layer="raw", mask_layer="raw_sd")
        model = train(adata)
        adata.layers["x_q0.5"] = sites
        before = {name: np.array(layer.data if sp.issparse(layer) else layer) for name, layer in adata.layers.items()}
        for options, layer, what in (
            ({"key_added": "raw", "n_samples": 1}, "raw", "the counts"),
            ({"key_added": "raw", "n_samples": 2}, "raw", "the counts"),
            ({"key_added": "raw_sd", "n_samples": 1}, "raw_sd", "their mask"),
            ({"key_added": "x", "quantiles": 0.5, "sites": "x_q0.5"}, "x_q0.5", "`sites`"),
        ):
            message = re.escape(f"would overwrite adata.layers['{layer}'], which holds {what}")
            with pytest.raises(ValueError, match=message):
                model.impute(silent=True, **options)
        for key in (7, ""):
            with pytest.raises(ValueError, match=f"`key_added` must be the name of a layer or None, not {key!r}"):
                model.impute(key_added=key, silent=True)
        assert not spy
        for name, values in before.items():
            layer = adata.layers[name]
            np.testing.assert_array_equal(layer.data if sp.issparse(layer) else layer, values)
        model.impute(indices=[1], key_added="raw", n_samples=1, n_steps=1, silent=True)  # writes nothing
        adata.uns["sccountsdiff"] = {
            "imputed": {"layers": ["imputed", "raw", "raw_sd"]}
        }  # as if written by an earlier one
        model.impute(n_samples=1, n_steps=1, silent=True)
        assert set(adata.layers) == {*before, "imputed"}
        assert adata.uns["sccountsdiff"]["imputed"]["layer"] == "raw"  # what it was imputed from

    def test_only_names_that_are_written_matter(self, simulate, train, sites):
        adata = simulate(50).adata
        adata.layers["imputed_sd"] = ~sites
        CountsDiffImputer.setup_anndata(adata, mask_layer="imputed_sd")
        model = train(adata)
        model.impute(n_samples=1, n_steps=1, silent=True)
        with pytest.raises(ValueError, match="would overwrite adata.layers.'imputed_sd'., which holds their mask"):
            model.impute(n_samples=2, n_steps=1, silent=True)

    def test_nothing_when_it_fails_half_way(self, model, sites, monkeypatch, assert_unchanged):
        before, draw, n_calls = model.adata.copy(), Sampler.draw, 0

        def fail_on_the_second_block(self, *args):
            nonlocal n_calls
            n_calls += 1
            if n_calls == 2:
                raise RuntimeError("out of memory")
            return draw(self, *args)

        monkeypatch.setattr(Sampler, "draw", fail_on_the_second_block)
        with pytest.raises(RuntimeError, match="out of memory"):
            model.impute(sites=sites, n_samples=1, n_steps=2, batch_size=16, silent=True)
        assert_unchanged(model.adata, before)

    def test_query_data_is_written_to_itself(self, trained, query, sites, assert_unchanged):
        before = query.copy()
        trained.impute(query, sites=sites, n_samples=1, n_steps=1, silent=True)
        assert_unchanged(query, before, layers=["imputed"], uns=["sccountsdiff"])
        assert "imputed" in query.layers and "imputed" not in trained.adata.layers

    def test_weights_and_mode_of_the_network_stay(self, trained, query, sites):
        before = {name: value.clone() for name, value in trained.module.state_dict().items()}
        trained.module.train()
        result = trained.impute(query, sites=sites, key_added=None, silent=True, **MEAN)  # dropout must be off
        trained.module.eval()
        np.testing.assert_array_equal(
            result.toarray(), trained.impute(query, sites=sites, key_added=None, silent=True, **MEAN).toarray()
        )
        assert all(torch.equal(value, before[name]) for name, value in trained.module.state_dict().items())


class TestOnePassMean:
    def test_is_the_mean_of_the_module_at_the_end_of_time(self, trained, query, impute, sites, dense):
        result = impute(query, sites=sites, **MEAN).toarray()
        _, tensors = trained._source(query).read(np.arange(50), OBSERVED_KEY)
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
        assert set(model.adata.layers) == {"imputed"}  # no spread
        assert model.adata.uns["sccountsdiff"]["imputed"]["n_samples"] == 1

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


class TestZeros:
    def test_every_zero_is_filled_and_nothing_else(self, impute, query):
        counts = query.X.toarray()
        result = impute(query, **MEAN).toarray()
        assert (result[counts == 0] > 0).all()  # an expectation is never 0
        np.testing.assert_array_equal(result[counts > 0], counts[counts > 0])

    @pytest.mark.parametrize("n_folds", [1, 3])
    def test_each_is_predicted_once_from_all_other_entries(self, impute, query, spy, n_folds):
        impute(query, n_folds=n_folds, n_samples=1, batch_size=50)
        counts = query.X.toarray()
        assert len(spy) == n_folds
        np.testing.assert_array_equal(sum(status == NOISED for status in spy), counts == 0)
        assert all(((status == NOISED) | (status == OBSERVED)).all() for status in spy)
        sizes = [(status == NOISED).sum() for status in spy]
        n, p = (counts == 0).sum(), 1 / n_folds
        assert max(abs(size - n * p) for size in sizes) <= 4 * np.sqrt(n * p * (1 - p))

    def test_one_pass_mean_does_not_depend_on_where_the_zeros_are_marked(self, impute, query):
        zeros = query.X.toarray() == 0
        np.testing.assert_array_equal(
            impute(query, n_folds=1, **MEAN).toarray(), impute(query, sites=zeros, **MEAN).toarray()
        )


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


@pytest.fixture(scope="module")
def masked(simulate, train):
    """Model of data of which some entries are NaN, others masked out, some both."""
    adata = simulate(60).adata
    rng = np.random.default_rng(0)
    nan, out = rng.random((2, *adata.shape)) < 0.1
    counts = adata.X.toarray()
    adata.X = np.where(nan, np.nan, counts).astype(np.float32)
    adata.layers["seen"] = sp.csr_matrix(~out)
    CountsDiffImputer.setup_anndata(adata, mask_layer="seen")
    return train(adata, 2), nan, out


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

    def test_genes_that_the_model_does_not_know_may_be_missing(self, impute, query):
        expected = impute(query, **MEAN).toarray()
        more = ad.AnnData(
            np.column_stack([np.full(50, np.nan), query.X.toarray()]),
            obs=query.obs,
            var=pd.DataFrame(index=["other", *query.var_names]),
        )
        result = impute(more, **MEAN)
        np.testing.assert_array_equal(result[:, 1:], expected)
        assert np.isnan(result[:, 0]).all()

    def test_a_missing_entry_anywhere_leaves_zeros_alone(self, impute, query):
        """What becomes of a cell does not depend on which others are asked for."""
        counts = query.X.toarray()
        counts[49, 3] = np.nan
        query.X = counts
        np.testing.assert_array_equal(impute(query, range(16)), counts[:16])
        np.testing.assert_array_equal(impute(query)[:16], counts[:16])

    @pytest.mark.parametrize("what", ["counts", "mask"])
    def test_one_among_the_cells_asked_for_settles_it(self, masked, monkeypatch, what):
        model, _, _ = masked
        other = model.adata.copy()
        if what == "mask":
            other.X = other.layers["seen"].toarray().astype(np.int32)  # integers cannot be missing
        looked_at, read = [], sccountsdiff.model.impute.iter_some_rows

        def spy(matrix, rows):
            for some, block in read(matrix, rows):
                looked_at.extend(some)
                yield some, block

        monkeypatch.setattr(sccountsdiff.model.impute, "iter_some_rows", spy)
        model.impute(other, range(10, 30), silent=True, **MEAN)
        assert set(looked_at) == set(range(10, 30))

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
    def test_without_observed_training_known_counts_are_noised(self, simulate, train):
        model = train(simulate(40).adata, 1, model_kwargs={"observed_training": False})
        with pytest.raises(ValueError, match=r"observed_training=False.*known='noised'"):
            model.impute(silent=True)
        result = model.impute(known="noised", n_samples=1, n_steps=2, n_folds=2, silent=True)
        assert (result.data == np.rint(result.data)).all()
        assert model.generate(3, n_steps=1, silent=True).shape == (3, 20)  # where nothing is known, one step is fine

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


class TestAttrition:
    """Blocks of 16 cells: rows 0-15, 16-31, 32-47, 48-49."""

    def test_of_each_cell_is_found_in_every_block(self, impute, query, sites):
        kwargs = {"sites": sites, "n_steps": 3, "return_mean": False}
        rates = torch.full((3, 50, 20), 0.5)
        np.testing.assert_array_equal(
            impute(query, attrition=rates, **kwargs), impute(query, attrition=torch.full((3,), 0.5), **kwargs)
        )
        none = impute(query, attrition=0.0, **kwargs)
        rates = torch.zeros(3, 50, 20)
        rates[:, 20] = 1.0
        one = impute(query, attrition=rates, **kwargs)
        in_block = (np.arange(50) // 16) == 1  # which shares its random numbers
        np.testing.assert_array_equal(one[:, ~in_block], none[:, ~in_block])
        assert (one[:, in_block] != none[:, in_block]).any()
        rows = np.arange(16, 32)
        np.testing.assert_array_equal(impute(query, rows, attrition=rates, **kwargs), one[:, rows])


class TestProgress:
    def test_says_what_is_done(self, trained, query, sites, capsys):
        for work, what in (
            (lambda: trained.impute(query, sites=sites, n_samples=1, n_steps=1), "Imputing"),
            (lambda: trained.get_normalized_expression(query, n_folds=1), "Expectation"),
            (lambda: trained.posterior_predictive_sample(query, n_steps=1, n_folds=1), "Predictive draws"),
            (lambda: trained.denoise(query), "Denoising"),
        ):
            work()
            assert capsys.readouterr().err.strip().startswith(what)


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
            ({"n_samples": 0}, "`n_samples` must be a whole number of at least 1, not 0"),
            ({"n_samples": 2.0}, "`n_samples` must be a whole number of at least 1, not 2.0"),
            ({"n_samples": None}, "`n_samples` must be a whole number of at least 1, not None"),
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
            ({"final": "median"}, "`final` must be 'sample' or 'mean', not 'median'"),
            ({"rounding": "up"}, "`rounding` must be 'random', 'nearest', 'poisson', 'nb' or None, not 'up'"),
            ({"guidance": -1}, "`guidance` must be finite and at least 0, not -1"),
            ({"guidance": np.nan}, "`guidance` must be finite and at least 0, not nan"),
            ({"jump_length": 0}, "`jump_length` must be"),
            ({"n_resamples": 0}, "`n_resamples` must be"),
            ({"n_folds": 0}, "`n_folds` must be a whole number of at least 1, not 0"),
            ({"batch_size": 0}, "`batch_size` must be a whole number of at least 1, not 0"),
            ({"batch_size": -3}, "`batch_size` must be a whole number of at least 1, not -3"),
            ({"seed": -1}, "`seed` must be a whole number of at least 0, not -1"),
            ({"seed": 2.7}, "`seed` must be a whole number of at least 0, not 2.7"),
            ({"quantiles": [0.5], "n_samples": 1}, "`quantiles` .* need `n_samples` above 1"),
            ({"quantiles": [0.5], **MEAN}, "`quantiles` need draws, but `n_steps=1, final='mean'` is an expectation"),
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

    def test_a_word_is_no_strength(self, impute, query, spy):
        with pytest.raises(TypeError, match="`guidance` must be a number, not '2'"):
            impute(query, guidance="2")
        assert not spy

    def test_numbers_of_numpy_are_numbers(self, impute, query, sites):
        expected = impute(query, sites=sites, attrition=0.25, return_mean=False)
        numpy_too = {"n_samples": np.int64(2), "n_steps": np.int32(2), "batch_size": np.uint8(16), "seed": np.int64(0)}
        draws = impute(query, sites=sites, attrition=np.float32(0.25), return_mean=False, **numpy_too)
        np.testing.assert_array_equal(draws, expected)

    def test_draws_in_one_step_with_noised_counts_are_warned_of(self, impute, query, sites, caplog):
        with caplog.at_level(logging.WARNING, "sccountsdiff"):
            draws = impute(query, sites=sites, known="noised", n_steps=1, return_mean=False)
        assert "draws do not depend on the cell" in caplog.text
        query.X = query.X * 3
        np.testing.assert_array_equal(
            impute(query, sites=sites, known="noised", n_steps=1, return_mean=False)[:, sites], draws[:, sites]
        )

    @pytest.mark.parametrize("rounding", ["nb", "random", "poisson"])
    def test_predictions_that_have_run_away(self, impute, query, sites, rounding):
        with pytest.raises(ValueError, match="it has run away. Use less `guidance`"):
            impute(query, sites=sites, guidance=1e5, rounding=rounding)

    def test_draws_that_do_not_fit_into_the_type_of_the_counts(self, impute, query, sites, monkeypatch):
        fill = FillMixin._fill
        monkeypatch.setattr(FillMixin, "_fill", lambda *a, **k: ((c, f, d + 2.0**31) for c, f, d in fill(*a, **k)))
        for dtype in ("float32", "int64"):
            query.X = query.X.astype(dtype)
            assert impute(query, sites=sites, n_samples=1).toarray()[sites].min() >= 2**31
        query.X = query.X.astype("int32")
        for options in ({"n_samples": 1}, {"return_mean": False}):
            with pytest.raises(ValueError, match=r"A draw of 2\.\d+e\+09 does not fit into .*, int32"):
                impute(query, sites=sites, **options)

    def test_negative_binomial_draws_need_its_head(self, simulate, train):
        model = train(simulate(20).adata, 1, model_kwargs={"head": "poisson"})
        with pytest.raises(ValueError, match=r"`rounding='nb'` needs .*`head='nb'`.*head='poisson'"):
            model.impute(rounding="nb", silent=True)
        with pytest.raises(ValueError, match="`guidance=2` has nothing to act on: the model has no covariates"):
            model.impute(guidance=2, silent=True)

    def test_a_grid_of_times_bounds_the_steps(self, simulate, train):
        schedule = sccountsdiff.diffusion.Blackout(n_grid=5)
        model = train(simulate(20).adata, 1, model_kwargs={"schedule": schedule})
        model.impute(n_steps=4, n_samples=1, n_folds=1, silent=True)
        with pytest.raises(ValueError, match="`n_steps` can be at most 4 on the 5 time points"):
            model.impute(n_steps=5, silent=True)

    @pytest.mark.parametrize(
        "method", ["impute", "denoise", "get_normalized_expression", "posterior_predictive_sample", "log_likelihood"]
    )
    def test_a_model_that_is_not_trained(self, query, method):
        model = CountsDiffImputer(query, n_hidden=4, n_layers=1)
        with pytest.raises(RuntimeError, match=re.escape("not trained yet: call `model.train()` first")):
            getattr(model, method)()
        with pytest.raises(RuntimeError, match="not trained yet"):
            model.generate(2)

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


def test_a_view_of_data_in_a_file_is_refused_before_work_starts(trained, query, sites, tmp_path, monkeypatch):
    query.write_h5ad(tmp_path / "cells.h5ad")
    view = ad.read_h5ad(tmp_path / "cells.h5ad", backed="r")[:10]
    kwargs = {"sites": sites[:10], "n_samples": 2, "n_steps": 2, "seed": 0, "silent": True}
    with monkeypatch.context() as patch:
        patch.setattr(FillMixin, "_fill", None)
        with pytest.raises(ValueError, match="view of data in a file.*`key_added=None`"):
            trained.impute(view, **kwargs)
    trained.impute(view, key_added=None, **kwargs)


def test_a_quantile_is_the_least_draw_with_enough_of_them_at_or_below_it():
    draws = np.random.default_rng(0).permutation(np.arange(1, 101))[:, None]
    for percent in range(1, 101):
        assert _quantile(draws, percent / 100) == [percent], "of a hundred draws"
    assert _quantile(draws, 0.0) == [1] and _quantile(draws, 0.071) == [8]


@pytest.mark.parametrize("kwargs", [{"return_mean": False}, {"indices": [3, 1], "key_added": "x"}, {}])
def test_what_is_not_returned_is_not_computed(trained, query, sites, monkeypatch, kwargs):
    added = []
    monkeypatch.setattr(Canvas, "add", lambda canvas, block: added.append(block))
    monkeypatch.setattr(Canvas, "finish", lambda canvas, order: None)
    kwargs = {"key_added": None} | kwargs
    trained.impute(query, sites=sites, n_samples=2, n_steps=1, batch_size=50, silent=True, **kwargs)
    assert len(added) == (0 if "return_mean" in kwargs else 1), "one block of the mean, none of the deviation"
