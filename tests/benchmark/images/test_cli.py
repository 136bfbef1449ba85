"""The command writes tables and images, and reports mistakes in one line."""

import dataclasses
from functools import partial

import pandas as pd
import pytest

from sccountsdiff.benchmark.images import (
    CONFIGS,
    cli,
    run,
    save_config,
    train_classifier,
)
from sccountsdiff.benchmark.images.data import IMAGE_SETS
from sccountsdiff.cli import main
from sccountsdiff.diffusion.schedules import SCHEDULES


def test_command_writes_tables_and_images(tiny_config, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(run, "train_classifier", partial(train_classifier, n_epochs=1))
    save_config(dataclasses.replace(tiny_config, n_steps=2), tmp_path / "tiny.yaml")
    output = tmp_path / "out"
    arguments = ["--config", str(tmp_path / "tiny.yaml"), "--images", "20", "--output", str(output)]
    assert main(["benchmark", "images", *arguments, "--accelerator", "cpu", "--studies", "attrition"]) == 0
    assert {path.name for path in output.iterdir()} == {
        "attrition.csv", "attrition.png", "classes.png", "config.yaml", "history.csv", "history.png", "last.ckpt",
        "losses.csv", "scores.csv", "step_0000000.png", "step_0000002.png", "drawn", "reference",
    }  # fmt: skip
    scores = pd.read_csv(output / "scores.csv")
    assert scores["guidance"].tolist() == [0, 1, 2] and scores["agreement"].between(0, 1).all()
    assert pd.read_csv(output / "losses.csv")["predictor"].tolist() == ["network", "pixel_mean", "linear_guess"]
    assert "agreement" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--config", "cifar10_small"], "for cifar10, not for digits"),
        (["--studies", "colour"], "Unknown studies: colour"),
        (["--dataset", "cifar10"], "needs a path"),
        (["--data", "somewhere"], "no file"),
        (["--images", "-1"], "`--images` must be a whole number of at least 10, not -1"),
        (["--steps", "0"], "`n_steps` must be"),
        (["--evaluated", "3"], "`n_evaluated` must be"),
        (["--batch-size", "-4"], "`batch_size` must be"),
        (["--seed", "-1"], "`seed` must be"),
        (["--workers", "-1"], "`n_workers` must be"),
        (["--checkpoint-every", "0"], "`checkpoint_every` must be"),
        (["--precision", "8"], "`--precision` must be"),
        (["--devices", "0"], "`devices` must be"),
        (["--devices", "one"], "`devices` must be"),
        (["--recipe", "cifar10_table", "--studies", "guidance"], "leave out"),
        (["--recipe", "cifar10_table", "--dataset", "digits"], "for cifar10, not for digits"),
    ],
)
def test_mistakes_are_one_line_before_any_work(arguments, message, tmp_path, capsys):
    assert main(["benchmark", "images", *arguments, "--output", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_dry_run_prints_the_plan_and_starts_nothing(tmp_path, capsys, small_files):
    output = ["--output", str(tmp_path / "out"), "--dry-run"]
    assert main(["benchmark", "images", *output]) == 0
    recipe = ["--recipe", "cifar10_attrition", "--data", str(small_files["cifar10"]), "--precision", "bf16-mixed"]
    assert main(["benchmark", "images", *recipe, *output]) == 0
    text = capsys.readouterr().out
    assert "58.69 M" in text and "hours, 1 x A100" in text and "24 to train on and 12 held out" in text
    assert not (tmp_path / "out").exists()


def test_a_recipe_runs_by_its_name(tmp_path, capsys, monkeypatch, small_files, pooled):
    monkeypatch.setattr(run, "load_inception", lambda path, *, download: pooled)
    changes = {"channels": (8, 8), "layers_per_block": 1}
    monkeypatch.setitem(CONFIGS, "celeba", dataclasses.replace(CONFIGS["celeba"], **changes))
    flags = "--steps 1 --batch-size 4 --sampling-steps 2 --evaluated 10 --images 10".split()
    arguments = ["--recipe", "celeba_60m", "--data", str(small_files["celeba"]), *flags, "--output", str(tmp_path)]
    assert main(["benchmark", "images", *arguments]) == 0
    assert pd.read_csv(tmp_path / "celeba_60m.csv")[["guidance", "attrition"]].to_numpy().tolist() == [[1.5, 0.005]]
    assert "paper_frechet" in capsys.readouterr().out


def test_flags_reach_the_study(capsys, monkeypatch):
    given = {}
    monkeypatch.setattr(cli, "run_images", lambda *args, **kwargs: given.update(kwargs) or pd.DataFrame())
    for flags, expected in ([], False), (["--download-weights"], True):
        assert main(["benchmark", "images", *flags]) == 0
        assert given["download_weights"] is expected


def test_sets_and_schedules_are_those_that_are_registered(capsys):
    for flag, names in ("--dataset", IMAGE_SETS), ("--schedule", SCHEDULES):
        with pytest.raises(SystemExit):
            main(["benchmark", "images", flag, "none"])
        error = capsys.readouterr().err
        assert all(name in error for name in names)
