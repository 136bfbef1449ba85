"""The command writes tables and images, and reports mistakes in one line."""

from functools import partial

import pandas as pd
import pytest

pytest.importorskip("diffusers", reason="the images extra is not installed")
pytest.importorskip("PIL", reason="the images extra is not installed")
pytest.importorskip("torchmetrics", reason="the images extra is not installed")

from sccountsdiff.benchmark.commands import images
from sccountsdiff.benchmark.images import config, load_config, run, save_config, studies, train_classifier
from sccountsdiff.benchmark.images.data import IMAGE_SETS
from sccountsdiff.cli import main
from sccountsdiff.diffusion.schedules import SCHEDULES


@pytest.fixture
def tiny_config():
    short = {"n_steps": 2, "evaluate_every": 2, "n_warmup_steps": 2, "n_sampling_steps": 3, "batch_size": 16}
    return load_config("digits", channels=(8, 8), **short)


def test_command_writes_tables_and_images(tiny_config, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(run, "train_classifier", partial(train_classifier, n_epochs=1))
    save_config(tiny_config, tmp_path / "tiny.yaml")
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
        (["--images", "-1"], "argument --images: must be a whole number of at least 10, not -1"),
        (["--steps", "0"], "argument --steps: must be"),
        (["--evaluated", "3"], "`n_evaluated` must be"),
        (["--batch-size", "-4"], "argument --batch-size: must be"),
        (["--seed", "-1"], "argument --seed: must be"),
        (["--workers", "-1"], "argument --workers: must be"),
        (["--checkpoint-every", "0"], "argument --checkpoint-every: must be"),
        (["--precision", "8"], "`--precision` must be"),
        (["--devices", "0"], "`devices` must be"),
        (["--devices", "one"], "`devices` must be"),
        (["--recipe", "none"], "`--recipe` must be"),
        (["--recipe", "cifar10_table", "--studies", "guidance"], "leave out"),
        (["--recipe", "cifar10_table", "--dataset", "digits"], "for cifar10, not for digits"),
    ],
)
def test_mistakes_are_one_line_before_any_work(arguments, message, tmp_path, capsys):
    assert main(["benchmark", "images", *arguments, "--output", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_flags_reach_the_study(capsys, monkeypatch):
    given = {}
    monkeypatch.setattr(
        "sccountsdiff.benchmark.images.run_images", lambda *args, **kwargs: given.update(kwargs) or pd.DataFrame()
    )
    for flags, expected in ([], False), (["--download-weights"], True):
        assert main(["benchmark", "images", *flags]) == 0
        assert given["download_weights"] is expected


def test_sets_and_schedules_are_those_that_are_registered(capsys):
    for flag, names in ("--dataset", IMAGE_SETS), ("--schedule", SCHEDULES):
        assert main(["benchmark", "images", flag, "none"]) == 2
        error = capsys.readouterr().err
        assert all(name in error for name in names)
    assert sorted(images.STUDIES) == sorted(studies.STUDIES)
    assert (images.LEAST_SCORED, images.REFERENCES) == (config.LEAST_SCORED, run.REFERENCES)
