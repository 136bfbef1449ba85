"""The scripts behind the saved results can be started."""

from __future__ import annotations

import dataclasses
import json
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData

from sccountsdiff.benchmark.preprocessing import split_test
from sccountsdiff.benchmark.tuning import training_cells

SCRIPTS = sorted((Path(__file__).parents[2] / "docs" / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_imports_only_what_there_is(script, monkeypatch):
    """Under another name than ``__main__`` a script imports what it needs, others beside it too, and runs nothing."""
    monkeypatch.syspath_prepend(script.parent)
    assert callable(runpy.run_path(str(script))["main"])


@pytest.fixture(scope="module")
def script():
    return runpy.run_path(str(next(path for path in SCRIPTS if path.stem == "six_data_sets")))


class TestComparison:
    def test_cheap_methods_come_first_and_slow_ones_last_and_less_often(self, script):
        jobs = list(script["jobs"](list(script["TASKS"])))
        tier_of = lambda job: script["tier_of"](job.seed)
        stages = [2 if tier_of(job) == "tier2" else 0 if job.method in script["CHEAP"] else 1 for job in jobs]
        assert stages == sorted(stages) and len(set(jobs)) == len(jobs)
        trained = [job for job in jobs if job.method in script["TRAINED"] and tier_of(job) == "tier1"]
        assert [job.seed for job in trained] == sorted(job.seed for job in trained)
        second = [job for job in jobs if tier_of(job) == "tier2"]
        assert len({job.seed for job in second}) == 1 and {job.patterns for job in second} == {("mcar",)}
        slow = [job for job in second if not job.dataset.endswith(script["WHOLE"])]
        assert {job.method for job in slow} == {script["OURS"], *script["SLOW"]}
        assert {job.dataset for job in slow} == set(script["SLOW_DATASETS"])

    def test_no_setting_was_chosen_with_a_test_cell_of_the_first_tier(self, script, tmp_path):
        counts = np.random.default_rng(0).poisson(2, (400, 20)).astype(np.float32)
        cells = AnnData(counts, obs={"cell_type": list("ab") * 200})
        cells.write_h5ad(tmp_path / "pbmc3k.h5ad")
        comparison = script["Comparison"](tmp_path, tmp_path, tmp_path, tuned=True)
        share, earlier = script["TEST_SHARE"], script["EARLIER_SEEDS"]
        used = training_cells(comparison.dataset("pbmc3k"), earlier, share, min_cells=0).adata.obs_names
        assert comparison.split("pbmc3k", earlier[0]) is comparison.dataset("pbmc3k")
        for seed in script["SEEDS"]:
            dataset = comparison.split("pbmc3k", seed)
            test = split_test(dataset.adata, share, seed=seed, testable=dataset.testable)[1]
            assert len(test) == 100 and not set(dataset.adata.obs_names[test]) & set(used)

    def test_only_methods_that_denoise_are_asked_to_and_the_paper_needs_types(self, script):
        jobs = list(script["jobs"](list(script["TASKS"])))
        assert not any("molecules" in job.patterns for job in jobs if job.method in ("remdm", "gaussian_regression"))
        assert any("molecules" in job.patterns for job in jobs if job.method == "scvi")
        labelled = {name for name, columns in script["DATASETS"].items() if "label" in columns}
        labelled = {name for name in labelled if not name.endswith(script["WHOLE"])}
        assert {job.dataset for job in jobs if job.protocol == "paper"} == labelled
        assert {job.patterns for job in script["jobs"](["paper_mcar"])} == {("mcar",)}

    def test_tables_have_what_is_finished_in_the_settings_that_were_chosen(self, script, tmp_path):
        (tmp_path / "jobs" / "results").mkdir(parents=True)
        (tmp_path / "tuning").mkdir()
        label = "countsdiff_mean(model_kwargs={'n_hidden': 512})"
        chosen = {"dataset": "pbmc3k", "method": "countsdiff_mean", "metric": "poisson_loss", "chosen": label}
        chosen["scores"] = {"countsdiff_mean": 2.0, label: 1.0}
        (tmp_path / "tuning" / script["tuned_name"]("pbmc3k", "countsdiff_mean")).write_text(json.dumps(chosen))
        names = ["countsdiff", "countsdiff(model_kwargs={'n_hidden': 512})", "gene_mean", "gene_mean"]
        for i, (name, seed) in enumerate(zip(names, [*[script["SEEDS"][0]] * 3, 0], strict=True)):
            row = dict.fromkeys(script["COLUMNS"], 1) | {"dataset": "pbmc3k", "method": name, "seed": seed}
            row["protocol"] = "all"
            configuration = {"method": {"name": name.partition("(")[0]}}
            text = json.dumps({"configuration": configuration, "rows": [row]})
            (tmp_path / "jobs" / "results" / f"{i}.json").write_text(text)
        comparison = script["Comparison"](tmp_path, tmp_path, tmp_path, tuned=True)
        comparison.collect()
        assert sorted(pd.read_csv(tmp_path / "tier1_pbmc3k.csv")["method"]) == [names[1], "gene_mean"]
        assert pd.read_csv(tmp_path / "settings_six_data_sets.csv")["chosen"].tolist() == [False, True]
        script["forget"](tmp_path, tmp_path, ["countsdiff", "countsdiff_mean"])
        assert len(list(tmp_path.glob("jobs/results/*.json"))) == 2 and not list(tmp_path.glob("tuning/*.json"))
        assert pd.read_csv(tmp_path / "tier1_pbmc3k.csv")["method"].tolist() == ["gene_mean"]

    def test_a_clone_goes_on_where_the_tables_end(self, script, tmp_path):
        job = next(job for job in script["jobs"](["mcar"]) if job.method == "scvi" and job.dataset == "pbmc3k")
        members = script["FAMILIES"]["scvi"]
        row = dict.fromkeys(script["COLUMNS"], 1) | {"dataset": job.dataset, "seed": job.seed, "protocol": job.protocol}
        rows = [row | {"method": f"{name}(n_latent=30)", "missingness": "mcar"} for name in members]
        for finished in (rows[:-1], rows):
            pd.DataFrame(finished).to_csv(tmp_path / "tier1_pbmc3k.csv", index=False)
            comparison = script["Comparison"](tmp_path, tmp_path, tmp_path, tuned=True)
            assert comparison.is_saved(job) == (finished is rows)
        assert not comparison.is_saved(dataclasses.replace(job, seed=job.seed + 1))
        # Other seeds are run with the settings that were chosen, without choosing again.
        assert [method.n_latent for method in comparison.methods("scvi", "pbmc3k")] == [30] * len(members)
        (tmp_path / "jobs" / "results").mkdir(parents=True)
        new = row | {"method": "scvi(n_latent=30)", "missingness": "mcar", "value": 2}
        (tmp_path / "jobs" / "results" / "0.json").write_text(json.dumps({"rows": [new]}))
        comparison.collect()
        table = pd.read_csv(tmp_path / "tier1_pbmc3k.csv").set_index("method")["value"]
        assert table.to_dict() == {f"{name}(n_latent=30)": 2 if name == "scvi" else 1 for name in members}


@pytest.mark.slow
def test_work_from_a_file_to_a_file_that_was_killed_ends_as_if_it_had_not_been(tmp_path):
    """A process that is really killed midway, and another that goes on; with less than 2 GB beyond the model."""
    script = next(path for path in SCRIPTS if path.stem == "disk_to_disk")
    saved = tmp_path / "found.csv"
    subprocess.run([sys.executable, str(script), "--cells", "2000", "--save", str(saved)], check=True)
    (found,) = pd.read_csv(saved).to_dict("records")
    assert found["the same file"] == 1 and found["blocks kept after a kill"] > 0
    assert found["GB beyond model"] < 2
