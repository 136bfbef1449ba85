"""The command writes tables and images, and reports mistakes in one line."""

import dataclasses
from functools import partial

import pandas as pd
import pytest

from sccountsdiff.benchmark.images import (
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
    ],
)
def test_mistakes_are_one_line_before_any_work(arguments, message, tmp_path, capsys):
    assert main(["benchmark", "images", *arguments, "--output", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


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
