"""Settings are chosen on cells that are neither trained on nor tested with."""

import dataclasses
import json
from collections import deque

import numpy as np
import pytest

import sccountsdiff.benchmark as bm
from sccountsdiff.benchmark.baselines import BASELINES, Baseline, GeneMean, KNNMean, get_baseline
from sccountsdiff.benchmark.preprocessing import split_cells
from sccountsdiff.benchmark.tuning import CRITERIA, GRIDS, training_cells, tune

SILENT = {"silent": True, "min_cells": 0}


@dataclasses.dataclass(eq=False)
class Times(Baseline):
    """Some times the gene mean; remembers the cells that it was fitted to and asked about."""

    factor: float = 1.0
    name = "times"
    seen = deque()  # no list, which would be taken for a part of the code

    def fit(self, train, **options):
        self.seen.append(("fit", *train.obs_names))
        return super().fit(train, **options)

    def impute(self, test, *arguments, **options):
        self.seen.append(("impute", *test.obs_names))
        return super().impute(test, *arguments, **options)

    def _fit(self, cells, seed):
        if self.factor == 0:
            raise ValueError("nothing comes of nothing")
        self.mean = self.factor * cells.gene_means()

    def _impute(self, cells, sites, n_samples, seed):
        return np.broadcast_to(self.mean, sites.shape)


GRID = {"times": [{"factor": 0.3}, {"factor": 1.0}, {"factor": 3.0}]}


@pytest.fixture(autouse=True)
def _nothing_seen():
    Times.seen.clear()


def test_the_best_settings_are_chosen_and_can_be_run(toy_data):
    chosen = tune(toy_data, Times(factor=7.0), grids=GRID, **SILENT)
    assert list(chosen) == ["times"] and chosen["times"].factor == 1.0
    table = bm.run(toy_data, methods=list(chosen.values()), metrics=["rmse"], n_bootstrap=0, silent=True)
    assert table["error"].isna().all()
    # Most counts of a gene are below three times its mean, but a correlation does not care.
    assert tune(toy_data, Times(), grids=GRID, metric="rmse", **SILENT)["times"].factor == 1.0


@pytest.mark.parametrize("seed", [3, (3, 4, 5)])
def test_no_test_cell_is_seen(toy_data, seed):
    tune(toy_data, Times(), grids=GRID, seed=seed, test_share=0.25, **SILENT)
    seen = {cell for _, *cells in Times.seen for cell in cells}
    names = toy_data.adata.obs_names
    for one in np.atleast_1d(seed):
        train, test = split_cells(toy_data.adata, (0.75, 0.25), seed=int(one))
        assert not seen & set(names[test]) and seen <= set(names[train])
    fitted, asked = ({cell for kind, *cells in Times.seen if kind == k for cell in cells} for k in ("fit", "impute"))
    assert not fitted & asked and len(asked) / len(seen) == pytest.approx(0.2, abs=0.02)
    assert len(seen) == training_cells(toy_data, np.atleast_1d(seed).tolist(), 0.25).adata.n_obs


def test_cells_that_are_never_test_cells_may_choose(toy_data, tmp_path):
    """Settings are chosen on cells that a comparison of the same data set never tests with."""
    old = training_cells(toy_data, [0, 1], 0.25).adata.obs_names
    cells = toy_data.adata.copy()
    cells.obs["new"] = ~cells.obs_names.isin(old)
    tested = dataclasses.replace(toy_data, adata=cells, testable="new")
    chosen_with = training_cells(tested, [7, 8, 9], 0.25)
    assert set(old) <= set(chosen_with.adata.obs_names) and chosen_with.testable is None
    # The same cells and seed, but another split: results are not mixed up.
    options = {"metrics": ["rmse"], "n_bootstrap": 0, "output": tmp_path, "test_share": 0.25, **SILENT}
    found = [bm.run(data, "mcar", Times(), [7], **options)["value"][0] for data in (toy_data, tested)]
    asked = [set(cells) for kind, *cells in Times.seen if kind == "impute"]
    assert len(asked) == 2 and asked[0] & set(old) and not asked[1] & set(old) and found[0] != found[1]


def test_it_is_found_again_and_written_down(toy_data, tmp_path):
    for _ in range(2):
        chosen = tune(toy_data, Times(), grids=GRID, output=tmp_path, **SILENT)
    assert sum(kind == "fit" for kind, *_ in Times.seen) == 3 and chosen["times"].factor == 1.0
    record = json.loads((tmp_path / "tuned_toy_times_0.json").read_text())
    assert record["chosen"] == "times" and record["metric"] == "poisson_loss" and record["missingness"] == "mcar"
    assert set(record["scores"]) == {"times(factor=0.3)", "times", "times(factor=3.0)"}
    assert min(record["scores"], key=record["scores"].get) == "times"


def test_settings_that_fail_are_not_chosen(toy_data):
    assert tune(toy_data, Times(), grids={"times": [{"factor": 0}, {"factor": 9.0}]}, **SILENT)["times"].factor == 9.0
    with pytest.raises(RuntimeError, match="times failed in all settings: ValueError: nothing comes of nothing"):
        tune(toy_data, Times(), grids={"times": [{"factor": 0}, {"factor": -0.0}]}, **SILENT)


def test_methods_without_a_grid_are_as_they_were(toy_data):
    method = GeneMean()
    assert tune(toy_data, [method, KNNMean(n_neighbors=3)], grids={}, **SILENT)["gene_mean"] is method


def test_grids_are_of_registered_methods_and_small():
    for name, grid in GRIDS.items():
        assert name in BASELINES and 2 <= len(grid) <= 4
        for settings in grid:
            dataclasses.replace(get_baseline(name)(), **settings)
    assert all(get_baseline(name).draws for name in CRITERIA)


def test_what_is_refused(toy_data):
    for error, message, options in (
        (ValueError, "has no settings \\['size'\\]", {"methods": "knn_mean", "grids": {"knn_mean": [{"size": 1}]}}),
        (ValueError, "each once", {"methods": ["knn_mean", "knn_mean"]}),
        (ValueError, "each once", {"methods": []}),
        (KeyError, "Unknown imputation method", {"methods": "knn"}),
        (KeyError, "Unknown metric", {"methods": "knn_mean", "metric": "shoe_size"}),
        (ValueError, "validation_share", {"methods": "knn_mean", "validation_share": 1}),
        (ValueError, "test_share", {"methods": "knn_mean", "test_share": 0}),
        (ValueError, "seed must name", {"methods": "knn_mean", "seed": ()}),
        (ValueError, "give fewer", {"methods": "knn_mean", "seed": range(20), "test_share": 0.6}),
    ):
        with pytest.raises(error, match=message):
            tune(toy_data, **options, **SILENT)
