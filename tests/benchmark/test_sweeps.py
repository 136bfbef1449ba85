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


def test_guidance_rounding_and_schedule(data, trainings):
    assert sweeps.guidance(data, [0, 1, 2], method=SMALL, **OPTIONS)["error"].isna().all()
    assert sweeps.rounding(data, method=SMALL, **OPTIONS)["rounding"].nunique() == 4
    assert len(trainings) == 2
    assert sweeps.schedule(data, method=SMALL, **OPTIONS)["schedule"].nunique() == 3
    assert len(trainings) == 5
    with pytest.raises(ValueError, match="no covariates"):
        sweeps.guidance(Dataset("plain", data.adata))


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
