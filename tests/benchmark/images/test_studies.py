"""The studies vary what they say, and nothing else."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from sccountsdiff.benchmark.images import ImageEvaluator, generate, studies
from sccountsdiff.benchmark.images.studies import attrition_grid, class_grid, evaluation

SCHEDULES = ("cosine", "fisher", "blackout")


@pytest.fixture(scope="module")
def evaluator(digits):
    return ImageEvaluator(torch.nn.Flatten(), digits.train)


def test_sweeps_vary_one_thing_and_draw_what_they_say(tiny_run, evaluator, digits):
    _, model = tiny_run
    drawn = []
    options = {"n_images": 20, "n_steps": 2, "on_images": lambda trial, images: drawn.append((trial, images))}
    guided = studies.guidance(model, evaluator, digits.train, **options)
    assert guided["guidance"].tolist() == list(studies.GUIDANCES) and set(guided["attrition"]) == {0.01}
    thinned = studies.attrition(model, evaluator, digits.train, **options)
    assert thinned["attrition"].tolist() == list(studies.ATTRITIONS) and set(thinned["guidance"]) == {1.0}
    assert [trial.guidance for trial, _ in drawn[:8]] == list(studies.GUIDANCES) and max(studies.GUIDANCES) == 5
    scores = [evaluator.score(images)["frechet"] for _, images in drawn]
    assert [*guided["frechet"], *thinned["frechet"]] == pytest.approx(scores)


def test_schedules_are_trained_apart_and_compared_alike(tiny_config, evaluator, digits, tmp_path):
    config = dataclasses.replace(tiny_config, n_steps=2)
    table = studies.schedules(
        config, digits, evaluator, tmp_path, n_images=20, n_steps=2, train_kwargs={"n_heldout": 8}
    )  # fmt: skip
    assert table["schedule"].tolist() == [name for name in SCHEDULES for _ in range(3)]
    assert table["guidance"].tolist() == ["uncond", 1.0, 2.0] * 3
    assert table["attrition"].tolist() == [0.0, 0.01, 0.02] * 3
    for folder in (tmp_path, tmp_path / "schedule_fisher", tmp_path / "schedule_blackout"):
        history = pd.read_csv(folder / "history.csv")
        assert history["step"].tolist() == [0, 2] and history["frechet"].notna().all()
        assert (folder / "step_0000002.png").is_file()
    assert (tmp_path / "schedules.png").stat().st_size > 1000
    assert len(pd.read_csv(tmp_path / "schedules.csv")) == 9


def test_a_model_with_conditions_does_not_pass_for_one_without(tiny_run, evaluator, digits):
    _, model = tiny_run
    with pytest.raises(ValueError, match="trained with conditions"):
        studies.compare(model, studies.TABLE, evaluator, digits.train, n_images=20, n_steps=2)


def test_class_grid_asks_for_a_row_of_each_class(told, tmp_path):
    images = class_grid(told, tmp_path / "grid.png", n_columns=3, n_steps=4)
    assert images[:, 0, 0, 0].tolist() == np.repeat(np.arange(10), 3).tolist()
    assert Image.open(tmp_path / "grid.png").height > 10 * 64


def test_attrition_grid_has_the_same_classes_in_every_row(told, tmp_path):
    images = attrition_grid(told, tmp_path / "grid.png", [0.0, 1.0], n_columns=4, n_steps=4)
    assert images[:, 0, 0, 0].tolist() == [0, 1, 2, 3] * 2


def test_scores_are_those_of_the_images_in_the_grid(tiny_run, evaluator, digits, tmp_path):
    _, model = tiny_run
    conditions = torch.arange(12) % 10
    scores = evaluation(digits.train, 12, evaluator, tmp_path, n_steps=2)(model, 30)
    assert scores == pytest.approx(evaluator.score(generate(model, conditions, n_steps=2)))
    assert (tmp_path / "step_0000030.png").is_file()


def test_without_an_evaluator_there_is_a_grid_and_no_score(tiny_run, digits, tmp_path):
    _, model = tiny_run
    assert evaluation(digits.train, 4, None, tmp_path, n_steps=2)(model, 0) == {}
    assert (tmp_path / "step_0000000.png").is_file()
