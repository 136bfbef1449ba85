"""Small models of several kinds, and what the tests of their methods share."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from sccountsdiff import CountsDiffImputer
from sccountsdiff.model import engine

TRAINED = {"batch_size": 64, "plan_kwargs": {"lr": 5e-3}, "early_stopping": False}


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
    """The status of every entry in each draw that is made, and in each pass for an expectation, in order."""
    calls, walk_together = [], engine._walk_together

    def _spy(draw, chains, *args, **kwargs):
        def seen():
            for chain in chains:
                calls.append(chain.status.numpy().copy())
                yield chain

        return walk_together(draw, seen(), *args, **kwargs)

    monkeypatch.setattr(engine, "_walk_together", _spy)
    return calls


@pytest.fixture(scope="session")
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


@pytest.fixture(scope="session")
def plain(simulate, train):
    """A model without covariates, hardly trained."""
    return train(simulate(30).adata, 1)


@pytest.fixture(scope="session")
def aged(simulate, train):
    """A model whose only covariate is continuous."""
    adata = simulate(30).adata
    CountsDiffImputer.setup_anndata(adata, continuous_covariate_keys=["age"])
    return train(adata, 1)


@pytest.fixture(scope="session")
def strict(simulate, train):
    """A model that has never seen a cell without its covariates."""
    adata = simulate(30).adata
    CountsDiffImputer.setup_anndata(adata, labels_key="cell_type", continuous_covariate_keys=["age"])
    return train(adata, 1, model_kwargs={"p_uncond": 0.0})


@pytest.fixture(scope="session")
def paper(simulate, train):
    """A model that was never shown a count as it is, trained until it is of use."""
    return train(simulate(360).adata, 60, model_kwargs={"n_hidden": 32, "observed_training": False}, **TRAINED)


@pytest.fixture
def watch():
    seen = []
    return seen, lambda move, state: seen.append((move, state.numpy()))
