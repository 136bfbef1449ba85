"""Rows that come in blocks are put together without a second copy of them, and written where nothing is lost."""

from __future__ import annotations

import re
import tracemalloc

import anndata
import anndata as ad
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch

import sccountsdiff
from sccountsdiff import CountsDiffImputer
from sccountsdiff.diffusion import sample
from sccountsdiff.model.engine import fill
from sccountsdiff.model.results import RowCollector, as_dtype, check_key, count_dtype_of, result_layers, with_values


def collect(matrix, is_sparse, n_rows=7, order=None):
    rows = RowCollector(matrix.shape, matrix.dtype, is_sparse)
    for start in range(0, len(matrix), n_rows):
        rows.add(matrix[start : start + n_rows])
    return rows.finish(order)


@pytest.mark.parametrize("dtype", ["int32", "float32", "float64"])
@pytest.mark.parametrize("is_sparse", [True, False])
@pytest.mark.parametrize("n_rows", [1, 7, 100])
def test_the_rows_are_those_that_were_added(is_sparse, dtype, n_rows):
    rng = np.random.default_rng(0)
    density = np.linspace(0, 1, 30)[:, None]  # from empty to full, so that the first blocks say little of the rest
    for share in (density, density[::-1], 0.0, 1.0):
        matrix = (rng.integers(1, 9, (30, 5)) * (rng.random((30, 5)) < share)).astype(dtype)
        for order in (None, np.array([3, 29, 3, 0])):
            result = collect(matrix, is_sparse, n_rows, order)
            assert sp.issparse(result) == is_sparse and result.dtype == dtype
            found = result.toarray() if is_sparse else result
            np.testing.assert_array_equal(found, matrix if order is None else matrix[order])
            if is_sparse:
                assert result.nnz == np.count_nonzero(found) and result.has_canonical_format
                result.check_format(full_check=True)


@pytest.mark.parametrize("share", [0.3, 1.0])
def test_nothing_is_held_twice(share):
    rng = np.random.default_rng(0)
    matrix = (rng.random((400, 500)) + 1).astype(np.float32) * (rng.random((400, 500)) < share)
    tracemalloc.start()
    result = collect(matrix, is_sparse=True, n_rows=10)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # Two copies would be a ratio of two; NumPy 2.5 copies one of the two arrays, half of it all, to make it larger.
    assert peak < 1.7 * (result.data.nbytes + result.indices.nbytes)


class TestTypes:
    @pytest.mark.parametrize(
        ("of_counts", "expected"),
        [
            ("bool", "float32"),
            ("uint8", "int32"),
            ("int16", "int32"),
            ("int32", "int32"),
            ("uint64", "uint64"),
            ("float16", "float32"),
            ("float32", "float32"),
            ("float64", "float64"),
        ],
    )
    def test_are_those_of_the_counts_unless_draws_may_not_fit(self, of_counts, expected):
        assert count_dtype_of(np.dtype(of_counts)) == expected

    def test_draws_that_do_not_fit_are_refused(self):
        draws = np.array([3.0, 2.0**31])
        np.testing.assert_array_equal(as_dtype(draws, np.dtype("int64")), [3, 2**31])
        with pytest.raises(ValueError, match=r"A draw of 2\.14748e\+09 does not fit into the type of .* int32"):
            as_dtype(draws, np.dtype("int32"))
        assert as_dtype(draws[:0], np.dtype("int32")).dtype == "int32"

    def test_values_are_put_into_a_copy(self):
        block = np.array([[1, 2**40 + 1], [3, 4]])
        places = np.array([0, 3])
        out = with_values(block, places, np.array([7.0, 8.0]), np.dtype("int64"))
        np.testing.assert_array_equal(out, [[7, 2**40 + 1], [3, 8]])
        np.testing.assert_array_equal(block, [[1, 2**40 + 1], [3, 4]])


class TestKeys:
    @pytest.mark.parametrize(("key", "suffixes"), [("raw", [""]), ("ra", ["", "w"]), ("r", ["", "_sd", "aw"])])
    def test_that_would_overwrite_what_is_read_are_refused(self, key, suffixes):
        with pytest.raises(ValueError, match=rf"`key_added='{key}'` would overwrite adata.layers\['raw'\], .* counts"):
            check_key(key, suffixes, {"the counts": "raw", "their mask": None})

    def test_others_are_fine(self):
        check_key("imputed", ["", "_sd"], {"the counts": "raw", "their mask": None})
        for key in (None, 7, "", b"x"):
            with pytest.raises(ValueError, match="`key_added` must be the name of a layer or None, not "):
                check_key(key, [""], {})


class TestWhatIsThere:
    """Layers and notes that the user's data has already."""

    QUICK = {"n_samples": 2, "n_steps": 1, "n_folds": 1, "silent": True}

    @pytest.mark.parametrize("key", ["a/b", "/", ".", "..", "a\0", "a\nb"])
    def test_names_that_files_cannot_hold_are_refused(self, model, spy, key):
        with pytest.raises(ValueError, match="`key_added=.*cannot be the name of a layer in a file"):
            model.impute(key_added=key, **self.QUICK)
        assert not spy

    @pytest.mark.parametrize("notes", ["text", 3, ["a"]])
    def test_foreign_notes_are_refused_before_the_work(self, model, spy, notes):
        model.adata.uns["sccountsdiff"] = notes
        with pytest.raises(ValueError, match=r"adata\.uns\['sccountsdiff'\] is a .*: delete or rename it"):
            model.impute(**self.QUICK)
        assert not spy
        assert model.impute(key_added=None, **self.QUICK).shape == model.adata.shape

    @pytest.mark.parametrize("layer", ["imputed", "imputed_sd"])
    def test_a_layer_of_the_user_is_not_overwritten(self, model, spy, layer):
        model.adata.layers[layer] = model.adata.X.copy()
        with pytest.raises(ValueError, match=rf"overwrite adata\.layers\['{layer}'\], which `impute` has not written"):
            model.impute(**self.QUICK)
        assert not spy
        del model.adata.layers[layer]
        for _ in range(2):  # what it has written itself, it may replace
            model.impute(**self.QUICK)

    def test_a_forged_note_deletes_nothing(self, model):
        model.adata.layers["counts"] = model.adata.X.copy()
        model.adata.layers["imputed_by_hand"] = model.adata.X.copy()
        forged = {"layers": ["counts", "imputed_by_hand", "imputed_sd"]}
        model.adata.uns["sccountsdiff"] = {"imputed": forged, "other": "text", "third": {"layers": 3}}
        model.impute(**(self.QUICK | {"n_samples": 1}))
        assert set(model.adata.layers) - {None} == {"counts", "imputed_by_hand", "imputed"}

    @pytest.mark.parametrize("quantiles", [{}, "half", [None], [[0.1], "x"]])
    def test_quantiles_that_are_no_numbers_are_refused(self, model, spy, quantiles):
        with pytest.raises(ValueError, match="`quantiles` must be numbers within"):
            model.impute(quantiles=quantiles, **self.QUICK)
        assert not spy

    def test_seeds_that_files_cannot_hold_are_refused(self, model, spy, tmp_path):
        for seed in (2**63, 2**64, 2**200):
            with pytest.raises(ValueError, match="`seed` must be below 9223372036854775808"):
                model.impute(seed=seed, **self.QUICK)
        assert not spy
        model.impute(seed=2**63 - 1, **self.QUICK)
        model.adata.write_h5ad(tmp_path / "cells.h5ad")
        assert anndata.read_h5ad(tmp_path / "cells.h5ad").uns["sccountsdiff"]["imputed"]["seed"] == 2**63 - 1


class TestSummaries:
    def test_of_one_draw_is_the_draw(self):
        layers = result_layers(1, [], "sample", np.dtype("int32"), np.dtype("float64"))
        assert list(layers) == [""]
        dtype, _, summarise, _ = layers[""]
        assert dtype == "int32" and summarise(np.array([[3.0, 4.0]])).tolist() == [3, 4]

    def test_names_and_types_of_several(self):
        layers = result_layers(4, [0.1, 0.25], "sample", np.dtype("int32"), np.dtype("float64"))
        types = {suffix: dtype.name for suffix, (dtype, *_) in layers.items()}
        assert types == {"": "float64", "_sd": "float32", "_q0.1": "int32", "_q0.25": "int32"}
        draws = np.array([[1.0], [2.0], [3.0], [6.0]])
        found = {suffix: float(summarise(draws)[0]) for suffix, (_, _, summarise, _) in layers.items()}
        assert found == pytest.approx({"": 3.0, "_sd": np.std([1, 2, 3, 6], ddof=1), "_q0.1": 1.0, "_q0.25": 1.0})

    def test_summaries_are_those_of_the_draws(self, model, sites, dense):
        kwargs = {"sites": sites, "n_samples": 7, "n_steps": 3, "seed": 3, "silent": True}
        draws = model.impute(return_mean=False, key_added="d", quantiles=[0.1, 0.5], **kwargs)
        layers = model.adata.layers
        assert set(layers) - {None} == {"d", "d_sd", "d_q0.1", "d_q0.5"}
        np.testing.assert_allclose(dense(layers["d"]), draws.mean(0), rtol=1e-6)
        np.testing.assert_allclose(dense(layers["d_sd"]), draws.std(0, ddof=1), rtol=1e-5)
        assert (dense(layers["d_sd"])[~sites] == 0).all() and (dense(layers["d_sd"])[sites] > 0).any()
        # The least draw with at least that share of the seven at or below it: the first and the fourth.
        for q, rank in ((0.1, 0), (0.5, 3)):
            np.testing.assert_array_equal(dense(layers[f"d_q{q}"]), np.sort(draws, axis=0)[rank])
        averaged = model.impute(key_added=None, final="sample", **kwargs)
        np.testing.assert_array_equal(dense(averaged), dense(layers["d"]))

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
        assert set(model.adata.layers) - {None} == {"imputed", "imputed_sd"} | expected

    def test_a_quantile_is_the_least_draw_with_enough_of_them_at_or_below_it(self):
        draws = np.random.default_rng(0).permutation(np.arange(1, 101))[:, None]
        levels = [percent / 100 for percent in range(1, 101)]
        layers = result_layers(100, [0.0, 0.071, *levels], "sample", np.dtype("int64"), np.dtype("float64"))
        quantile = lambda q: layers[f"_q{q:g}"].of_draws(draws)
        for percent, level in enumerate(levels, start=1):
            assert quantile(level) == [percent], "of a hundred draws"
        assert quantile(0.0) == [1] and quantile(0.071) == [8]

    @pytest.mark.parametrize("kwargs", [{"return_mean": False}, {"indices": [3, 1], "key_added": "x"}, {}])
    def test_what_is_not_returned_is_not_computed(self, trained, query, sites, monkeypatch, kwargs):
        added = []
        monkeypatch.setattr(RowCollector, "add", lambda rows, block: added.append(block))
        monkeypatch.setattr(RowCollector, "finish", lambda rows, order: None)
        kwargs = {"key_added": None} | kwargs
        trained.impute(query, sites=sites, n_samples=2, n_steps=1, batch_size=50, silent=True, **kwargs)
        assert len(added) == (0 if "return_mean" in kwargs else 1), "one block of the mean, none of the deviation"

    def test_draws_that_do_not_fit_into_the_type_of_the_counts(self, impute, query, sites, monkeypatch):
        larger = lambda *a, **k: (block._replace(values=block.values + 2.0**31) for block in fill(*a, **k))
        monkeypatch.setattr("sccountsdiff.model.plan.fill", larger)
        for dtype in ("float32", "int64"):
            query.X = query.X.astype(dtype)
            assert impute(query, sites=sites, n_samples=1).toarray()[sites].min() >= 2**31
        query.X = query.X.astype("int32")
        for options in ({"n_samples": 1}, {"return_mean": False}):
            with pytest.raises(ValueError, match=r"A draw of 2\.\d+e\+09 does not fit into .*, int32"):
                impute(query, sites=sites, **options)


class TestWhatIsWritten:
    def test_nothing_with_indices(self, model, sites, assert_unchanged):
        before = model.adata.copy()
        model.impute(indices=np.arange(50), sites=sites, n_samples=2, n_steps=2, silent=True)
        assert_unchanged(model.adata, before)

    def test_nothing_but_the_keys_that_are_documented(self, model, sites, assert_unchanged):
        model.adata.layers["other"] = model.adata.X.copy()
        model.adata.obsm["X_pca"] = np.ones((50, 2))
        model.adata.uns["sccountsdiff"] = {"earlier": {"seed": 1}}
        before = model.adata.copy()
        result = model.impute(sites=sites, n_samples=2, n_steps=2, quantiles=[0.9], silent=True, seed=8, batch_size=20)
        layers = ["imputed", "imputed_sd", "imputed_q0.9"]
        assert_unchanged(model.adata, before, layers=layers, uns=["sccountsdiff"])
        assert set(model.adata.layers) - {None} == {"other", *layers}
        assert model.adata.layers["imputed"] is result
        assert model.adata.uns["sccountsdiff"]["earlier"] == {"seed": 1}
        assert model.adata.uns["sccountsdiff"]["imputed"] == {
            "what": "sites",
            "n_samples": 2,
            "n_steps": 2,
            "spacing": "geometric",
            "known": "clean",
            "guidance": 1.0,
            "attrition": "Rescale(eta=0.005)",
            "rounding": "mixture",
            "final": "mean",
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
        assert set(query.layers) - {None} == {"imputed", "imputed_note"}
        assert list(query.uns["sccountsdiff"]["imputed"]["layers"]) == ["imputed"]

    def test_layers_of_another_call_stay(self, model, sites):
        kwargs = {"sites": sites, "n_steps": 1, "silent": True}
        model.impute(n_samples=2, quantiles=[0.5], **kwargs)
        mine = model.impute(n_samples=1, key_added="imputed_sd", **kwargs)
        model.impute(n_samples=1, **kwargs)
        assert "imputed_q0.5" not in model.adata.layers and model.adata.layers["imputed_sd"] is mine

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
        before, n_calls = model.adata.copy(), 0

        def fail_on_the_second_block(*args, **kwargs):
            nonlocal n_calls
            n_calls += 1
            if n_calls == 2:
                raise RuntimeError("out of memory")
            return sample(*args, **kwargs)

        monkeypatch.setattr("sccountsdiff.model.engine.sample", fail_on_the_second_block)
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
        result = trained.impute(
            query, sites=sites, key_added=None, silent=True, n_steps=1, final="mean"
        )  # dropout must be off
        trained.module.eval()
        np.testing.assert_array_equal(
            result.toarray(),
            trained.impute(query, sites=sites, key_added=None, silent=True, n_steps=1, final="mean").toarray(),
        )
        assert all(torch.equal(value, before[name]) for name, value in trained.module.state_dict().items())


def test_a_view_of_data_in_a_file_is_refused_before_work_starts(trained, query, sites, tmp_path):
    query.write_h5ad(tmp_path / "cells.h5ad")
    view = ad.read_h5ad(tmp_path / "cells.h5ad", backed="r")[:10]
    kwargs = {"sites": sites[:10], "n_samples": 2, "n_steps": 2, "seed": 0, "silent": True}
    with pytest.raises(ValueError, match="view of data in a file.*`key_added=None`"):
        trained.impute(view, **kwargs)
    trained.impute(view, key_added=None, **kwargs)
