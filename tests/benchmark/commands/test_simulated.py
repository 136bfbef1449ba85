"""The command writes all tables and figures, and reports mistakes in one line."""

import pandas as pd

from sccountsdiff.benchmark.simulated import Budget
from sccountsdiff.benchmark.simulated.study import MODELS
from sccountsdiff.cli import main

TINY = Budget(n_train=200, n_gradient_steps=5, n_samples=60, n_sampling_steps=4, batch_size=16, n_rounded=50)

TABLES = ("summary", "variance", "rounding", "joint", "marginal")

FIGURES = ("variance", "histograms", "joint", "rounding")


def test_command_writes_all_tables_and_figures(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sccountsdiff.benchmark.simulated.study.QUICK", TINY)
    output = tmp_path / "out"
    assert main(["benchmark", "simulated", "--quick", "--seeds", "3", "--output", str(output)]) == 0
    expected = {f"simulated_{name}.csv" for name in TABLES} | {f"simulated_{name}.png" for name in FIGURES}
    assert {path.name for path in output.iterdir()} == expected | {"simulated.md", "drawn"}
    assert all((output / name).stat().st_size > 5000 for name in expected if name.endswith("png"))
    joint = pd.read_csv(output / "simulated_joint.csv")
    assert set(joint["model"]) == {"truth", *MODELS} and set(joint["seed"]) == {3}
    page = (output / "simulated.md").read_text()
    assert "| wide | countsdiff |" in page and all(f"simulated_{name}.png" in page for name in FIGURES)
    assert "joint_swd" in capsys.readouterr().out


def test_error_of_the_command_is_one_line(tmp_path, capsys):
    assert main(["benchmark", "simulated", "--quick", "--seeds", "0", "0", "--output", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "`seeds`" in error and error.count("\n") == 1
