"""A model that was saved imputes like the one it was saved from."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch

from sccountsdiff import CountsDiffImputer
from sccountsdiff.diffusion import Fisher, Schedule
from sccountsdiff.nn import MLP

QUICK = {"n_samples": 2, "n_steps": 3, "seed": 5, "batch_size": 16, "silent": True, "return_mean": False}


class Shallow(MLP):
    """A backbone of the user's own."""


class Power(Schedule):
    """A schedule of the user's own."""

    def _curve(self, t):
        return (1 - t) ** 3


def load(path, adata):
    return CountsDiffImputer.load(path, adata=adata, accelerator="cpu")


@pytest.fixture
def expected(trained, query, sites):
    return trained.impute(query.copy(), sites=sites, **QUICK)


def test_with_data(saved, query, sites, expected):
    model = load(saved, query)
    assert model.is_trained and model.adata is query
    np.testing.assert_array_equal(model.impute(sites=sites, **QUICK), expected)
    assert "imputed" in query.layers


def test_without_data(saved, query, sites, expected):
    model = load(saved, False)
    assert model.adata is None
    np.testing.assert_array_equal(model.impute(query, sites=sites, **QUICK), expected)
    assert model.generate(3, {"cell_type": "B", "age": 0.0}, n_steps=2, silent=True).shape == (3, 20)
    for method in (model.impute, model.denoise, model.log_likelihood):
        with pytest.raises(ValueError, match="The model was loaded without data: pass `adata`"):
            method()
    with pytest.raises(ValueError, match="The model was loaded without data: training needs `adata`"):
        model.train()


def test_with_the_data_saved_beside_it(trained, query, sites, expected, tmp_path):
    trained.save(tmp_path / "model", save_anndata=True)
    model = load(tmp_path / "model", None)
    np.testing.assert_array_equal(model.adata.X.toarray(), trained.adata.X.toarray())
    np.testing.assert_array_equal(model.impute(query, sites=sites, **QUICK), expected)
    own = model.impute(indices=range(16), n_folds=2, **QUICK)
    np.testing.assert_array_equal(own, trained.impute(indices=range(16), n_folds=2, **QUICK))


def test_what_was_learned_about_the_training_data_is_kept(trained, saved, query):
    """Means of genes and covariates are those of the training data, not of the data it is loaded with."""
    ours, theirs = trained.module.state_dict(), load(saved, query).module.state_dict()
    assert set(ours) == set(theirs)
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    for key in ("denoiser.gene_means", "location", "scale", "n_categories"):
        assert key in ours


def test_settings_history_and_registry_are_kept(trained, saved, query):
    model = load(saved, query)
    assert model.init_params_ == trained.init_params_
    np.testing.assert_array_equal(
        model.history["validation_loss"].to_numpy(float), trained.history["validation_loss"].to_numpy(float)
    )
    assert model.categories.keys() == trained.categories.keys()
    assert model.continuous_keys == trained.continuous_keys
    np.testing.assert_array_equal(model.validation_indices, trained.validation_indices)


def test_training_goes_on_after_loading(saved, query):
    model = load(saved, query)
    model.train(1, enable_progress_bar=False, accelerator="cpu")
    assert model.impute(n_samples=1, n_steps=1, n_folds=1, silent=True).shape == query.shape


def test_own_parts_and_settings(simulate, train, tmp_path):
    adata = simulate(30).adata
    settings = {"backbone": Shallow, "schedule": Power(), "head": "poisson", "p_uncond": 0.1, "dropout_rate": 0.0}
    model = train(adata, 1, model_kwargs=settings)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model", False)
    assert isinstance(again.module.denoiser.backbone, Shallow) and isinstance(again.module.schedule, Power)
    np.testing.assert_array_equal(again.impute(adata, **QUICK), model.impute(**QUICK))


def test_backbone_kwargs_and_grid(simulate, train, tmp_path):
    adata = simulate(30).adata
    settings = {"backbone": "transformer", "n_heads": 2, "schedule": Fisher(n_grid=20), "observed_training": False}
    model = train(adata, 1, model_kwargs=settings)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model", adata)
    assert again.module.schedule.n_grid == 20 and not again.module.observed_training
    kwargs = {**QUICK, "known": "noised", "n_folds": 1}
    np.testing.assert_array_equal(again.impute(**kwargs), model.impute(**kwargs))


def test_missing_zeros_and_masks(simulate, train, tmp_path):
    adata = simulate(40).adata
    adata.layers["seen"] = np.random.default_rng(0).random(adata.shape) < 0.9
    CountsDiffImputer.setup_anndata(adata, labels_key="cell_type", zeros="missing", mask_layer="seen")
    model = train(adata, 1)
    model.save(tmp_path / "model")
    expected = model.impute(key_added=None, **QUICK)
    few = adata[:16].copy()  # the genes its types express are those of the training data
    np.testing.assert_array_equal(load(tmp_path / "model", False).impute(few, **QUICK), expected[:, :16])
    np.testing.assert_array_equal(load(tmp_path / "model", few).impute(**QUICK), expected[:, :16])


class TestRefusals:
    def test_no_model(self, tmp_path, saved):
        missing = tmp_path / "nowhere"
        with pytest.raises(FileNotFoundError, match="No saved model in '.*nowhere': there is no such folder"):
            load(missing, False)
        with pytest.raises(FileNotFoundError, match=r"No saved model in .*: it holds no model\.json"):
            load(tmp_path, False)
        with pytest.raises(FileNotFoundError, match=r"it holds no best_model\.json"):
            CountsDiffImputer.load(saved, adata=False, prefix="best_")
        assert load(str(saved), False).is_trained

    def test_other_genes(self, saved, query):
        for other in (query[:, ::-1].copy(), query[:, [0, 0, *range(2, 20)]].copy(), query[:, :19].copy()):
            other.var_names_make_unique()
            with pytest.raises(ValueError, match="genes"):
                load(saved, other)

    def test_unseen_categories(self, saved, query):
        query.obs["cell_type"] = ["platelet", *query.obs["cell_type"][1:]]
        with pytest.raises(ValueError, match="platelet"):
            load(saved, query)

    def test_no_counts(self, saved, query):
        query.layers["umi"] = query.X.copy()
        query.X = query.X.log1p()
        # Nothing can be passed to the set-up of a model that is there.
        with pytest.raises(ValueError, match=r"looks log-normalised.*the model reads adata\.X, so set adata\.X = "):
            load(saved, query)
        query.X = query.layers["umi"]
        load(saved, query)

    def test_other_types(self, saved, query):
        with pytest.raises(TypeError, match="`adata` must be an AnnData or a MuData, not ndarray"):
            load(saved, query.X.toarray())


def test_apple_gpus_are_refused(saved, query, model, monkeypatch):
    """There, PyTorch has no binomials and no double precision."""
    for device in ("mps", torch.device("mps", 0)):
        with pytest.raises(ValueError, match=r"cannot draw binomials on Apple GPUs \(mps\)"):
            model.to_device(device)
    model.to_device("cpu")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    for accelerator in ("mps", "gpu"):
        with pytest.raises(ValueError, match=r"cannot draw binomials on Apple GPUs \(mps\)"):
            CountsDiffImputer.load(saved, adata=query, accelerator=accelerator)
        with pytest.raises(ValueError, match=r"cannot draw binomials on Apple GPUs \(mps\)"):
            model.train(accelerator=accelerator)


def test_a_trained_model_can_be_pickled(trained, query, sites, expected):
    """As it is to be sent to other processes."""
    again = pickle.loads(pickle.dumps(trained))
    np.testing.assert_array_equal(again.impute(query, sites=sites, **QUICK), expected)
