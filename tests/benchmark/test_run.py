from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData

import sccountsdiff.benchmark as bm
from sccountsdiff.benchmark._plan import make_plan
from sccountsdiff.benchmark.baselines import Baseline, CountsDiff, CountsDiffMean
from sccountsdiff.benchmark.datasets import Dataset
from sccountsdiff.benchmark.missingness import MCAR, MNARLow, valid_sites

COSTS = ["fit_seconds", "impute_seconds", "peak_memory_mb"]
METRICS = ["rmse", "spearman", "energy_distance", "crps"]


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    kind = rng.integers(2, size=120)
    counts = rng.poisson(rng.gamma(1, 4, (2, 12))[kind]).astype(np.float32)
    obs = pd.DataFrame({"type": np.array(["a", "b"])[kind]}, index=[f"c{i}" for i in range(120)])
    return Dataset("toy", AnnData(counts, obs=obs), covariates=("type",), label="type")


@dataclass(eq=False)
class Poisson(Baseline):
    """Draws around the gene mean; counts how often it is called, and can be interrupted."""

    scale: float = 1.0

    name: ClassVar[str] = "poisson_draws"
    group: ClassVar[str] = "generative"
    draws: ClassVar[bool] = True
    calls: ClassVar[list] = []
    stop_after: ClassVar[int | None] = None

    def _fit(self, counts, covariates, seed):
        self.calls.append(("fit", self.scale, seed))
        self.mean = self.scale * counts.mean(axis=0)

    def _impute(self, counts, observed, covariates, n_samples, seed):
        if self.stop_after is not None and len(self.calls) >= self.stop_after:
            raise KeyboardInterrupt
        self.calls.append(("impute", self.scale, seed, n_samples))
        shape = counts.shape if n_samples == 1 else (n_samples, *counts.shape)
        return np.random.default_rng(seed).poisson(np.broadcast_to(self.mean, shape))


@dataclass(eq=False)
class Broken(Baseline):
    """Fails, in one way or the other."""

    where: str = "fit"
    name: ClassVar[str] = "broken"

    def _fit(self, counts, covariates, seed):
        if self.where == "fit":
            raise RuntimeError("cannot fit")

    def _impute(self, counts, observed, covariates, n_samples, seed):
        return np.full(counts.shape, np.nan)


@pytest.fixture(autouse=True)
def fresh_counters():
    Poisson.calls.clear()
    Poisson.stop_after = None


def compare(data, output, **kwargs):
    options = {"metrics": METRICS, "n_samples": (1, 3), "n_bootstrap": 2, "min_cells": 1, "silent": True} | kwargs
    methods = ["gene_mean", Poisson(), Poisson(scale=2.0)]
    return bm.run(data, [MCAR(0.4), "mnar_low"], methods, seeds=(0, 1), output=output, **options)


def without_costs(table):
    return table.drop(columns=COSTS)


def test_killed_half_way_and_started_again(data, tmp_path):
    whole = compare(data, tmp_path / "whole")
    n_calls = len(Poisson.calls)

    Poisson.calls.clear()
    Poisson.stop_after = n_calls // 2
    with pytest.raises(KeyboardInterrupt):
        compare(data, tmp_path / "killed")
    first = list(Poisson.calls)
    assert n_calls // 2 <= len(first) <= n_calls // 2 + 1
    n_files = len(list((tmp_path / "killed" / "results").iterdir()))
    assert 0 < n_files < len(list((tmp_path / "whole" / "results").iterdir()))

    Poisson.calls.clear()
    Poisson.stop_after = None
    resumed = compare(data, tmp_path / "killed")
    # Only the job that was interrupted is done twice, and its method fitted twice.
    assert len(first) + len(Poisson.calls) <= n_calls + 3
    pd.testing.assert_frame_equal(without_costs(resumed), without_costs(whole))

    Poisson.calls.clear()
    pd.testing.assert_frame_equal(compare(data, tmp_path / "killed"), resumed)
    assert not Poisson.calls, "what is finished is not computed again"
    assert not list((tmp_path / "killed" / "results").glob("*.partial"))
    saved = pd.read_csv(tmp_path / "killed" / "results.csv")
    np.testing.assert_allclose(saved["value"], resumed["value"])


def test_only_what_is_new_is_computed(data, tmp_path):
    compare(data, tmp_path)
    for change in ({"metrics": ["rmse"]}, {"n_bootstrap": 0}, {"n_genes": 10}, {"protocol": "paper"}):
        Poisson.calls.clear()
        compare(data, tmp_path, **change)
        assert Poisson.calls, f"{change} changes the results"
    Poisson.calls.clear()
    bm.run(
        data, ["mcar:0.4"], [Poisson()], (0, 2), metrics=METRICS, n_samples=(1, 3), n_bootstrap=2, min_cells=1,
        output=tmp_path, silent=True,
    )  # fmt: skip
    assert {call[2] for call in Poisson.calls} == {2}


def test_one_fit_for_all_patterns_and_the_table_is_complete(data):
    table = compare(data, None)
    fits = [call for call in Poisson.calls if call[0] == "fit"]
    assert sorted(fits) == [("fit", s, seed) for s in (1.0, 2.0) for seed in (0, 1)]
    assert set(table["method"]) == {"gene_mean", "poisson_draws", "poisson_draws(scale=2.0)"}
    assert set(table["missingness"]) == {"mcar(rate=0.4)", "mnar_low"}
    assert table["value"].notna().all() and table["se"].notna().all() and table["error"].isna().all()
    assert (table[COSTS] > 0).all().all()
    per_job = table.groupby(["method", "n_samples"])["metric"].agg(set)
    assert per_job["gene_mean", 1] == set(METRICS) - {"crps"}
    assert per_job["poisson_draws", 3] == set(METRICS)
    assert ("gene_mean", 3) not in per_job
    # Averages of draws are nearer to the truth than draws; twice the mean is farther.
    rmse = table[table["metric"] == "rmse"].groupby(["method", "n_samples"])["value"].mean()
    assert rmse["gene_mean", 1] < rmse["poisson_draws", 3] < rmse["poisson_draws", 1]
    assert rmse["poisson_draws", 1] < rmse["poisson_draws(scale=2.0)", 1]


def test_a_failure_is_recorded_and_the_others_go_on(data, tmp_path):
    methods = [Broken(), Broken(where="impute"), "gene_mean"]
    options = {"metrics": ["rmse"], "n_bootstrap": 0, "output": tmp_path, "silent": True}
    table = bm.run(data, ["mcar", "mar"], methods, **options)
    errors = table[table["error"].notna()].set_index("method")["error"]
    assert errors["broken"].tolist() == ["RuntimeError: cannot fit"] * 2
    assert errors["broken(where='impute')"].str.contains("not finite").all()
    assert table[table["method"] == "gene_mean"]["value"].notna().sum() == 2
    assert table[table["error"].notna()]["metric"].isna().all()


def test_what_failed_is_tried_again_on_request(data, tmp_path, monkeypatch):
    options = {"metrics": ["rmse"], "n_bootstrap": 0, "output": tmp_path, "silent": True}
    bm.run(data, "mcar", Broken(), **options)
    monkeypatch.setattr(Broken, "_fit", lambda *arguments: None)
    monkeypatch.setattr(Broken, "_impute", lambda self, counts, *arguments: counts)
    assert bm.run(data, "mcar", Broken(), **options)["error"].notna().all()
    assert bm.run(data, "mcar", Broken(), retry_failed=True, **options)["error"].isna().all()


def test_a_failing_metric_does_not_take_the_others_along(data, monkeypatch):
    def fail(truth, imputed, sites):
        raise ArithmeticError("no such number")

    entries = bm.metrics.METRICS._entries
    monkeypatch.setitem(entries, "fails", bm.metrics.Metric("fails", fail, "lower", ("truth", "imputed", "sites"), "x"))
    table = bm.run(data, "mcar", "zero", metrics=["fails", "rmse"], n_bootstrap=0, silent=True).set_index("metric")
    assert table.loc["fails", "error"] == "ArithmeticError: no such number"
    assert table.loc["rmse", "value"] > 0


def test_variants_that_differ_in_sampling_share_one_training(data, monkeypatch):
    from sccountsdiff import CountsDiffImputer

    trainings = []
    train = CountsDiffImputer.train
    monkeypatch.setattr(CountsDiffImputer, "train", lambda *args, **kw: (trainings.append(1), train(*args, **kw)))
    tiny = {"max_epochs": 1, "model_kwargs": {"n_hidden": 8}}
    methods = [CountsDiff(n_steps=2, **tiny), CountsDiff(n_steps=3, **tiny), CountsDiffMean(**tiny)]
    shared = bm.run(data, "mcar", methods, metrics=["rmse"], n_samples=1, n_bootstrap=0, silent=True)
    assert len(trainings) == 1
    alone = bm.run(data, "mcar", methods[1], metrics=["rmse"], n_samples=1, n_bootstrap=0, silent=True)
    assert alone["value"].item() == shared["value"][1]


def test_the_paper_hides_only_what_it_believes(data):
    seen = []

    class Spy(Poisson):
        def impute(self, test, sites, n_samples=1, seed=0):
            seen.append((test, sites))
            return super().impute(test, sites, n_samples, seed)

    for protocol in ("all", "paper"):
        bm.run(
            data, MCAR(0.5), Spy(), metrics=["rmse"], n_samples=1, n_bootstrap=0, protocol=protocol, min_cells=1,
            silent=True,
        )  # fmt: skip
    valid = pd.DataFrame(valid_sites(data.adata.X, data.adata.obs["type"]), index=data.adata.obs_names)
    (test, everywhere), (_, believed) = seen
    valid = valid.loc[test.obs_names].to_numpy()
    assert not believed[~valid].any()
    np.testing.assert_array_equal(believed, everywhere & valid)


def test_the_truth_is_shown_where_it_is_not_trivial(data):
    pytest.importorskip("leidenalg")
    table = bm.run(data, "mcar", "zero", metrics=["rmse", "cluster_ari"], n_bootstrap=0, silent=True)
    assert table[table["method"] == "truth"]["metric"].tolist() == ["cluster_ari"]


def test_all_default_metrics_on_labelled_and_unlabelled_cells(data):
    with_labels = bm.run(data, MNARLow(), "zero", n_bootstrap=0, quick=True, silent=True)
    unlabelled = Dataset("plain", data.adata)
    without = bm.run(unlabelled, MNARLow(), "zero", n_bootstrap=0, quick=True, silent=True)
    assert with_labels["error"].isna().all() and without["error"].isna().all()
    assert "marker_recovery" in set(with_labels["metric"]) and "marker_recovery" not in set(without["metric"])
    assert not {"scfid", "accuracy"} & set(with_labels["metric"]), "quick leaves out what has to be trained"


def test_quick_cuts_the_training_of_named_methods_and_says_so(data):
    options = {
        "missingness": "mcar",
        "seeds": (0,),
        "metrics": None,
        "n_samples": 1,
        "protocol": "all",
        "n_bootstrap": 0,
    }
    methods = ["zero", "countsdiff", "scvi", CountsDiff(n_steps=2)]
    plan = make_plan(datasets=data, methods=methods, quick=True, **options)
    assert list(plan.methods) == ["zero", "countsdiff(max_epochs=60)", "scvi(max_epochs=240)", "countsdiff(n_steps=2)"]
    plan = make_plan(datasets=data, methods=methods[:3], quick=False, **options)
    assert list(plan.methods) == ["zero", "countsdiff", "scvi"]


def test_everything_is_checked_before_any_work(data, tmp_path, monkeypatch):
    plain = Dataset("plain", data.adata)

    class Needy(Poisson):
        requires = ("no_such_extra",)

    monkeypatch.setitem(bm.downstream.PACKAGES, "cluster_ari", ("no_such_package",))
    for error, message, call in [
        (KeyError, "did you mean 'gene_mean'", {"methods": ["zero", "gene_men"]}),
        (KeyError, "Unknown missingness pattern", {"missingness": "mcra"}),
        (ValueError, "'mar' has no rate", {"missingness": "mar:0.5"}),
        (KeyError, "Unknown metric", {"metrics": ["rmsee"]}),
        (KeyError, "Unknown data set", {"datasets": "kang"}),
        (ValueError, "does not give", {"metrics": ["molecule_mse"]}),
        (ValueError, "no data set has a label", {"datasets": plain, "metrics": ["accuracy"]}),
        (ValueError, "has no label", {"datasets": plain, "protocol": "paper"}),
        (ImportError, r"no_such_extra.*sccountsdiff\[no_such_extra\]", {"methods": [Needy()]}),
        (ImportError, "no_such_package", {"metrics": ["cluster_ari"]}),
        (ValueError, "methods must be one or more different", {"methods": ["zero", "zero"]}),
        (ValueError, "different names", {"datasets": [data, data]}),
        (ValueError, "seeds", {"seeds": ()}),
        (ValueError, "seeds", {"seeds": (0, 0)}),
        (ValueError, "n_samples", {"n_samples": 0}),
        (ValueError, "protocol", {"protocol": "papers"}),
        (ValueError, "n_bootstrap", {"n_bootstrap": 1}),
        (ValueError, "metrics is empty", {"metrics": []}),
        (TypeError, "names or methods", {"methods": [3]}),
        (TypeError, "names or patterns", {"missingness": [3]}),
    ]:
        arguments = {"datasets": data, "missingness": "mcar", "methods": [Poisson()], "output": tmp_path / "new"}
        with pytest.raises(error, match=message):
            bm.run(**(arguments | call), silent=True)
    assert not Poisson.calls and not (tmp_path / "new").exists()
