"""The studies vary what they say, and the command writes everything it promises."""

import dataclasses
from functools import partial

import pandas as pd
import pytest
import torch

from sccountsdiff.benchmark import images
from sccountsdiff.benchmark.images import (
    ImageDiffusion,
    Judge,
    load_images,
    load_model,
    run,
    run_images,
    save_config,
    studies,
    train_classifier,
)
from sccountsdiff.cli import main


@pytest.fixture(scope="module")
def judge(digits):
    return Judge(torch.nn.Flatten(), digits.train)


def test_sweeps_vary_one_thing_and_draw_what_they_say(tiny_run, judge, digits):
    _, model = tiny_run
    drawn = []
    options = {"n_images": 20, "n_steps": 2, "on_images": lambda trial, images: drawn.append((trial, images))}
    guided = studies.guidance(model, judge, digits.train, **options)
    assert guided["guidance"].tolist() == list(studies.GUIDANCES) and set(guided["attrition"]) == {0.01}
    thinned = studies.attrition(model, judge, digits.train, **options)
    assert thinned["attrition"].tolist() == list(studies.ATTRITIONS) and set(thinned["guidance"]) == {1.0}
    assert [trial.guidance for trial, _ in drawn[:7]] == list(studies.GUIDANCES)
    scores = [judge.score(images)["frechet"] for _, images in drawn]
    assert [*guided["frechet"], *thinned["frechet"]] == pytest.approx(scores)


def test_schedules_are_trained_apart_and_compared_alike(tiny_config, judge, digits, tmp_path):
    config = dataclasses.replace(tiny_config, n_steps=2)
    table = studies.schedules(
        config, digits, judge, tmp_path, n_images=20, n_steps=2, train_kwargs={"n_heldout": 8}
    )  # fmt: skip
    assert table["schedule"].tolist() == [name for name in studies.SCHEDULES for _ in range(3)]
    assert table["guidance"].tolist() == ["uncond", 1.0, 2.0] * 3
    assert table["attrition"].tolist() == [0.0, 0.01, 0.02] * 3
    for folder in (tmp_path, tmp_path / "schedule_fisher", tmp_path / "schedule_blackout"):
        history = pd.read_csv(folder / "history.csv")
        assert history["step"].tolist() == [0, 2] and history["frechet"].notna().all()
        assert (folder / "step_0000002.png").is_file()
    assert (tmp_path / "schedules.png").stat().st_size > 1000
    assert len(pd.read_csv(tmp_path / "schedules.csv")) == 9


def test_no_schedule_is_trained_twice(tiny_config, digits, tmp_path, monkeypatch):
    trained, configure = [], ImageDiffusion.configure_optimizers
    monkeypatch.setattr(
        ImageDiffusion, "configure_optimizers", lambda self: trained.append(self.config.schedule) or configure(self)
    )
    config = dataclasses.replace(tiny_config, n_steps=1, schedule="fisher")
    options = {"features": torch.nn.Flatten(), "n_images": 20, "n_heldout": 8, "run_studies": ["schedules"]}
    run_images(config, digits, tmp_path, **options)
    assert sorted(trained) == ["blackout", "cosine", "fisher"]
    table = pd.read_csv(tmp_path / "schedules.csv")
    assert table["schedule"].tolist() == [name for name in studies.SCHEDULES for _ in range(3)]
    model, judge = load_model(tmp_path / "last.ckpt"), Judge(torch.nn.Flatten(), digits.train)
    expected = studies.compare(model, studies.TABLE, judge, digits.train, n_images=20)["frechet"]
    assert table.loc[table["schedule"] == "fisher", "frechet"].tolist() == pytest.approx(expected.tolist())


def test_command_writes_tables_and_pictures(tiny_config, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(run, "train_classifier", partial(train_classifier, n_epochs=1))
    save_config(dataclasses.replace(tiny_config, n_steps=2), tmp_path / "tiny.yaml")
    output = tmp_path / "out"
    arguments = ["--config", str(tmp_path / "tiny.yaml"), "--images", "20", "--output", str(output)]
    assert main(["benchmark", "images", *arguments, "--accelerator", "cpu", "--studies", "attrition"]) == 0
    assert {path.name for path in output.iterdir()} == {
        "attrition.csv", "attrition.png", "classes.png", "config.yaml", "history.csv", "history.png", "last.ckpt",
        "losses.csv", "scores.csv", "step_0000000.png", "step_0000002.png",
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


def test_weights_of_inception_are_fetched_if_asked_for(tiny_config, digits, tmp_path, monkeypatch):
    asked = []

    def load(path, *, download):
        asked.append((path, download))
        return torch.nn.Flatten()

    monkeypatch.setattr(run, "load_inception", load)
    config = dataclasses.replace(tiny_config, n_steps=1, dataset="cifar10")  # a set that has no classifier of its own
    run_images(config, digits, tmp_path / "out", download_weights=True, n_images=12, n_heldout=8)
    assert asked == [(None, True)]

    given = {}
    monkeypatch.setattr(images, "run_images", lambda *args, **kwargs: given.update(kwargs) or pd.DataFrame())
    for flags, expected in ([], False), (["--download-weights"], True):
        assert main(["benchmark", "images", *flags]) == 0
        assert given["download_weights"] is expected


def test_without_inception_there_are_losses_and_pictures_but_no_scores(tiny_config, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    config = dataclasses.replace(tiny_config, n_steps=1, dataset="cifar10")  # a set that has no classifier of its own
    assert run_images(config, load_images("digits"), tmp_path / "out", n_images=12, n_heldout=8).empty
    assert "No Frechet distance" in caplog.text
    assert (tmp_path / "out" / "losses.csv").is_file() and not (tmp_path / "out" / "scores.csv").exists()
    with pytest.raises(ValueError, match="studies need scores"):
        run_images(config, load_images("digits"), tmp_path / "out", run_studies=["guidance"])
    with pytest.raises(FileNotFoundError, match="absent.pth"):
        run_images(config, load_images("digits"), tmp_path / "out", weights_path=tmp_path / "absent.pth")
