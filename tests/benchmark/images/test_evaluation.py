"""An evaluation during training draws a grid and scores the same images."""

import pytest
import torch

from sccountsdiff.benchmark.images import ImageEvaluator, generate
from sccountsdiff.benchmark.images.evaluation import evaluation


def test_scores_are_those_of_the_images_in_the_grid(tiny_run, digits, tmp_path):
    _, model = tiny_run
    evaluator, conditions = ImageEvaluator(torch.nn.Flatten(), digits.train), torch.arange(12) % 10
    scores = evaluation(conditions, evaluator, tmp_path, n_steps=2)(model, 30)
    assert scores == pytest.approx(evaluator.score(generate(model, conditions, n_steps=2)))
    assert (tmp_path / "step_0000030.png").is_file()


def test_without_an_evaluator_there_is_a_grid_and_no_score(tiny_run, tmp_path):
    _, model = tiny_run
    assert evaluation(4, None, tmp_path, n_steps=2)(model, 0) == {}
    assert (tmp_path / "step_0000000.png").is_file()
