from dataclasses import replace
from typing import ClassVar

import pytest

import sccountsdiff.benchmark as bm
from sccountsdiff.benchmark.baselines import Baseline, CountsDiff
from sccountsdiff.benchmark.datasets import Dataset
from sccountsdiff.benchmark.metrics.registry import INPUTS
from sccountsdiff.benchmark.plan import Plan


class Untouched(Baseline):
    """Must not be called."""

    name = "untouched"
    calls: ClassVar[list] = []

    def _fit(self, cells, seed):
        self.calls.append("fit")

    def _impute(self, cells, sites, n_samples, seed):
        self.calls.append("impute")


def names(metrics):
    return {metric.name for metric in metrics}


def test_default_metrics_are_those_that_apply_and_are_installed(toy_data, monkeypatch):
    needy = replace(INPUTS["clusters"], packages=("no_such_package",))
    monkeypatch.setitem(INPUTS._entries, "clusters", needy)
    imputation = names(Plan(datasets=toy_data, missingness="mcar").metrics)
    assert {"rmse", "scfid", "marker_recovery"} <= imputation and "cluster_ari" not in imputation
    denoising = names(Plan(datasets=toy_data, missingness="molecules", methods="zero").metrics)
    assert denoising == {"molecule_mse", "molecule_poisson"}
    both = names(Plan(datasets=toy_data, missingness=["mcar", "molecules"], methods="zero").metrics)
    assert both == imputation | denoising
    quick = names(Plan(datasets=toy_data, missingness="mcar", quick=True).metrics)
    assert imputation - quick == {"scfid", "accuracy", "macro_f1"} & imputation


def test_metrics_for_a_data_set_a_task_and_the_truth(toy_data):
    pytest.importorskip("leidenalg")
    metrics = ["rmse", "marker_recovery", "cluster_ari", "molecule_mse"]
    plan = Plan(datasets=toy_data, missingness=["mcar", "molecules"], methods="zero", metrics=metrics)
    entries, molecules = plan.tasks.values()
    assert names(plan.metrics_for(toy_data, entries)) == {"rmse", "marker_recovery", "cluster_ari"}
    assert names(plan.metrics_for(Dataset("plain", toy_data.adata), entries)) == {"rmse"}
    assert names(plan.metrics_for(toy_data, molecules)) == {"molecule_mse"}
    assert names(plan.metrics_for(toy_data, entries, is_truth=True)) == {"cluster_ari"}
    assert not plan.metrics_for(toy_data, molecules, is_truth=True)


def test_quick_cuts_the_training_of_named_methods_and_says_so(toy_data):
    methods = ["zero", "countsdiff", "scvi", CountsDiff(n_steps=2)]
    plan = Plan(datasets=toy_data, missingness="mcar", methods=methods, quick=True)
    assert list(plan.methods) == ["zero", "countsdiff(max_epochs=60)", "scvi(max_epochs=240)", "countsdiff(n_steps=2)"]
    plan = Plan(datasets=toy_data, missingness="mcar", methods=methods[:3])
    assert list(plan.methods) == ["zero", "countsdiff", "scvi"]


def test_everything_is_checked_before_any_work(toy_data, tmp_path, monkeypatch):
    plain = Dataset("plain", toy_data.adata)

    needy = replace(INPUTS["clusters"], packages=("no_such_package",))
    monkeypatch.setitem(INPUTS._entries, "clusters", needy)
    for error, message, call in [
        (KeyError, "did you mean 'gene_mean'", {"methods": ["zero", "gene_men"]}),
        (KeyError, "Unknown missingness pattern", {"missingness": "mcra"}),
        (ValueError, "'mar' has no rate", {"missingness": "mar:0.5"}),
        (KeyError, "Unknown metric", {"metrics": ["rmsee"]}),
        (KeyError, "Unknown data set", {"datasets": "kang"}),
        (
            ValueError,
            "'molecule_mse' needs denoised, held_out, which .*'mcar'.* does not",
            {"metrics": ["molecule_mse"]},
        ),
        (
            ValueError,
            "'rmse' needs .* does not give",
            {"missingness": "molecules", "methods": "zero", "metrics": ["rmse"]},
        ),
        (
            ValueError,
            r"none of \['rmse'\] fits missingness 'molecules'",
            {"missingness": ["mcar", "molecules"], "methods": "zero", "metrics": ["rmse"]},
        ),
        (
            ValueError,
            r"methods that denoise, which \['gain', 'untouched'\] do not",
            {"missingness": "molecules", "methods": ["zero", "gain", Untouched()]},
        ),
        (ValueError, "'molecules' hides none", {"missingness": "molecules", "methods": "zero", "protocol": "paper"}),
        (ValueError, "'molecules' has no rate", {"missingness": "molecules:0.5", "methods": "zero"}),
        (ValueError, "`bootstrap_cells` must be a whole number of at least 2, not 1", {"bootstrap_cells": 1}),
        (ValueError, "no data set has a label", {"datasets": plain, "metrics": ["accuracy"]}),
        (ValueError, "has no label", {"datasets": plain, "protocol": "paper"}),
        (FileNotFoundError, "embedder", {"embedder": tmp_path / "nowhere"}),
        (ImportError, "no_such_package", {"metrics": ["cluster_ari"]}),
        (ValueError, "methods must name at least one, each once", {"methods": ["zero", "zero"]}),
        (ValueError, "datasets must name at least one, each once", {"datasets": [toy_data, toy_data]}),
        (ValueError, "seeds", {"seeds": ()}),
        (ValueError, "seeds", {"seeds": (0, 0)}),
        (ValueError, "n_samples", {"n_samples": 0}),
        (ValueError, "protocol", {"protocol": "papers"}),
        (ValueError, "n_bootstrap", {"n_bootstrap": 1}),
        (ValueError, "metrics is empty", {"metrics": []}),
        (TypeError, "names or methods", {"methods": [3]}),
        (TypeError, "names or patterns", {"missingness": [3]}),
    ]:
        arguments = {"datasets": toy_data, "missingness": "mcar", "methods": [Untouched()], "output": tmp_path / "new"}
        with pytest.raises(error, match=message):
            bm.run(**(arguments | call), silent=True)
    assert not Untouched.calls and not (tmp_path / "new").exists()
