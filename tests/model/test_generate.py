"""New cells are like those of their covariates."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import sccountsdiff
from sccountsdiff import CountsDiffImputer


class TestGenerate:
    def test_counts_names_and_notes(self, trained):
        covariates = {"cell_type": ["T", "B", "NK", "T"], "age": 0.5}
        cells = trained.generate(4, covariates, n_steps=5, seed=3, silent=True)
        assert cells.shape == (4, 20) and sp.issparse(cells.X) and cells.X.format == "csr"
        assert (cells.X.data >= 0).all() and (cells.X.data == np.rint(cells.X.data)).all()
        assert cells.var_names.tolist() == trained.adata.var_names.tolist()
        assert cells.obs["cell_type"].tolist() == ["T", "B", "NK", "T"]
        assert cells.obs["age"].tolist() == [0.5] * 4
        noted = cells.uns["sccountsdiff"]["generated"]
        assert noted["seed"] == 3 and noted["n_steps"] == 5 and noted["version"] == sccountsdiff.__version__

    def test_seeds(self, trained):
        kwargs = {"covariates": {"cell_type": "B", "age": 0.0}, "n_steps": 3, "silent": True, "batch_size": 8}
        first = trained.generate(20, seed=1, **kwargs).X.toarray()
        np.testing.assert_array_equal(first, trained.generate(20, seed=1, **kwargs).X.toarray())
        assert (first != trained.generate(20, seed=2, **kwargs).X.toarray()).any()
        np.testing.assert_array_equal(first[:16], trained.generate(16, seed=1, **kwargs).X.toarray())  # whole blocks

    @pytest.mark.parametrize("guidance", [1.0, 1.5])
    def test_cells_of_a_type_are_like_that_type(self, trained, guidance):
        types = trained.adata.obs["cell_type"]
        counts = np.log1p(trained.adata.X.toarray())
        centres = {kind: counts[types == kind].mean(0) for kind in types.cat.categories}
        for kind in types.cat.categories:
            cells = trained.generate(
                60, {"cell_type": kind, "age": 0.0}, n_steps=15, guidance=guidance, seed=0, silent=True
            )
            mean = np.log1p(cells.X.toarray()).mean(0)
            distances = {other: np.linalg.norm(mean - centre) for other, centre in centres.items()}
            assert distances[kind] < 0.5 * min(d for other, d in distances.items() if other != kind)

    def test_without_covariates_the_types_are_mixed(self, trained):
        types = trained.adata.obs["cell_type"]
        counts = trained.adata.X.toarray()
        cells = trained.generate(150, n_steps=15, seed=0, silent=True)
        assert cells.obs.columns.empty
        profiles = np.stack([counts[types == kind].mean(0) for kind in types.cat.categories])
        profiles /= profiles.sum(1, keepdims=True)
        nearest = (cells.X.toarray() @ np.log(profiles + 1e-3).T).argmax(1)
        shares = np.bincount(nearest, minlength=3) / 150
        assert (shares > 0.1).all()

    def test_depth_varies_between_cells_as_in_the_data(self, trained):
        """More than noise would make it: the variance of totals is well above that of a Poisson number."""
        totals = trained.generate(150, n_steps=15, seed=0, silent=True).X.sum(1)
        assert totals.var() > 2 * totals.mean()

    def test_covariates_in_many_forms(self, trained):
        kinds, ages = ["B", "T", "T"], [0.1, 0.2, 0.3]
        kwargs = {"n_steps": 2, "seed": 0, "silent": True}
        expected = trained.generate(3, {"cell_type": kinds, "age": ages}, **kwargs).X.toarray()
        for covariates in (
            pd.DataFrame({"cell_type": kinds, "age": ages}, index=["x", "y", "z"]),
            {"age": np.array(ages), "cell_type": pd.Categorical(kinds)},
            {"age": pd.Series(ages), "cell_type": pd.Series(kinds, index=[5, 6, 7])},
            {"age": tuple(ages), "cell_type": np.array(kinds)},
            {"age": pd.Index(ages), "cell_type": pd.Index(kinds)},
        ):
            np.testing.assert_array_equal(trained.generate(3, covariates, **kwargs).X.toarray(), expected)

    def test_covariates_do_not_matter_without_guidance(self, trained):
        kwargs = {"n_steps": 2, "seed": 0, "silent": True, "guidance": 0}
        first = trained.generate(5, {"cell_type": "B", "age": 0.0}, **kwargs)
        second = trained.generate(5, {"cell_type": "T", "age": 3.0}, **kwargs)
        np.testing.assert_array_equal(first.X.toarray(), second.X.toarray())

    @pytest.mark.parametrize(
        ("covariates", "error", "message"),
        [
            ({"cell_type": "B", "age": 0, "sex": "f"}, KeyError, "may name cell_type, age; unknown: sex"),
            ({"cell_type": "HSC", "age": 0}, ValueError, "not trained on: 'HSC'. It knows 'B', 'NK', 'T'"),
            ({"cell_type": ["B", "T"], "age": 0}, ValueError, r"covariates\['cell_type'\] has 2 values for 3 cells"),
            ({"cell_type": "B", "age": "old"}, ValueError, r"^covariates\['age'\] is not numeric"),
            ({"cell_type": "B", "age": np.nan}, ValueError, r"^covariates\['age'\] is missing in 3 of 3 cells"),
            (
                {"cell_type": [np.nan] * 3, "age": 0},
                ValueError,
                r"^covariates\['cell_type'\] is missing in 3 of 3 cells",
            ),
            ("1", TypeError, "`covariates` must be a dict or a DataFrame, not '1'"),
        ],
    )
    def test_bad_covariates_are_named(self, trained, covariates, error, message):
        with pytest.raises(error, match=message):
            trained.generate(3, covariates)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"n_cells": 0}, "`n_cells` must be a whole number of at least 1, not 0"),
            ({"n_cells": 2.0}, "`n_cells` must be a whole number of at least 1, not 2.0"),
            ({"n_cells": 2, "attrition": [0.1]}, "`attrition` has 1 rates, but the walk has 50 reverse moves"),
            ({"n_cells": 2, "attrition": np.zeros((50, 3, 20))}, "`attrition` has rates for 3 cells, but there are 2"),
            ({"n_cells": 2, "n_steps": 0}, "`n_steps` must be"),
            ({"n_cells": 2, "batch_size": -1}, "`batch_size` must be"),
            ({"n_cells": 2, "attrition": 1.5}, "`attrition` must be"),
            ({"n_cells": 2, "seed": -5}, "`seed` must be"),
        ],
    )
    def test_bad_arguments_are_named(self, trained, arguments, message):
        with pytest.raises(ValueError, match=message):
            trained.generate(**arguments)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (
                {"nsteps": 3},
                r"generate\(\) takes no argument 'nsteps'; did you mean 'n_steps'\? Arguments are n_cells, .* n_resamples",
            ),
            ({"guidence": 2}, r"generate\(\) takes no argument 'guidence'; did you mean 'guidance'\?"),
            ({"known": "noised"}, r"generate\(\) takes no argument 'known'"),
            ({"unseen_to_null": True}, r"generate\(\) takes no argument 'unseen_to_null'"),
        ],
    )
    def test_unknown_arguments_are_named(self, trained, arguments, message):
        with pytest.raises(TypeError, match=message):
            trained.generate(2, **arguments)

    def test_unseen_categories_come_with_advice_that_can_be_followed(self, trained):
        with pytest.raises(ValueError, match="Leave out `covariates` to generate cells without any") as caught:
            trained.generate(2, {"cell_type": ["B", "HSC"], "age": 0})
        assert "unseen_to_null" not in str(caught.value)
        assert trained.generate(2, n_steps=1, silent=True).shape == (2, 20)

    def test_notes_of_imputation_are_added(self, trained):
        cells = trained.generate(3, {"cell_type": "B", "age": 0.0}, n_steps=2, seed=1, silent=True)
        trained.impute(cells, n_samples=1, n_steps=1, n_folds=1, silent=True)
        assert set(cells.uns["sccountsdiff"]) == {"generated", "imputed"}

    def test_attrition_of_each_cell(self, trained):
        kwargs = {"n_steps": 3, "seed": 0, "silent": True, "batch_size": 4}
        rates = np.zeros((3, 10, 20), dtype=np.float32)
        rates[:, 5] = 1.0
        without, with_ = (trained.generate(10, attrition=a, **kwargs).X.toarray() for a in (0.0, rates))
        in_block = np.arange(10) // 4 == 1
        np.testing.assert_array_equal(with_[~in_block], without[~in_block])
        assert (with_[in_block] != without[in_block]).any()

    def test_models_without_covariates(self, plain):
        assert plain.generate(3, n_steps=2, silent=True).shape == (3, 20)
        assert plain.generate(3, {}, n_steps=2, silent=True).shape == (3, 20)
        with pytest.raises(KeyError, match="may name nothing: the model has none; unknown: cell_type"):
            plain.generate(3, {"cell_type": "B"})

    def test_models_with_continuous_covariates_only(self, aged):
        assert aged.generate(3, {"age": [0, 1, 2]}, n_steps=2, silent=True).shape == (3, 20)
        kwargs = {"n_steps": 2, "seed": 0, "silent": True}
        cells = aged.generate(3, **kwargs).X.toarray()
        np.testing.assert_array_equal(cells, aged.generate(3, {"age": 0.0}, guidance=0, **kwargs).X.toarray())


@pytest.fixture(scope="module")
def with_batches(simulate, train):
    """Three types, of which the third is in one of two batches only, and the first twice as old."""
    adata = simulate(200).adata
    rng = np.random.default_rng(0)
    adata.obs["batch"] = np.where(adata.obs["cell_type"] == "T", "x", rng.choice(["x", "y"], 200, p=[0.2, 0.8]))
    adata.obs["age"] = np.where(adata.obs["cell_type"] == "B", 2.0, 1.0) + rng.random(200) / 2
    CountsDiffImputer.setup_anndata(adata, batch_key="batch", labels_key="cell_type", continuous_covariate_keys=["age"])
    return train(adata)


class TestPartialCovariates:
    """Those that are not named are drawn from training cells with the same categories."""

    def test_follow_the_ones_that_are_named(self, with_batches):
        obs = with_batches.generate(300, {"cell_type": ["B", "NK", "T"] * 100}, n_steps=1, seed=0, silent=True).obs
        assert (obs["batch"][obs["cell_type"] == "T"] == "x").all()
        assert (obs["age"].astype(int) == np.where(obs["cell_type"] == "B", 2, 1)).all()
        of_data = with_batches.adata.obs
        for kind in ("B", "NK"):
            share = (of_data["batch"][of_data["cell_type"] == kind] == "y").mean()
            drawn = (obs["batch"][obs["cell_type"] == kind] == "y").mean()
            assert abs(drawn - share) < 4 * np.sqrt(share * (1 - share) / 100)

    def test_all_of_them_as_often_as_in_the_data(self, with_batches):
        obs = with_batches.generate(400, {}, n_steps=1, seed=0, silent=True).obs
        pairs = [table.groupby(["batch", "cell_type"], observed=True).size() for table in (obs, with_batches.adata.obs)]
        share, expected = pairs[0] / 400, pairs[1] / 200
        assert set(pairs[0].index) <= set(pairs[1].index)
        gap = share.reindex(expected.index, fill_value=0) - expected
        assert (gap.abs() < 4 * np.sqrt(expected * (1 - expected) / 400)).all()

    def test_are_the_same_for_the_same_seed_and_known_to_saved_models(self, with_batches, tmp_path):
        with_batches.save(tmp_path / "model")
        again = CountsDiffImputer.load(tmp_path / "model", adata=False, accelerator="cpu")
        kwargs = {"n_steps": 2, "silent": True}
        first, second = (m.generate(20, {"batch": "x"}, seed=1, **kwargs) for m in (with_batches, again))
        pd.testing.assert_frame_equal(first.obs, second.obs)
        np.testing.assert_array_equal(first.X.toarray(), second.X.toarray())
        # As if all had been named.
        np.testing.assert_array_equal(
            first.X.toarray(), with_batches.generate(20, first.obs, seed=1, **kwargs).X.toarray()
        )
        assert not first.obs.equals(with_batches.generate(20, {"batch": "x"}, seed=2, **kwargs).obs)

    def test_combinations_that_no_cell_has(self, with_batches):
        with pytest.raises(ValueError, match=r"No training cell has {'batch': 'y', 'cell_type': 'T'}.*name them too"):
            with_batches.generate(2, {"cell_type": "T", "batch": "y"})
        assert with_batches.generate(2, {"cell_type": "T", "batch": "y", "age": 1.0}, n_steps=1, silent=True).n_obs == 2

    def test_of_a_model_that_does_not_know_them(self, with_batches, monkeypatch):
        monkeypatch.delattr(with_batches, "seen_covariates_")
        with pytest.raises(KeyError, match="name cell_type, age too"):
            with_batches.generate(2, {"batch": "x"})


class TestNullState:
    """What a model without dropped covariates has never seen is refused, and all else works."""

    def test_generation(self, strict):
        message = "Pass `covariates` with cell_type, age, or `covariates={}` to draw them: the model .* `p_uncond=0`"
        with pytest.raises(ValueError, match=message):
            strict.generate(2)
        assert strict.generate(2, {}, n_steps=1, silent=True).obs.columns.tolist() == ["cell_type", "age"]
        with pytest.raises(ValueError, match="not trained on: 'HSC'") as caught:
            strict.generate(2, {"cell_type": "HSC", "age": 0.0})
        assert "Leave out `covariates`" not in str(caught.value)
        assert strict.generate(2, {"cell_type": "B", "age": 0.0}, n_steps=1, silent=True).shape == (2, 20)
