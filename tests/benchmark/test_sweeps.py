import numpy as np
import pandas as pd
import pytest
from anndata import AnnData

from sccountsdiff import CountsDiffImputer
from sccountsdiff.benchmark import sweeps
from sccountsdiff.benchmark.baselines import CountsDiff
from sccountsdiff.benchmark.datasets import Dataset

OPTIONS = {"metrics": ["energy_distance", "rmse"], "n_bootstrap": 2, "min_cells": 1, "silent": True}
SMALL = CountsDiff(max_epochs=1, n_steps=3, model_kwargs={"n_hidden": 8})


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    obs = pd.DataFrame({"type": np.array(["a", "b"])[rng.integers(2, size=100)]}, index=[f"c{i}" for i in range(100)])
    return Dataset("toy", AnnData(rng.poisson(4, (100, 8)).astype(np.float32), obs=obs), covariates=("type",))


@pytest.fixture
def trainings(monkeypatch):
    done, train = [], CountsDiffImputer.train
    monkeypatch.setattr(CountsDiffImputer, "train", lambda *args, **kw: (done.append(1), train(*args, **kw)))
    return done


def test_one_training_where_only_sampling_varies(data, trainings):
    table = sweeps.n_steps(data, [1, 3, 6], method=SMALL, **OPTIONS)
    assert len(trainings) == 1
    assert table["n_steps"].tolist() == [1, 1, 3, 3, 6, 6] and table["error"].isna().all()
    assert table["value"].nunique() == 6, "each setting is sampled anew"


def test_one_training_for_each_schedule(data, trainings):
    table = sweeps.attrition(data, [0, 0.005, 0.5], schedules=["cosine", "fisher"], method=SMALL, **OPTIONS)
    assert len(trainings) == 2
    points = table[["schedule", "attrition"]].drop_duplicates().to_numpy().tolist()
    assert points == [[s, a] for s in ("cosine", "fisher") for a in (0.0, 0.005, 0.5)]
    summary = sweeps.summarise(table)
    assert summary.index.names == ["schedule", "attrition"] and list(summary) == ["energy_distance", "rmse"]
    axes = sweeps.plot(table).axes
    assert [ax.get_xlabel() for ax in axes] == ["attrition"] * 2
    assert [text.get_text() for text in axes[0].get_legend().get_texts()] == ["cosine", "fisher"]


def test_as_many_cells_are_scored_as_asked_for(data, monkeypatch):
    """The other validation cells are trained on; without a number there are as many as test cells."""
    seen = []
    fit = CountsDiff._fit
    monkeypatch.setattr(CountsDiff, "_fit", lambda self, cells, seed: seen.append(len(cells)) or fit(self, cells, seed))
    for n_scored in (None, 4, 1000):
        sweeps.n_steps(data, [1], method=SMALL, n_scored=n_scored, **OPTIONS)
    assert seen == [80, 86, 80]  # of 90 cells that are not test cells
    with pytest.raises(ValueError, match="n_scored"):
        sweeps.n_steps(data, [1], method=SMALL, n_scored=0, **OPTIONS)


def test_guidance_rounding_and_schedule(data, trainings):
    assert sweeps.guidance(data, [0, 1, 2], method=SMALL, **OPTIONS)["error"].isna().all()
    assert sweeps.rounding(data, method=SMALL, **OPTIONS)["rounding"].nunique() == 4
    assert len(trainings) == 2
    assert sweeps.schedule(data, method=SMALL, **OPTIONS)["schedule"].nunique() == 3
    assert len(trainings) == 5
    with pytest.raises(ValueError, match="no covariates"):
        sweeps.guidance(Dataset("plain", data.adata))


def test_values_that_are_missing_do_not_narrow_the_standard_error():
    table = pd.DataFrame(
        {"n_steps": 1, "seed": range(4), "metric": "rmse", "value": [1.0, 3.0, np.nan, np.nan], "se": 9.0}
    )
    assert sweeps.numbers_of(table).loc[(1, "rmse")].tolist() == [2.0, 1.0]  # sd sqrt(2), of two
    assert sweeps.numbers_of(table[1:]).loc[(1, "rmse")].tolist() == [3.0, 9.0]  # one is left: the bootstrap


def test_patterns_and_numbers_of_samples_are_not_seeds():
    """Seeds agree exactly, so no standard error may come from the difference between patterns or samples."""
    value = {("mcar", 1): 1.0, ("mcar", 5): 2.0, ("mar", 1): 3.0, ("mar", 5): 4.0}
    table = pd.DataFrame(
        [
            {"n_steps": n, "missingness": m, "n_samples": k, "seed": s, "metric": "rmse", "value": v, "se": 0.5}
            for n in (1, 3)
            for (m, k), v in value.items()
            for s in (0, 1)
        ]
    )
    numbers = sweeps.numbers_of(table)
    assert numbers.index.names == ["missingness", "n_samples", "n_steps", "metric"]
    assert (numbers["se"] == 0).all()
    for (pattern, n_samples), mean in value.items():
        assert (numbers.xs((pattern, n_samples), level=("missingness", "n_samples"))["mean"] == mean).all()
    assert sweeps.summarise(table).shape == (8, 1)
    titles = [ax.get_title() for ax in sweeps.plot(table).axes]
    assert titles == [f"missingness: {m}, n_samples: {k}" for m, k in value]


def test_summary_over_seeds():
    values = {0: [1.0, 2.0], 1: [3.0, 2.0]}
    table = pd.DataFrame(
        [
            {"n_steps": n, "seed": s, "metric": "rmse", "value": values[s][i], "se": 0.1}
            for s in values
            for i, n in enumerate([10, 2])
        ]
    )
    assert sweeps.summarise(table)["rmse"].to_dict() == {10: "2.0000 (1)", 2: "2.0000 (0)"}


def test_a_sweep_without_any_result_says_why(data):
    with pytest.raises(RuntimeError, match="No variant could be scored.*Unknown schedule 'nonsense'"):
        sweeps.schedule(data, ["nonsense"], method=SMALL, **OPTIONS)
