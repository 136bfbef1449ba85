"""A size factor is a continuous covariate of which the model sees the log."""

from __future__ import annotations

import numpy as np
import pytest
import scvi

from sccountsdiff import CountsDiffImputer

RNG_SEED = 3


@pytest.fixture(scope="module")
def cells(simulate):
    """Cells with a size factor, and its log."""
    adata = simulate(60).adata
    adata.obs["molecules"] = np.random.default_rng(RNG_SEED).lognormal(3, 1, adata.n_obs)
    adata.obs["log_molecules"] = np.log(adata.obs["molecules"])
    return adata


@pytest.fixture(scope="module")
def fitted(cells, train):
    """Train a model on the cells, changed by a function, with a set-up; the same noise each time."""

    def _fitted(change=lambda adata: None, **setup):
        adata = cells.copy()
        change(adata)
        CountsDiffImputer.setup_anndata(adata, **setup)
        scvi.settings.seed = 0
        return train(adata, 2)

    return _fitted


@pytest.fixture(scope="module")
def model(fitted):
    """A model with a size factor."""
    return fitted(size_factor_key="molecules")


def expected(model, adata=None, **kwargs) -> np.ndarray:
    """Expected counts of all genes."""
    return model.get_normalized_expression(adata, library_size="latent", return_numpy=True, silent=True, **kwargs)


def test_it_is_the_covariate_that_its_log_would_be(fitted, model):
    other = fitted(continuous_covariate_keys=["log_molecules"])
    np.testing.assert_allclose(expected(model), expected(other), rtol=1e-4)


def test_its_unit_does_not_matter(fitted, model):
    def rescale(adata):
        adata.obs["molecules"] *= 1000

    np.testing.assert_allclose(expected(fitted(rescale, size_factor_key="molecules")), expected(model), rtol=1e-4)


def test_it_acts(model, cells):
    deeper = cells.copy()
    deeper.obs["molecules"] *= 3
    assert (expected(model, deeper) != expected(model, cells)).any(1).all()


def test_replaced_it_is_as_in_cells_that_have_it(model, cells):
    """Of a cell of which nothing is seen there is nothing to carry over: only the covariate changes."""
    sites = np.ones(cells.shape, dtype=bool)
    asked = {"sites": sites, "key_added": None, "silent": True}
    other = cells.copy()
    other.obs["molecules"] = 50.0
    replaced = model.impute(cells, transform_covariates={"molecules": 50.0}, **asked)
    np.testing.assert_allclose(replaced.toarray(), model.impute(other, **asked).toarray(), rtol=1e-5)


def test_a_saved_model_takes_its_log_too(model, cells, tmp_path):
    model.save(tmp_path / "model")
    again = CountsDiffImputer.load(tmp_path / "model", adata=False)
    assert again.size_factor_key == "molecules"
    np.testing.assert_array_equal(expected(again, cells), expected(model, cells))


def test_generated_cells_have_one(model, cells):
    made = model.generate(20, {}, seed=0, n_steps=2, silent=True)
    assert np.isin(made.obs["molecules"], cells.obs["molecules"]).all()
    given = model.generate(20, {"molecules": 7.0}, seed=0, n_steps=2, silent=True)
    assert (given.obs["molecules"] == 7).all()


@pytest.mark.parametrize("value", [0.0, -1.0])
def test_numbers_that_have_no_log_are_refused(model, cells, value):
    some = cells.copy()
    some.obs.iloc[4, some.obs.columns.get_loc("molecules")] = value
    with pytest.raises(ValueError, match=r"'molecules'\] \(size_factor_key\) is not above 0 in 1 of 60 cells"):
        CountsDiffImputer.setup_anndata(some, size_factor_key="molecules")
    with pytest.raises(ValueError, match="not above 0"):
        model.impute(some, silent=True)
    with pytest.raises(ValueError, match="not above 0"):
        model.generate(2, {"molecules": value}, silent=True)
    with pytest.raises(ValueError, match="not above 0"):
        model.impute(cells, transform_covariates={"molecules": value}, silent=True)


def test_other_columns_are_refused_by_name(cells):
    with pytest.raises(KeyError, match="size_factor_key: 'molecule' not in adata.obs"):
        CountsDiffImputer.setup_anndata(cells.copy(), size_factor_key="molecule")
    with pytest.raises(TypeError, match="`size_factor_key` must be the name of a column"):
        CountsDiffImputer.setup_anndata(cells.copy(), size_factor_key=["molecules"])
