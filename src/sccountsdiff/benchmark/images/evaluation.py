"""What is evaluated while an image model trains."""

from __future__ import annotations

import logging
from pathlib import Path

from torch import Tensor

from sccountsdiff.benchmark.images.callbacks import Evaluate
from sccountsdiff.benchmark.images.generation import generate
from sccountsdiff.benchmark.images.model import ImageDiffusion
from sccountsdiff.benchmark.images.plots import save_grid
from sccountsdiff.benchmark.images.scores import ImageEvaluator

logger = logging.getLogger("sccountsdiff")

N_EVALUATED = 200
"""Images drawn at each evaluation during training, at most."""

N_SHOWN, N_COLUMNS = 100, 10


def evaluation(
    conditions: Tensor | int, evaluator: ImageEvaluator | None, folder: str | Path, n_steps: int | None = None
) -> Evaluate:
    """A grid of images and, if there is an evaluator, their scores; for :func:`~sccountsdiff.benchmark.images.train`.

    Parameters
    ----------
    conditions
        Conditions of the images to draw, or their number, see :func:`~sccountsdiff.benchmark.images.generate`.
    evaluator
        Scores the images.
    folder
        Where the grids go, one file for each evaluation.
    n_steps
        Reverse steps; by default those of the model's settings.

    Returns
    -------
    A function of the model and the step that gives the scores.

    Examples
    --------
    >>> from sccountsdiff.benchmark.images import load_config, load_images
    >>> model = ImageDiffusion.for_images(load_config("digits"), load_images("digits").train)
    >>> evaluation(4, None, ".", n_steps=2)(model, 50)
    {}
    >>> Path("step_0000050.png").is_file()
    True
    """

    def evaluate(model: ImageDiffusion, step: int) -> dict[str, float]:
        images = generate(model, conditions, n_steps=n_steps)
        save_grid(images[:N_SHOWN], Path(folder) / f"step_{step:07d}.png", N_COLUMNS, max_count=model.max_count)
        scores = {} if evaluator is None else evaluator.score(images)
        logger.info("Step %d: %s", step, ", ".join(f"{name} {value:.3f}" for name, value in scores.items()) or "drawn")
        return scores

    return evaluate
