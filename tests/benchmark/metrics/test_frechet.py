"""Embedding of cells, and the distance of embedded cells."""

import os

import numpy as np
import pandas as pd
import pytest
import torch
from anndata import AnnData
from scvi.model import SCVI

from sccountsdiff.benchmark import metrics


@pytest.fixture(scope="module")
def cells():
    rng = np.random.default_rng(0)
    profiles = rng.gamma(1, 5, (2, 15))
    counts = rng.poisson(profiles[rng.integers(2, size=120)]).astype(np.float32)
    return AnnData(counts, var=pd.DataFrame(index=[f"g{i}" for i in range(15)]))


@pytest.fixture(scope="module")
def model(cells):
    return metrics.train_embedder(cells, n_latent=3, max_epochs=15, seed=1)


def test_worse_cells_are_further_away(cells, model):
    truth = metrics.embed(cells.X, model)
    assert truth.shape == (120, 3)
    rng = np.random.default_rng(1)
    slightly, badly = (np.where(rng.random(cells.shape) < rate, 0, cells.X) for rate in (0.1, 0.6))
    distances = [metrics.scfid(truth, metrics.embed(c, model)) for c in (cells.X, slightly, badly)]
    assert distances[0] == pytest.approx(0, abs=1e-8) and distances[0] < distances[1] < distances[2]


def test_training_is_seeded_and_leaves_the_cells_alone(cells, model):
    again = metrics.train_embedder(cells, n_latent=3, max_epochs=15, seed=1)
    np.testing.assert_array_equal(metrics.embed(cells.X, model), metrics.embed(cells.X, again))
    assert not cells.uns and cells.obs.columns.empty


def test_a_saved_model_by_path(cells, model, tmp_path):
    path = tmp_path / "model"
    model.save(path, save_anndata=False)
    loaded = metrics.load_embedder(path, cells.var_names, allow_pickle=True)
    np.testing.assert_allclose(metrics.embed(cells.X, loaded), metrics.embed(cells.X, model), atol=1e-5)

    order = np.random.default_rng(2).permutation(15)
    shuffled = metrics.embed(cells.X[:, order], loaded, genes=cells.var_names[order])
    np.testing.assert_allclose(shuffled, metrics.embed(cells.X, model), atol=1e-5)

    fewer = metrics.load_embedder(path, cells.var_names[:10], allow_pickle=True)
    without = cells.X.copy()
    without[:, 10:] = 0
    np.testing.assert_allclose(
        metrics.embed(cells.X[:, :10], fewer, genes=cells.var_names[:10]), metrics.embed(without, model), atol=1e-5
    )


def test_a_saved_model_with_a_layer_a_batch_and_covariates(cells, tmp_path):
    """As the model of the CELLxGENE census, which was set up with a batch."""
    rng = np.random.default_rng(3)
    reference = AnnData(
        np.zeros_like(cells.X),
        obs=pd.DataFrame(
            {
                "batch": rng.choice(["b1", "b2"], 120),
                "label": rng.choice(["l1", "l2"], 120),
                "donor": rng.choice(["d1", "d2"], 120),
                "age": rng.normal(size=120),
                "size": rng.uniform(1, 2, 120),
            },
            index=cells.obs_names,
        ),
        var=cells.var,
        layers={"umi": cells.X},
    )
    SCVI.setup_anndata(
        reference,
        layer="umi",
        batch_key="batch",
        labels_key="label",
        categorical_covariate_keys=["donor"],
        continuous_covariate_keys=["age"],
        size_factor_key="size",
    )
    model = SCVI(reference, n_latent=3)
    model.train(max_epochs=1, enable_progress_bar=False, logger=False)
    model.save(tmp_path / "model")
    loaded = metrics.load_embedder(tmp_path / "model", cells.var_names, allow_pickle=True)
    expected = model.get_latent_representation(reference)  # the encoder does not see batch and covariates
    np.testing.assert_allclose(metrics.embed(cells.X, loaded), expected, atol=1e-5)
    np.testing.assert_allclose(metrics.embed(cells.X[:, ::-1], loaded, cells.var_names[::-1]), expected, atol=1e-5)


def test_wrong_paths_and_genes(cells, model, tmp_path):
    with pytest.raises(FileNotFoundError, match="saved scvi-tools model"):
        metrics.load_embedder(tmp_path / "nothing", cells.var_names, allow_pickle=True)
    model.save(tmp_path / "model")
    with pytest.raises(ValueError, match="None of the 2 genes"):
        metrics.load_embedder(tmp_path / "model", pd.Index(["x", "y"]), allow_pickle=True)


@pytest.fixture
def ot():
    return pytest.importorskip("ot", reason="POT, the second implementation, is not installed")


def test_scfid_agrees_with_pot_and_the_closed_form(ot):
    rng = np.random.default_rng(5)
    a = rng.normal(size=(500, 6)) @ rng.normal(size=(6, 6))
    b = rng.normal(size=(400, 6)) @ rng.normal(size=(6, 6)) + 1
    assert metrics.scfid(a, b) == pytest.approx(
        ot.gaussian.empirical_bures_wasserstein_distance(a, b, reg=0) ** 2, rel=0.02
    )
    assert metrics.scfid(a, a) == pytest.approx(0, abs=1e-8)
    assert metrics.scfid(a, a + 2) == pytest.approx(6 * 4)
    # Independent dimensions: squared differences of the standard deviations.
    x = rng.normal(size=(200_000, 2))
    assert metrics.scfid(x, x * [2, 3]) == pytest.approx(1 + 4, rel=0.02)
    degenerate = np.c_[a[:, 0], a[:, 0]]
    assert metrics.scfid(degenerate, degenerate) == pytest.approx(0, abs=1e-6)
    with pytest.raises(ValueError, match="same dimensions"):
        metrics.scfid(a, b[:, :3])


def test_a_hostile_model_is_not_run(tmp_path, monkeypatch):
    class Touch:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "touched"),)

    torch.save({"model_state_dict": {}, "var_names": [], "attr_dict": Touch()}, tmp_path / "model.pt")
    with pytest.raises(ValueError, match="can run any code.*allow_pickle=True.*SCCOUNTSDIFF_ALLOW_PICKLE=1"):
        metrics.load_embedder(tmp_path, pd.Index(["x"]))
    assert not (tmp_path / "touched").exists()
    monkeypatch.setenv("SCCOUNTSDIFF_ALLOW_PICKLE", "1")
    with pytest.raises(Exception):  # noqa: B017 - it has run, and is no model
        metrics.load_embedder(tmp_path, pd.Index(["x"]))
    assert (tmp_path / "touched").exists(), "otherwise the proof proves nothing"
