import argparse
import inspect
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import get_args

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData

from sccountsdiff.benchmark import cli
from sccountsdiff.benchmark.baselines import BASELINES
from sccountsdiff.benchmark.missingness import MISSINGNESS
from sccountsdiff.benchmark.preprocessing import Ranking
from sccountsdiff.benchmark.runner import run
from sccountsdiff.benchmark.sweeps import SWEEPS
from sccountsdiff.cli import main
from sccountsdiff.options import registered_names


@pytest.fixture
def path(tmp_path):
    rng = np.random.default_rng(0)
    obs = pd.DataFrame({"type": np.array(["a", "b"])[rng.integers(2, size=100)]}, index=[f"c{i}" for i in range(100)])
    AnnData(rng.poisson(4, (100, 12)).astype(np.float32), obs=obs).write_h5ad(tmp_path / "mine.h5ad")
    return tmp_path / "mine.h5ad"


def test_imputation(path, tmp_path, capsys):
    output = tmp_path / "out"
    command = ["benchmark", "imputation", "--dataset", path, "--label", "type", "--covariate", "type", "--genes", "10"]
    command += [
        "--methods",
        "gene_mean",
        "conditional_mean",
        "--missingness",
        "mcar:0.3",
        "mnar_low",
        "--seeds",
        "0",
        "1",
    ]
    command += ["--metrics", "rmse", "spearman", "--bootstrap", "0", "--output", output]
    assert main([str(part) for part in command]) == 0
    table = pd.read_csv(output / "results.csv")
    assert len(table) == 2 * 2 * 2 * 2 and set(table["missingness"]) == {"mcar(rate=0.3)", "mnar_low"}
    assert "conditional_mean" in capsys.readouterr().out
    page = (output / "report.html").read_text(encoding="utf-8")
    assert (output / "report.md").exists() and "<dd>100 cells, 10 genes; 10 cells are test cells</dd>" in page
    assert f"sccountsdiff benchmark imputation --dataset {path} --label type" in page


def test_json(path, tmp_path, capsys):
    command = ["benchmark", "imputation", "--dataset", path, "--methods", "zero", "--metrics", "rmse", "--bootstrap", 0]
    assert main([str(part) for part in [*command, "--output", tmp_path / "out", "--json", "--quiet"]]) == 0
    printed = capsys.readouterr()
    (score,) = json.loads(printed.out)["scores"]
    assert score["method"] == "zero" and score["metric"] == "rmse" and printed.err == ""


def test_what_is_written_here_is_so_where_it_is_defined():
    assert set(cli.VALUES) == set(SWEEPS) and set(cli.RANKINGS) == set(get_args(Ranking))
    run_defaults = {name: p.default for name, p in inspect.signature(run).parameters.items()}
    given = cli_defaults("imputation")
    shared = set(given) & set(run_defaults) - {"output"}
    assert len(shared) > 10
    as_list = lambda value: [value] if isinstance(value, str | int | float) else list(value or ())
    assert {name: as_list(given[name]) for name in shared} == {name: as_list(run_defaults[name]) for name in shared}
    assert set(registered_names("sccountsdiff.benchmark.baselines", "register_baseline")) == set(BASELINES)
    assert set(registered_names("sccountsdiff.benchmark.missingness", "register_missingness")) == set(MISSINGNESS)


def cli_defaults(kind):
    parser = argparse.ArgumentParser()
    cli.add_kinds(parser)
    return vars(parser.parse_args([kind]))


def test_molecules(path, tmp_path, capsys):
    command = ["benchmark", "imputation", "--dataset", path, "--methods", "zero", "gene_mean_scaled"]
    command += [
        "--missingness",
        "molecules",
        "--bootstrap",
        "2",
        "--bootstrap-cells",
        "5",
        "--output",
        tmp_path / "out",
    ]
    assert main([str(part) for part in command]) == 0
    table = pd.read_csv(tmp_path / "out" / "results.csv")
    assert len(table) == 4 and set(table["metric"]) == {"molecule_mse", "molecule_poisson"}
    assert "molecule_poisson" in capsys.readouterr().out
    assert "### Denoising" in (tmp_path / "out" / "report.md").read_text(encoding="utf-8")


def test_tune(path, tmp_path, capsys):
    command = [
        "benchmark",
        "tune",
        "--dataset",
        path,
        "--methods",
        "knn_mean",
        "--seeds",
        "0",
        "1",
        "--output",
        tmp_path,
    ]
    assert main([str(part) for part in command]) == 0
    assert capsys.readouterr().out.startswith("knn_mean")
    assert (tmp_path / "tuned_mine_knn_mean_0_1.json").exists()


def test_panels_of_batches(path, tmp_path):
    command = [
        "benchmark",
        "imputation",
        "--dataset",
        path,
        "--methods",
        "gene_mean",
        "--batch",
        "type",
        "--metrics",
        "rmse",
    ]
    command += ["--test-share", "0.4", "--missingness", "panel", "--bootstrap", "0", "--output", tmp_path / "out"]
    assert main([str(part) for part in command]) == 0
    assert pd.read_csv(tmp_path / "out" / "results.csv")["missingness"].tolist() == ["panel"]


def test_sweep(path, tmp_path, capsys):
    output = tmp_path / "out"
    command = ["benchmark", "sweep", "n_steps", "--dataset", path, "--values", "1", "2", "--max-epochs", "1"]
    command += ["--metrics", "rmse", "--bootstrap", "0", "--output", output]
    assert main([str(part) for part in command]) == 0
    assert pd.read_csv(output / "n_steps.csv")["n_steps"].tolist() == [1, 2]
    assert (output / "n_steps.png").stat().st_size > 1000
    assert "rmse" in capsys.readouterr().out


def test_a_sweep_under_the_protocol_of_the_paper(path, tmp_path):
    command = [
        "benchmark",
        "sweep",
        "n_steps",
        "--dataset",
        path,
        "--label",
        "type",
        "--values",
        "1",
        "--max-epochs",
        "1",
    ]
    command += ["--metrics", "rmse", "--bootstrap", "0", "--protocol", "paper", "--retry-failed", "--output", tmp_path]
    assert main([str(part) for part in command]) == 0
    assert pd.read_csv(tmp_path / "n_steps.csv")["protocol"].tolist() == ["paper"]


def test_failures_are_printed_with_their_reason(path, tmp_path, capsys):
    command = ["benchmark", "imputation", "--dataset", path, "--methods", "scgpt_pretrained", "--metrics", "rmse"]
    command += ["--output", tmp_path]
    assert main([str(part) for part in [*command, "--weights", tmp_path / "nothing"]]) == 1, "none could be scored"
    printed = capsys.readouterr().out
    assert printed.startswith("scgpt_pretrained(weights_path=") and str(tmp_path / "nothing") in printed
    assert "failed: " in printed and "Empty" not in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["imputation", "--methods", "gene_men"], "did you mean 'gene_mean'"),
        (["imputation", "--dataset", "nothing.h5ad"], "no file"),
        (["imputation", "--methods", "zero", "--weights", "folder"], "--weights goes with --methods scgpt_pretrained"),
        (["sweep", "n_steps", "--schedules", "cosine"], "--schedules"),
    ],
)
def test_errors_are_one_line(arguments, message, tmp_path, capsys):
    assert main(["benchmark", *arguments, "--output", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize(
    ("kind", "sign"),
    [
        (
            ["imputation", "--dataset", "{path}", "--methods", "countsdiff", "--missingness", "mcar"],
            "seed 0, countsdiff",
        ),
        (["images", "--steps", "100000", "--accelerator", "cpu"], "{output}/config.yaml"),
    ],
    ids=["imputation", "images"],
)
def test_a_signal_stops_it_with_the_code_that_workflows_expect(path, tmp_path, kind, sign, number, code):
    output = tmp_path / "out"
    names = {"path": path, "output": output}
    given = [*(part.format(**names) for part in kind), "--output", str(output)]
    heard = tmp_path / "heard.txt"
    with heard.open("w") as error:
        process = subprocess.Popen([sys.executable, "-m", "sccountsdiff", "benchmark", *given], stderr=error)
        at_work = lambda: Path(sign.format(**names)).exists() or sign in heard.read_text()
        while not at_work() and process.poll() is None:
            time.sleep(0.05)
        process.send_signal(number)
        assert process.wait() == code, heard.read_text()
    assert f"topped by {signal.Signals(number).name}" in heard.read_text() and "Traceback" not in heard.read_text()
