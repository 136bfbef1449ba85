"""The paper's studies of images: the effects of guidance, attrition and the schedule (Table 1, App. E.3 and E.4)."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from lightning.pytorch.utilities import rank_zero_only
from torch import Tensor

from sccountsdiff.benchmark.images.config import ImageConfig
from sccountsdiff.benchmark.images.data import CountImages, Splits, first_images
from sccountsdiff.benchmark.images.features import Classifier
from sccountsdiff.benchmark.images.generation import generate
from sccountsdiff.benchmark.images.model import ImageDiffusion
from sccountsdiff.benchmark.images.plots import plot_histories, save_grid
from sccountsdiff.benchmark.images.scores import ImageEvaluator
from sccountsdiff.benchmark.images.training import Evaluate, train
from sccountsdiff.diffusion.schedules import SCHEDULES
from sccountsdiff.files import write_table

logger = logging.getLogger("sccountsdiff")

N_SHOWN, N_COLUMNS = 100, 10

GUIDANCES = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 5.0)
ATTRITIONS = (0.0, 0.005, 0.01, 0.02, 0.05)


@dataclasses.dataclass(frozen=True)
class Trial:
    """One way to draw images.

    Parameters
    ----------
    guidance
        Guidance scale; ``None`` stands for a model that was trained without conditions.
    attrition
        Attrition, eta of the ``rescale`` schedule.

    Examples
    --------
    >>> Trial(guidance=2.0, attrition=0.02)
    Trial(guidance=2.0, attrition=0.02)
    """

    guidance: float | None = 1.0
    attrition: float = 0.0


TABLE = (Trial(None, 0.0), Trial(1.0, 0.01), Trial(2.0, 0.02))
"""The rows of the paper's Table 1 for each schedule; the first is of a model of its own."""


def conditions_like(data: CountImages, n: int) -> Tensor:
    """Conditions to draw ``n`` images with: all classes equally often, or the attributes of as many images.

    Parameters
    ----------
    data
        The set of images.
    n
        Number of conditions.

    Returns
    -------
    A class for each image, or a row of attributes.

    Examples
    --------
    >>> from sccountsdiff.benchmark.images import load_images
    >>> conditions_like(load_images("digits").train, 12).tolist()
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]
    """
    if not data.multi_label:
        return torch.arange(n) % len(data.names)
    attributes = first_images(data, min(n, len(data)))[1]
    return attributes[torch.arange(n) % len(attributes)]


def evaluation(
    data: CountImages, n_images: int, evaluator: ImageEvaluator | None, folder: str | Path, **generate_kwargs: Any
) -> Evaluate:
    """A grid of images and, if there is an evaluator, their scores; for :func:`~sccountsdiff.benchmark.images.train`.

    Processes that train together share the drawing; the first of them scores.

    Parameters
    ----------
    data
        Images whose conditions are asked for (``conditions_like``), if the model takes any.
    n_images
        Images to draw.
    evaluator
        Scores the images.
    folder
        Where the grids go, one file for each evaluation.
    **generate_kwargs
        Arguments of :func:`~sccountsdiff.benchmark.images.generate`, such as ``n_steps`` or ``precision``.

    Returns
    -------
    A function of the model and the step that gives the scores.

    Examples
    --------
    >>> from sccountsdiff.benchmark.images import load_config, load_images
    >>> digits = load_images("digits").train
    >>> model = ImageDiffusion.for_images(load_config("digits"), digits)
    >>> evaluation(digits, 4, None, ".", n_steps=2)(model, 50)
    {}
    >>> Path("step_0000050.png").is_file()
    True
    """

    def evaluate(model: ImageDiffusion, step: int) -> dict[str, float]:
        wanted = conditions_like(data, n_images) if model.config.conditional else n_images
        images = generate(model, wanted, together=True, **generate_kwargs)
        if rank_zero_only.rank:
            return {}
        save_grid(images[:N_SHOWN], Path(folder) / f"step_{step:07d}.png", N_COLUMNS, max_count=model.max_count)
        scores = {} if evaluator is None else evaluator.score(images)
        logger.info("Step %d: %s", step, ", ".join(f"{name} {value:.3f}" for name, value in scores.items()) or "drawn")
        return scores

    return evaluate


def compare(
    model: ImageDiffusion,
    trials: Sequence[Trial],
    evaluator: ImageEvaluator,
    data: CountImages,
    *,
    n_images: int = 5000,
    classifier: Classifier | None = None,
    on_images: Callable[[Trial, Tensor], None] | None = None,
    **generate_kwargs: Any,
) -> pd.DataFrame:
    """Draw images in several ways from one model, and score them.

    Parameters
    ----------
    model
        Trained model.
    trials
        Ways to draw.
    evaluator
        Scores the images.
    data
        Images whose conditions are asked for (``conditions_like``).
    n_images
        Images for each trial.
    classifier
        Adds ``agreement``, the share of images in which it finds the class that was asked for.
    on_images
        Called with each trial and its images.
    **generate_kwargs
        Arguments of :func:`~sccountsdiff.benchmark.images.generate`, such as ``n_steps`` or ``seed``.

    Returns
    -------
    One row for each trial.

    Examples
    --------
    >>> from sccountsdiff.benchmark.images import ImageEvaluator, load_config, load_images
    >>> splits = load_images("digits")
    >>> model = ImageDiffusion.for_images(load_config("digits"), splits.train)
    >>> evaluator = ImageEvaluator(torch.nn.Flatten(), splits.train)
    >>> compare(model, [Trial()], evaluator, splits.train, n_images=20, n_steps=2)[
    ...     ["guidance", "attrition"]
    ... ].values.tolist()
    [[1.0, 0.0]]
    """
    rows = []
    for trial in trials:
        if (trial.guidance is None) == model.config.conditional:
            kind = "with" if model.config.conditional else "without"
            raise ValueError(f"{trial} cannot be drawn from a model that was trained {kind} conditions.")
        wanted = n_images if trial.guidance is None else conditions_like(data, n_images)
        images = generate(model, wanted, guidance=trial.guidance or 0.0, attrition=trial.attrition, **generate_kwargs)
        if on_images is not None:
            on_images(trial, images)
        keys = {"schedule": model.config.schedule, "guidance": "uncond" if trial.guidance is None else trial.guidance}
        row = {**keys, "attrition": trial.attrition, "n_images": n_images, **evaluator.score(images)}
        if classifier is not None and trial.guidance is not None:
            row["agreement"] = classifier.agreement(images, wanted)
        rows.append(row)
    return pd.DataFrame(rows)


def guidance(
    model: ImageDiffusion, evaluator: ImageEvaluator, data: CountImages, values: Sequence[float] = GUIDANCES, **kwargs
) -> pd.DataFrame:
    """Vary guidance at an attrition of 0.01 (Table of App. E.3.2); arguments as for :func:`~sccountsdiff.benchmark.images.studies.compare`.

    Parameters
    ----------
    model, evaluator, data
        As in :func:`~sccountsdiff.benchmark.images.studies.compare`.
    values
        Guidance scales.
    **kwargs
        Further arguments of :func:`~sccountsdiff.benchmark.images.studies.compare`.

    Returns
    -------
    One row for each value.

    Examples
    --------
    >>> from sccountsdiff.benchmark.images import ImageEvaluator, load_config, load_images
    >>> splits = load_images("digits")
    >>> model = ImageDiffusion.for_images(load_config("digits"), splits.train)
    >>> evaluator = ImageEvaluator(torch.nn.Flatten(), splits.train)
    >>> guidance(model, evaluator, splits.train, [0.0, 2.0], n_images=20, n_steps=2)["guidance"].tolist()
    [0.0, 2.0]
    """
    return compare(model, [Trial(value, 0.01) for value in values], evaluator, data, **kwargs)


def attrition(
    model: ImageDiffusion, evaluator: ImageEvaluator, data: CountImages, values: Sequence[float] = ATTRITIONS, **kwargs
) -> pd.DataFrame:
    """Vary attrition at a guidance of 1 (Table of App. E.3.3); arguments as for :func:`~sccountsdiff.benchmark.images.studies.compare`.

    Parameters
    ----------
    model, evaluator, data
        As in :func:`~sccountsdiff.benchmark.images.studies.compare`.
    values
        Attritions.
    **kwargs
        Further arguments of :func:`~sccountsdiff.benchmark.images.studies.compare`.

    Returns
    -------
    One row for each value.

    Examples
    --------
    >>> from sccountsdiff.benchmark.images import ImageEvaluator, load_config, load_images
    >>> splits = load_images("digits")
    >>> model = ImageDiffusion.for_images(load_config("digits"), splits.train)
    >>> evaluator = ImageEvaluator(torch.nn.Flatten(), splits.train)
    >>> attrition(model, evaluator, splits.train, [0.0, 0.5], n_images=20, n_steps=2)["attrition"].tolist()
    [0.0, 0.5]
    """
    guided = 1.0 if model.config.conditional else None
    return compare(model, [Trial(guided, value) for value in values], evaluator, data, **kwargs)


IMAGE_SWEEPS = {"guidance": guidance, "attrition": attrition}
"""Studies of one trained model."""

STUDIES = (*IMAGE_SWEEPS, "schedules")


def schedules(
    config: ImageConfig,
    splits: Splits,
    evaluator: ImageEvaluator,
    output: str | Path,
    *,
    names: Sequence[str] = tuple(SCHEDULES),
    trials: Sequence[Trial] = TABLE,
    train_kwargs: dict[str, Any] | None = None,
    **compare_kwargs: Any,
) -> pd.DataFrame:
    """Train models with each schedule, all else equal, and draw from them in the ways of the paper's Table 1.

    For trials without a condition a model is trained without conditions. Writes ``schedules.csv`` and the training curves
    ``schedules.png`` into ``output``. The settings' own model is trained in ``output`` itself, where
    :func:`~sccountsdiff.benchmark.images.run_images` trains it too, each other one in a folder of its own there. What has
    been trained to the end is not trained again.

    Parameters
    ----------
    config
        Settings; each training replaces the schedule, and whether there are conditions.
    splits
        Images.
    evaluator
        Scores images, at the end and at every evaluation.
    output
        Folder.
    names
        Schedules; by default all that are registered.
    trials
        Ways to draw.
    train_kwargs
        Arguments of :func:`~sccountsdiff.benchmark.images.train`.
    **compare_kwargs
        Arguments of :func:`~sccountsdiff.benchmark.images.studies.compare`.

    Returns
    -------
    One row for each schedule and trial; an empty table in processes that only help to train.

    Examples
    --------
    >>> from sccountsdiff.benchmark.images import ImageEvaluator, load_config, load_images
    >>> config = load_config("digits", channels=(8, 8), n_steps=1)
    >>> splits = load_images("digits")
    >>> evaluator = ImageEvaluator(torch.nn.Flatten(), splits.train)
    >>> table = schedules(config, splits, evaluator, "out", names=["cosine"], n_images=20, n_steps=2)
    >>> table["guidance"].tolist()
    ['uncond', 1.0, 2.0]
    """
    output = Path(output)
    drawing = {name: compare_kwargs[name] for name in ("n_steps", "precision", "compile") if name in compare_kwargs}
    parts = []
    for name in names:
        for conditional in (False, True):
            rows = [trial for trial in trials if (trial.guidance is not None) == conditional]
            if rows:
                own = dataclasses.replace(config, schedule=name, conditional=conditional)
                folder = f"schedule_{name}" + ("" if conditional else "_unconditional")
                parts.append((own, output if own == config else output / folder, rows))
    models = []
    for own, folder, _ in parts:
        evaluate = evaluation(splits.train, own.n_evaluated, evaluator, folder, **drawing)
        options = {"evaluate": evaluate, "resume": True} | (train_kwargs or {})
        models.append(train(own, splits, folder, **options))
    if rank_zero_only.rank:  # of several processes that trained together, one draws and writes
        return pd.DataFrame()
    shown = [part for part in parts if part[0].conditional == config.conditional]
    plot_histories(
        {own.schedule: pd.read_csv(folder / "history.csv") for own, folder, _ in shown}, output / "schedules.png"
    )
    tables = [
        compare(model, rows, evaluator, splits.train, folder=folder / "drawn", **compare_kwargs)
        for model, (_, folder, rows) in zip(models, parts, strict=True)
    ]
    table = pd.concat(tables, ignore_index=True)
    write_table(output / "schedules.csv", table)
    return table


def class_grid(model: ImageDiffusion, path: str | Path, *, n_columns: int = 10, **generate_kwargs: Any) -> Tensor:
    """Draw a row of images for each class (or each attribute alone) into a PNG; returns them.

    Parameters
    ----------
    model
        Trained model.
    path
        File to write.
    n_columns
        Images in a row.
    **generate_kwargs
        Arguments of :func:`~sccountsdiff.benchmark.images.generate`, such as ``n_steps`` or ``seed``.

    Returns
    -------
    The images, row by row.

    Examples
    --------
    >>> from sccountsdiff.benchmark.images import load_config, load_images
    >>> model = ImageDiffusion.for_images(load_config("digits"), load_images("digits").train)
    >>> class_grid(model, "grid.png", n_columns=2, n_steps=2).shape
    torch.Size([20, 1, 8, 8])
    """
    conditions, titles = n_columns**2, ()
    if model.config.conditional:
        conditions, titles = _each_condition(model).repeat_interleave(n_columns, 0), model.names
    images = generate(model, conditions, **generate_kwargs)
    save_grid(images, path, n_columns, max_count=model.max_count, titles=titles)
    return images


def attrition_grid(
    model: ImageDiffusion,
    path: str | Path,
    values: Sequence[float] = (0.0, 0.01, 0.05, 0.2, 0.5, 1.0),
    *,
    n_columns: int = 10,
    **generate_kwargs: Any,
) -> Tensor:
    """Draw a row of images for each attrition into a PNG: more of it makes them smoother; returns them.

    Parameters
    ----------
    model
        Trained model.
    path
        File to write.
    values
        Attritions.
    n_columns
        Images in a row.
    **generate_kwargs
        Arguments of :func:`~sccountsdiff.benchmark.images.generate`, such as ``n_steps`` or ``seed``.

    Returns
    -------
    The images, row by row.

    Examples
    --------
    >>> from sccountsdiff.benchmark.images import load_config, load_images
    >>> model = ImageDiffusion.for_images(load_config("digits"), load_images("digits").train)
    >>> attrition_grid(model, "grid.png", [0.0, 1.0], n_columns=3, n_steps=2).shape
    torch.Size([6, 1, 8, 8])
    """
    conditions: Tensor | int = n_columns
    if model.config.conditional:
        conditions = _each_condition(model)[torch.arange(n_columns) % len(model.names)]
    images = torch.cat([generate(model, conditions, attrition=value, **generate_kwargs) for value in values])
    save_grid(images, path, n_columns, max_count=model.max_count, titles=[f"eta {value:g}" for value in values])
    return images


def _each_condition(model: ImageDiffusion) -> Tensor:
    """Each class once, or each attribute by itself."""
    n = len(model.names)
    return torch.eye(n, dtype=torch.long) if model.multi_label else torch.arange(n)
