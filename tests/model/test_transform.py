"""Replaced covariates act, and leave alone what does not depend on them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from anndata import AnnData

from sccountsdiff import CountsDiffImputer
from sccountsdiff.diffusion import NOISED, OBSERVED
from sccountsdiff.model.transform import KEEP, read_transforms

MEAN = {"n_steps": 1, "final": "mean"}


@pytest.fixture
def methods(model, sites):
    """What takes ``transform_covariates``, as functions that return cells x genes."""

    def impute(**kwargs):
        return np.asarray(model.impute(sites=sites, key_added=None, silent=True, seed=0, **kwargs).todense())

    return {
        "expression": lambda **kwargs: model.get_normalized_expression(return_numpy=True, silent=True, **kwargs),
        "denoise": lambda **kwargs: model.denoise(silent=True, **kwargs),
        "mean": lambda **kwargs: impute(**MEAN, **kwargs),
    }


class TestIdentities:
    @pytest.mark.parametrize("name", ["expression", "denoise", "mean"])
    def test_its_own_value_changes_nothing_in_a_cell_and_another_does(self, methods, query, name):
        before, after = methods[name](), methods[name](transform_covariates={"cell_type": "B"})
        own = (query.obs["cell_type"] == "B").to_numpy()
        np.testing.assert_array_equal(after[own], before[own])
        assert (after[~own] != before[~own]).any(1).all()

    def test_its_own_value_of_a_continuous_covariate_does_not_either(self, methods, query):
        age = query.obs["age"].iloc[7]
        before, after = methods["expression"](), methods["expression"](transform_covariates={"age": age})
        changed = (after != before).any(1)
        assert not changed[7] and changed.sum() == len(query) - 1

    @pytest.mark.parametrize("known", ["clean", "noised"])
    def test_draws_of_cells_that_have_the_value_are_the_same(self, model, query, sites, known):
        own = np.flatnonzero(query.obs["cell_type"] == "B")
        asked = {"sites": sites, "n_samples": 2, "n_steps": 3, "known": known, "seed": 0, "silent": True}
        before, after = (
            model.impute(indices=own, **asked, **new) for new in ({}, {"transform_covariates": {"cell_type": "B"}})
        )
        np.testing.assert_array_equal(after.toarray(), before.toarray())

    @pytest.mark.parametrize("name", ["expression", "denoise", "mean"])
    def test_a_list_is_the_mean_over_its_values(self, methods, name):
        new = {"age": 0.5}
        single = [methods[name](transform_covariates=new | {"cell_type": value}) for value in ("B", "NK", "T")]
        several = methods[name](transform_covariates=new | {"cell_type": ["B", "NK", "T"]})
        np.testing.assert_allclose(several, np.mean(single, axis=0), rtol=1e-5)

    def test_draws_take_the_values_in_turn(self, model, sites):
        def draws(value):
            new = {"cell_type": value}
            return model.impute(
                sites=sites, transform_covariates=new, n_samples=4, n_steps=2, return_mean=False, seed=0, silent=True
            )

        b, t, both = draws("B"), draws("T"), draws(["B", "T"])
        np.testing.assert_array_equal(both[::2], b[::2])
        np.testing.assert_array_equal(both[1::2], t[1::2])

    def test_the_batch_is_the_covariate_of_that_name(self, simulate, train):
        adata = simulate(40).adata
        CountsDiffImputer.setup_anndata(adata, batch_key="cell_type")
        model = train(adata, 1)
        batch = model.get_normalized_expression(transform_batch="NK", silent=True)
        named = model.get_normalized_expression(transform_covariates={"cell_type": "NK"}, silent=True)
        pd.testing.assert_frame_equal(batch, named)


class TestCells:
    def test_expression_sums_to_the_library_size(self, methods):
        found = methods["expression"](library_size=50, transform_covariates={"cell_type": ["B", "T"], "age": -1.0})
        np.testing.assert_allclose(found.sum(1), 50, rtol=1e-6)

    def test_impute_returns_what_is_observed_as_it_is_and_notes_the_values(self, model, sites, dense):
        found = dense(
            model.impute(sites=sites, transform_covariates={"cell_type": ["B", "T"]}, silent=True, n_samples=2)
        )
        np.testing.assert_array_equal(found[~sites], dense(model.adata.X)[~sites])
        assert model.adata.uns["sccountsdiff"]["imputed"]["transform_covariates"] == ["cell_type=B", "cell_type=T"]

    def test_what_is_not_observed_is_neither_looked_at_nor_carried_over(self, trained):
        (transform,) = read_transforms(trained, {"cell_type": "T"})
        cells = trained.module.read(trained._source().read(np.arange(20))[1])
        status = torch.full_like(cells["x0"], OBSERVED)
        status[:, ::3] = NOISED
        other = cells | {"x0": cells["x0"] + 5 * (status == NOISED)}
        with torch.inference_mode():
            first, second = (transform(trained.module, some, status)["x0"] for some in (cells, other))
        torch.testing.assert_close(first[status == OBSERVED], second[status == OBSERVED], rtol=0, atol=0)
        assert (first[status == NOISED] == cells["x0"][status == NOISED]).all() and (first >= 0).all()

    def test_counts_that_are_to_be_thinned_are_rounded_at_random(self, trained):
        (transform,) = read_transforms(trained, {"cell_type": "T"})
        cells = trained.module.read(trained._source().read(np.arange(200))[1])
        status = torch.full_like(cells["x0"], OBSERVED)
        with torch.inference_mode():
            exact = transform(trained.module, cells, status)["x0"]
            whole = transform(trained.module, cells, status, rounding=torch.Generator().manual_seed(0))["x0"]
        assert (whole == whole.round()).all() and ((whole - exact).abs() < 1).all()
        share = exact.frac()
        standard_error = (share * (1 - share)).sum().sqrt()
        assert (whole - exact).sum().abs() < 4 * standard_error

    @pytest.mark.parametrize("known", ["clean", "noised"])
    def test_missing_entries_are_filled_in_as_under_the_new_value(self, model, sites, known):
        found = model.impute(
            sites=sites, transform_covariates={"age": 1.0}, n_samples=1, n_steps=3, known=known, silent=True
        )
        assert (found.data == found.data.round()).all()

    def test_a_model_that_was_never_shown_counts_as_they_are_goes_by_the_covariates(self, simulate, train):
        adata = simulate(120).adata
        CountsDiffImputer.setup_anndata(adata, categorical_covariate_keys=["cell_type"])
        paper = train(adata, 30, model_kwargs={"observed_training": False}, plan_kwargs={"lr": 5e-3})
        before = paper.denoise(silent=True)
        after = paper.denoise(transform_covariates={"cell_type": "B"}, silent=True)
        own = (adata.obs["cell_type"] == "B").to_numpy()
        np.testing.assert_array_equal(after[own], before[own])
        assert (after[~own] != before[~own]).any(1).all()


class TestErrors:
    @pytest.mark.parametrize(
        ("new", "error", "message"),
        [
            ({"cel_type": "B"}, KeyError, "'cel_type' is not a covariate of the model.*Did you mean 'cell_type'"),
            ({"cell_type": "b"}, ValueError, "not trained on 'b'. It knows 'B', 'NK', 'T'"),
            ({"cell_type": []}, ValueError, "is empty"),
            ({"age": "old"}, ValueError, "is not numeric"),
            ({"age": np.inf}, ValueError, "is infinite"),
            ({"age": None}, ValueError, "is missing"),
            ("B", TypeError, "must be a dict"),
        ],
    )
    def test_values_that_the_model_cannot_take(self, trained, new, error, message):
        for method in (trained.impute, trained.denoise, trained.get_normalized_expression):
            with pytest.raises(error, match=message):
                method(transform_covariates=new)

    def test_models_without_covariates_or_batches(self, trained, plain):
        with pytest.raises(ValueError, match="the model has no covariates"):
            plain.denoise(transform_covariates={"cell_type": "B"})
        with pytest.raises(ValueError, match="`transform_batch` needs .* `batch_key`"):
            trained.denoise(transform_batch="B")

    def test_a_batch_that_is_replaced_twice(self, simulate):
        adata = simulate(30).adata
        CountsDiffImputer.setup_anndata(adata, batch_key="cell_type")
        with pytest.raises(ValueError, match="both replace 'cell_type'"):
            read_transforms(CountsDiffImputer(adata), {"cell_type": "B"}, "B")

    def test_draws_that_cannot_be_shared(self, trained):
        with pytest.raises(ValueError, match="`n_samples=5` draws cannot take 3 values in turn"):
            trained.impute(n_samples=5, final="sample", transform_covariates={"cell_type": ["B", "NK", "T"]})

    def test_nothing_asked_for_is_nothing_replaced(self, plain):
        assert read_transforms(plain, None) == read_transforms(plain, {}) == [KEEP]


@pytest.mark.slow
def test_a_known_fold_change_is_recovered_and_other_genes_stay(train):
    """Genes in two programmes; a treatment multiplies a fifth of the genes by 6, or divides them by 4."""
    rng = np.random.default_rng(0)
    n_cells, n_genes = 1500, 50
    means = rng.gamma(2.0, 2.0, n_genes) + 1
    programmes = np.exp(rng.normal(0, 0.7, (2, n_genes)))
    effect = np.ones(n_genes)
    effect[:5], effect[5:10] = 6.0, 0.25
    kind, treated = rng.integers(2, size=n_cells), rng.integers(2, size=n_cells)
    rates = means * programmes[kind] * effect ** treated[:, None] * rng.gamma(5, 0.2, (n_cells, 1))
    adata = AnnData(rng.poisson(rates).astype(np.float32), obs=pd.DataFrame({"drug": np.array(["no", "yes"])[treated]}))
    adata.obs_names = [f"cell{i}" for i in range(n_cells)]
    CountsDiffImputer.setup_anndata(adata, categorical_covariate_keys=["drug"])
    model = train(adata, 80, model_kwargs={"n_hidden": 64}, early_stopping=False, plan_kwargs={"lr": 3e-3})
    control = np.flatnonzero(treated == 0)
    for name, expect in {
        "denoise": lambda new: model.denoise(indices=control, transform_covariates=new, silent=True),
        "impute": lambda new: model.impute(
            indices=control, sites=np.ones(adata.shape, bool), transform_covariates=new, silent=True, **MEAN
        ),
    }.items():
        for kind_of_cell in (0, 1):
            some = kind[control] == kind_of_cell
            change = expect({"drug": "yes"})[some].mean(0) / expect(None)[some].mean(0)
            error = np.log(change / effect)
            assert np.abs(error[:10]).max() < 0.35, (name, change[:10])
            assert np.abs(error[10:]).mean() < 0.08 and np.abs(error[10:]).max() < 0.3, (name, change[10:])
