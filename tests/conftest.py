"""Small synthetic counts with a known truth, and a small model trained on them."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import scvi
from anndata import AnnData

from sccountsdiff import CountsDiffImputer

N_GENES = 20
TYPES = np.array(["B", "NK", "T"])


@contextlib.contextmanager
def _seeded(seed):
    """Training and whatever else draws from the global streams, as after ``scvi.settings.seed = seed``."""
    before = scvi.settings.seed
    scvi.settings.seed = seed
    try:
        yield
    finally:
        scvi.settings.seed = before


def _simulate(n_cells: int, seed: int = 0) -> SimpleNamespace:
    """Poisson counts of rank-3 rates: a profile for each type, a depth for each cell, an effect of age on each gene."""
    world = np.random.default_rng(123)  # the same biology for every data set
    profiles = world.gamma(0.5, 4.0, (len(TYPES), N_GENES)) + 0.1
    slopes = world.normal(0, 0.3, N_GENES)
    rng = np.random.default_rng(seed)
    labels, age, depth = rng.integers(len(TYPES), size=n_cells), rng.normal(size=n_cells), rng.gamma(5, 0.2, n_cells)
    rates = depth[:, None] * profiles[labels] * np.exp(age[:, None] * slopes)
    adata = AnnData(
        sp.csr_matrix(rng.poisson(rates).astype(np.float32)),
        obs=pd.DataFrame(
            {"cell_type": pd.Categorical(TYPES[labels], categories=TYPES), "age": age},
            index=[f"cell{i}" for i in range(n_cells)],
        ),
        var=pd.DataFrame(index=[f"gene{j}" for j in range(N_GENES)]),
    )
    return SimpleNamespace(adata=adata, rates=rates, labels=labels, profiles=profiles)


def _train(adata: AnnData, max_epochs: int = 1, seed: int = 0, model_kwargs=None, **train_kwargs) -> CountsDiffImputer:
    """A narrow model, trained for a few epochs without chatter."""
    with _seeded(seed):
        model = CountsDiffImputer(adata, **{"n_hidden": 8, "n_layers": 1, **(model_kwargs or {})})
        model.train(max_epochs, **{"enable_progress_bar": False, "accelerator": "cpu", **train_kwargs})
    return model


@pytest.fixture(scope="session")
def seeded():
    return _seeded


@pytest.fixture(scope="session")
def simulate():
    return _simulate


@pytest.fixture(scope="session")
def train():
    return _train


@pytest.fixture(scope="session")
def trained(simulate):
    """A model of cells with a cell type and an age, trained until it is of use. Its data is not to be changed."""
    adata = simulate(360).adata
    CountsDiffImputer.setup_anndata(adata, categorical_covariate_keys=["cell_type"], continuous_covariate_keys=["age"])
    return _train(
        adata, 60, model_kwargs={"n_hidden": 32}, batch_size=64, plan_kwargs={"lr": 5e-3}, early_stopping=False
    )


@pytest.fixture(scope="session")
def saved(trained, tmp_path_factory):
    """Where the trained model is saved."""
    path = tmp_path_factory.mktemp("trained") / "model"
    trained.save(path)
    return path


@pytest.fixture
def model(saved, simulate):
    """The trained model with data of its own, 50 new cells, which a test may change."""
    return CountsDiffImputer.load(saved, adata=simulate(50, seed=1).adata, accelerator="cpu")


@pytest.fixture
def query(simulate):
    """The cells of ``model``, not set up."""
    return simulate(50, seed=1).adata


@pytest.fixture(scope="session")
def sites():
    """A third of the entries of ``query``."""
    return np.random.default_rng(2).random((50, N_GENES)) < 1 / 3


@pytest.fixture(scope="session")
def dense():
    return lambda matrix: matrix.toarray() if sp.issparse(matrix) else np.asarray(matrix)
