import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from scipy import sparse

from sccountsdiff.benchmark.commands.paper import TABLES
from sccountsdiff.benchmark.paper import RECIPES
from sccountsdiff.cli import main


@pytest.fixture
def heart_file(tmp_path_factory):
    """A small file in the layout of the atlas."""
    rng = np.random.default_rng(0)
    counts = rng.poisson(rng.gamma(1, 3, (120, 30)))
    obs = {"cell_type": rng.choice([*"abc"], 120), "gender": rng.choice(["Male", "Female"], 120)}
    obs["age_group"] = rng.choice(["40-45", "50-55"], 120)
    obs = pd.DataFrame(obs, index=[f"cell{i}" for i in range(120)])
    path = tmp_path_factory.mktemp("atlas") / "heart.h5ad"
    AnnData(sparse.csr_matrix(counts, dtype=np.float32), obs=obs).write_h5ad(path)
    return path


def test_a_table_next_to_the_paper_s(heart_file, tmp_path, capsys):
    command = ["benchmark", "paper", "heart_mcar", "--data", heart_file, "--scale", "0.001", "--metrics", "rmse"]
    command += ["--column", "age=age_group", "--column", "batch=", "--output", tmp_path / "out"]
    command += ["--rows", "Zero imputation", "Mean imputation"]
    assert main([str(part) for part in command]) == 0
    comparison = pd.read_csv(tmp_path / "out" / "comparison.csv", header=[0, 1], index_col=[0, 1])
    assert comparison.loc[("Zero imputation", 1), ("rmse", "paper")] == 9.27
    assert comparison.loc[("Zero imputation", 1), ("rmse", "ours")] > 0
    assert comparison.loc[("MAGIC", 1), ("rmse", "ours")] != comparison.loc[("MAGIC", 1), ("rmse", "ours")]  # not run
    assert "Mean imputation" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--column", "age"], "--column must be COVARIATE=COLUMN, found ['age']"),
        (["--rows", "Magic"], "rows must be some of"),
        (["--scale", "2"], "scale must be above 0"),
    ],
)
def test_errors_are_one_line(arguments, message, heart_file, tmp_path, capsys):
    command = ["benchmark", "paper", "heart_mcar", "--data", str(heart_file), "--output", str(tmp_path / "new")]
    assert main([*command, *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not (tmp_path / "new").exists()


def test_tables_are_those_of_the_recipes():
    assert set(TABLES) == set(RECIPES)


def test_help_names_the_whole_command(capsys):
    with pytest.raises(SystemExit):
        main(["benchmark", "paper", "--help"])
    text = capsys.readouterr().out
    assert text.startswith("usage: sccountsdiff benchmark paper [-h] [--data FILE]") and "heart_mcar_classifier" in text


def test_a_dry_run_needs_no_data(capsys):
    command = ["benchmark", "paper", "heart_mcar", "--scale", "0.01", "--rows", "MAGIC", "GAIN"]
    assert main([*command, "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:2] == ["parameters", "mflop_per_cell"] and lines[0].split()[-1] == "memory_gb"
    assert [line.split()[0] for line in lines[1:]] == ["MAGIC", "GAIN"]


def test_a_dry_run_checks_what_it_is_given(heart_file, tmp_path, capsys):
    command = [
        "benchmark",
        "paper",
        "heart_mcar",
        "--scale",
        "0.01",
        "--rows",
        "MAGIC",
        "scGPT (pretrained)",
        "--dry-run",
    ]
    columns = ["--column", "age=age_group", "--column", "batch="]
    assert main([*command, "--data", str(heart_file), *columns]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "data: 120 cells, 30 genes, covariates cell_type, gender, age"
    assert lines[1] == "scGPT (pretrained): will fail: no weights are given"
    for wrong, message in {
        ("--data", "nowhere.h5ad"): "There is no file",
        ("--data", str(heart_file)): "must have the columns",
        ("--weights", str(tmp_path)): "is not a folder with a checkpoint",
    }.items():
        assert main([*command, *wrong]) == 2
        assert message in capsys.readouterr().err
