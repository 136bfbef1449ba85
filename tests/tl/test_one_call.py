"""One call does what the model does in several, and leaves nothing behind but its results."""

from __future__ import annotations

import random

import anndata as ad
import numpy as np
import pytest
import scvi
import torch

import sccountsdiff
from sccountsdiff import CountsDiffImputer

TRAINING = {
    "max_epochs": 2,
    "model_kwargs": {"n_hidden": 8, "n_layers": 1},
    "train_kwargs": {"enable_progress_bar": False, "accelerator": "cpu"},
}
QUICK = {"n_samples": 2, "n_steps": 2, "n_folds": 2, "silent": True, **TRAINING}


@pytest.fixture
def adata(simulate):
    return simulate(40).adata


def test_the_layer_counts_is_the_default_as_it_is_of_the_model(adata):
    other = adata.copy()
    other.layers["counts"], other.X = other.X.copy(), other.X.log1p()
    for cells in (adata, other):
        sccountsdiff.tl.denoise(cells, silent=True, **TRAINING)
    np.testing.assert_array_equal(adata.layers["denoised"], other.layers["denoised"])
    with pytest.raises(ValueError, match=r"adata\.X holds"):
        sccountsdiff.tl.denoise(other, layer="X", key_added="again", silent=True, **TRAINING)


@pytest.mark.parametrize(
    ("call", "kwargs", "error", "message"),
    [
        ("impute", {"genes": ["nope"]}, KeyError, "the model has no gene 'nope'"),
        ("impute", {"n_samples": 1, "quantiles": [0.5]}, ValueError, "need `n_samples` above 1"),
        ("impute", {"n_samples": 1, "n_steps": 0}, ValueError, "n_steps"),
        ("impute", {"what": "zero"}, ValueError, "what"),
        ("impute", {"n_folds": 0}, ValueError, "n_folds"),
        ("impute", {"batch_size": 0}, ValueError, "batch_size"),
        ("impute", {"sites": np.ones((3, 2), dtype=bool)}, ValueError, "sites"),
        ("impute", {"transform_covariates": {"nope": 1}}, ValueError, "transform_covariates"),
        ("impute", {"sites": np.full((40, 20), 2)}, ValueError, "sites"),
        ("denoise", {"depth": 0.5}, ValueError, "depth"),
        ("denoise", {"final": "median"}, ValueError, "final"),
    ],
)
def test_values_are_checked_before_training(adata, monkeypatch, call, kwargs, error, message):
    monkeypatch.setattr(CountsDiffImputer, "train", None)
    with pytest.raises(error, match=message):
        getattr(sccountsdiff.tl, call)(adata, **kwargs)


@pytest.mark.parametrize(
    ("kwargs", "key", "message"),
    [
        ({"quantiles": [0.5]}, "imputed_q0.5", "would overwrite"),
        ({"sites": "imputed"}, "imputed", "would overwrite .* which holds `sites`"),
        ({"layer": "raw", "key_added": "ra", "quantiles": [0.5]}, "ra_q0.5", "would overwrite"),
    ],
)
def test_all_layers_that_would_be_replaced_are_found_before_training(adata, monkeypatch, kwargs, key, message):
    adata.layers["raw"], adata.layers[key] = adata.X.copy(), (adata.X > 0).astype(float)
    if key == "imputed":  # by an earlier call
        adata.uns["sccountsdiff"] = {"imputed": {"layers": ["imputed"]}}
    monkeypatch.setattr(CountsDiffImputer, "train", None)
    with pytest.raises(ValueError, match=message):
        sccountsdiff.tl.impute(adata, **kwargs)


def test_values_may_come_from_iterators(adata):
    adata.obs["batch"] = ["a", "b"] * 20
    turns = {"batch": iter(["a", "b"])}
    sccountsdiff.tl.impute(adata, batch_key="batch", transform_covariates=turns, **QUICK)
    assert "imputed" in adata.layers


def test_genes_may_be_named_one_after_the_other(adata):
    genes = [str(name) for name in adata.var_names[:3]]
    for number, named in enumerate((genes, iter(genes))):
        sccountsdiff.tl.impute(adata, genes=named, key_added=f"imputed{number}", silent=True, **TRAINING)
    found, expected = (adata.layers[f"imputed{number}"] for number in (1, 0))
    assert abs(found - adata.X).sum() > 0 and abs(found - expected).sum() == 0


@pytest.fixture
def by_hand(simulate, seeded):
    """The same model, made and trained in several calls."""
    adata = simulate(40).adata
    CountsDiffImputer.setup_anndata(adata, labels_key="cell_type")
    with seeded(3):
        model = CountsDiffImputer(adata, **TRAINING["model_kwargs"])
        model.train(2, **TRAINING["train_kwargs"])
    return model


def test_imputed_counts_are_those_of_the_model(adata, by_hand):
    assert sccountsdiff.tl.impute(adata, labels_key="cell_type", random_state=3, **QUICK) is None
    expected = by_hand.impute(n_samples=2, n_steps=2, n_folds=2, seed=3, silent=True)
    np.testing.assert_array_equal(adata.layers["imputed"], expected)
    note = adata.uns["sccountsdiff"]["imputed"]
    assert note["layers"] == ["imputed", "imputed_sd"] and note["seed"] == note["random_state"] == 3
    assert note["covariates"] == ["cell_type"] and note["n_epochs"] == 2


@pytest.mark.parametrize("quantiles", [0.5, np.array([0.1, 0.9])])
def test_quantiles_in_any_form(adata, quantiles):
    sccountsdiff.tl.impute(adata, quantiles=quantiles, **QUICK)
    assert {f"imputed_q{q:g}" for q in np.ravel(quantiles)} <= set(adata.layers)


@pytest.mark.parametrize(("call", "key"), [("impute", "imputed"), ("denoise", "denoised")])
def test_what_is_the_users_is_not_replaced_and_found_before_training(adata, monkeypatch, call, key):
    adata.layers[key] = mine = adata.X.copy()
    monkeypatch.setattr(CountsDiffImputer, "train", None)
    with pytest.raises(ValueError, match=f"would overwrite adata.layers\\['{key}'\\]"):
        getattr(sccountsdiff.tl, call)(adata)
    assert adata.layers[key] is mine
    with pytest.raises(TypeError, match="out"):
        sccountsdiff.tl.impute(adata, key_added="other", out="x.h5ad")


def test_denoised_counts_are_those_of_the_model(adata, by_hand):
    adata.layers["umi"], adata.X = adata.X, adata.X.log1p()
    kwargs = {"labels_key": "cell_type", "random_state": 3, "layer": "umi", "silent": True}
    assert sccountsdiff.tl.denoise(adata, depth=3, key_added="deep", **kwargs, **TRAINING) is None
    np.testing.assert_array_equal(adata.layers["deep"], by_hand.denoise(depth=3, silent=True))
    note = adata.uns["sccountsdiff"]["deep"]
    assert note["depth"] == 3 and note["layer"] == "umi" and note["layers"] == ["deep"]


@pytest.mark.parametrize(
    ("call", "layers"),
    [
        (lambda cells, **kwargs: sccountsdiff.tl.impute(cells, **QUICK, **kwargs), {"imputed", "imputed_sd"}),
        (lambda cells, **kwargs: sccountsdiff.tl.denoise(cells, silent=True, **TRAINING, **kwargs), {"denoised"}),
    ],
    ids=["impute", "denoise"],
)
class TestManners:
    def test_nothing_else_is_changed(self, adata, tmp_path, call, layers):
        before = adata.copy()
        call(adata)
        assert set(adata.layers) - {None} == layers and set(adata.uns) == {"sccountsdiff"}
        assert not adata.obsm and adata.obs.equals(before.obs) and adata.var.equals(before.var)
        np.testing.assert_array_equal(adata.X.toarray(), before.X.toarray())
        adata.write_h5ad(tmp_path / "cells.h5ad")
        notes = ad.read_h5ad(tmp_path / "cells.h5ad").uns["sccountsdiff"]
        assert set(notes) == layers - {"imputed_sd"}

    def test_a_copy_on_request(self, adata, call, layers):
        result = call(adata, copy=True)
        assert set(result.layers) - {None} == layers and not set(adata.layers) - {None} and not adata.uns

    def test_seeds_stay_as_they_are(self, adata, call, layers, monkeypatch):
        seed = scvi.settings.seed
        torch.manual_seed(5), np.random.seed(5), random.seed(5)
        expected = torch.rand(1), np.random.random(), random.random()
        torch.manual_seed(5), np.random.seed(5), random.seed(5)
        call(adata)
        assert (torch.rand(1), np.random.random(), random.random()) == expected and scvi.settings.seed == seed

    def test_bad_arguments_are_refused_before_training(self, adata, call, layers, monkeypatch, tmp_path):
        monkeypatch.setattr(CountsDiffImputer, "train", None)
        adata.layers["counts"] = adata.X.copy()
        for kwargs, error, message in (
            (
                {"layer": "counts", "key_added": "counts"},
                ValueError,
                "`key_added` must be the name of a layer other than",
            ),
            ({"random_state": -1}, ValueError, "`random_state` must be a whole number of at least 0"),
            ({"labels_key": "celltype"}, KeyError, "Did you mean 'cell_type'"),
        ):
            with pytest.raises(error, match=message):
                call(adata, **kwargs)
        with pytest.raises(TypeError, match="'n_sample"):
            call(adata, n_sample=3)
        adata.write_h5ad(tmp_path / "cells.h5ad")
        with pytest.raises(ValueError, match="is in a file"):
            call(ad.read_h5ad(tmp_path / "cells.h5ad", backed="r"))
