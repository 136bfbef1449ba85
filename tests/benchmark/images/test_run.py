"""The whole study writes everything it promises, and trains no model twice."""

import dataclasses

import pandas as pd
import pytest
import torch

from sccountsdiff.benchmark.images import (
    ImageDiffusion,
    ImageEvaluator,
    load_images,
    load_model,
    run,
    run_images,
    studies,
)

SCHEDULES = ("cosine", "fisher", "blackout")


def test_no_schedule_is_trained_twice(tiny_config, digits, tmp_path, monkeypatch):
    trained, configure = [], ImageDiffusion.configure_optimizers
    monkeypatch.setattr(
        ImageDiffusion, "configure_optimizers", lambda self: trained.append((self.config.schedule, self.config.conditional)) or configure(self)
    )
    config = dataclasses.replace(tiny_config, n_steps=1, schedule="fisher")
    options = {"features": torch.nn.Flatten(), "n_images": 20, "n_heldout": 8, "run_studies": ["schedules"]}
    run_images(config, digits, tmp_path, **options)
    assert sorted(trained) == [("blackout", False), ("blackout", True), ("cosine", False), ("cosine", True),
        ("fisher", False), ("fisher", True)]  # fmt: skip
    table = pd.read_csv(tmp_path / "schedules.csv")
    assert table["schedule"].tolist() == [name for name in SCHEDULES for _ in range(3)]
    model, evaluator = load_model(tmp_path / "last.ckpt"), ImageEvaluator(torch.nn.Flatten(), digits.train)
    expected = studies.compare(model, studies.TABLE[1:], evaluator, digits.train, n_images=20)["frechet"]
    assert table.loc[table["schedule"] == "fisher", "frechet"].tolist()[1:] == pytest.approx(expected.tolist())
    alone = load_model(tmp_path / "schedule_fisher_unconditional" / "last.ckpt")
    assert alone.network.condition is None  # trained as such, not a conditional one that is told nothing
    unguided = studies.compare(alone, studies.TABLE[:1], evaluator, digits.train, n_images=20)
    assert table.loc[table["guidance"] == "uncond", "frechet"].tolist()[1] == pytest.approx(unguided["frechet"][0])


def test_weights_of_inception_are_fetched_if_asked_for(tiny_config, digits, tmp_path, monkeypatch):
    asked = []

    def load(path, *, download):
        asked.append((path, download))
        return torch.nn.Flatten()

    monkeypatch.setattr(run, "load_inception", load)
    config = dataclasses.replace(tiny_config, n_steps=1, dataset="cifar10")  # a set that has no classifier of its own
    run_images(config, digits, tmp_path / "out", download_weights=True, n_images=12, n_heldout=8)
    assert asked == [(None, True)]


def test_without_inception_there_are_losses_and_images_but_no_scores(tiny_config, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    config = dataclasses.replace(tiny_config, n_steps=1, dataset="cifar10")  # a set that has no classifier of its own
    assert run_images(config, load_images("digits"), tmp_path / "out", n_images=12, n_heldout=8).empty
    assert "No Frechet distance" in caplog.text
    assert (tmp_path / "out" / "losses.csv").is_file() and not (tmp_path / "out" / "scores.csv").exists()
    with pytest.raises(ValueError, match="needs scores"):
        run_images(config, load_images("digits"), tmp_path / "out", run_studies=["guidance"])
    with pytest.raises(FileNotFoundError, match="absent.pth"):
        run_images(config, load_images("digits"), tmp_path / "out", weights_path=tmp_path / "absent.pth")
