"""Every table and figure of images in the paper as a recipe: trainings, ways to draw, and the paper's own numbers."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import pandas as pd

from sccountsdiff.benchmark.images.config import CONFIGS, ImageConfig
from sccountsdiff.benchmark.images.studies import Trial


@dataclass(frozen=True)
class PaperRow:
    """A row of one of the paper's tables.

    Parameters
    ----------
    config
        Name of the settings that the model is trained with.
    trial
        How images are drawn.
    n_images
        How many.
    frechet, inception_score, inception_score_sd
        The paper's values; ``None`` where it has none.

    Examples
    --------
    >>> RECIPES["celeba_60m"].rows[0].trial
    Trial(guidance=1.5, attrition=0.005)
    """

    config: str
    trial: Trial
    n_images: int
    frechet: float
    inception_score: float | None = None
    inception_score_sd: float | None = None


@dataclass(frozen=True)
class ImageRecipe:
    """One table or figure of the paper.

    Parameters
    ----------
    where
        What it is in the paper.
    configs
        Names of the settings whose models it needs.
    rows
        Rows of a table.
    figure
        ``"classes"`` or ``"attrition"``: a grid of images; ``"curves"``: losses and scores through training.
    drawn
        How the images of a grid are drawn.
    n_columns
        Images in a row of the grid.
    changes
        Settings that are other than those of ``configs``.

    Examples
    --------
    >>> RECIPES["cifar10_table"].configs[0]
    'cifar10_blackout'
    """

    where: str
    configs: tuple[str, ...]
    rows: tuple[PaperRow, ...] = ()
    figure: str | None = None
    drawn: Trial = Trial()
    n_columns: int = 10
    changes: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def dataset(self) -> str:
        """Name of the image set."""
        return CONFIGS[self.configs[0]].dataset

    def settings(self, **changes: Any) -> dict[str, ImageConfig]:
        """Settings of each training by name, with the recipe's own changes and, after these, yours."""
        return {name: dataclasses.replace(CONFIGS[name], **self.changes | changes) for name in self.configs}


def _table(where: str, n_images: int, *rows: tuple) -> ImageRecipe:
    """A recipe from rows of settings, guidance, attrition, Frechet distance, inception score and its deviation."""
    made = tuple(PaperRow(config, Trial(gamma, eta), n_images, *values) for config, gamma, eta, *values in rows)
    return ImageRecipe(where, tuple(dict.fromkeys(row.config for row in made)), made)


RECIPES: dict[str, ImageRecipe] = {
    "cifar10_table": _table(
        "Table 1", 50_000,
        ("cifar10_blackout", None, 0.0, 5.73, 9.12, 0.05),
        ("cifar10_fisher_unconditional", None, 0.0, 5.44, 9.09, 0.16),
        ("cifar10_fisher", 1.0, 0.01, 5.20, 9.64, 0.17),
        ("cifar10_fisher", 2.0, 0.02, 9.71, 9.77, 0.11),
        ("cifar10_unconditional", None, 0.0, 5.76, 9.29, 0.18),
        ("cifar10_cosine", 1.0, 0.01, 5.26, 9.85, 0.08),
        ("cifar10_cosine", 2.0, 0.02, 11.55, 9.93, 0.13),
    ),
    "cifar10_guidance": _table(
        "App. E.3.2, guidance", 5000,
        ("cifar10_fisher", 0.0, 0.01, 11.648, 8.537, 0.391),
        ("cifar10_fisher", 0.1, 0.01, 11.606, 8.599, 0.269),
        ("cifar10_fisher", 0.2, 0.01, 12.078, 8.636, 0.460),
        ("cifar10_fisher", 0.5, 0.01, 12.145, 8.943, 0.439),
        ("cifar10_fisher", 1.0, 0.01, 9.820, 9.286, 0.452),
        ("cifar10_fisher", 2.0, 0.01, 13.296, 9.467, 0.342),
        ("cifar10_fisher", 3.0, 0.01, 17.620, 9.337, 0.394),
        ("cifar10_cosine", 0.0, 0.01, 11.233, 8.952, 0.271),
        ("cifar10_cosine", 0.1, 0.01, 11.331, 8.987, 0.498),
        ("cifar10_cosine", 0.2, 0.01, 11.933, 8.741, 0.396),
        ("cifar10_cosine", 0.5, 0.01, 11.985, 9.001, 0.412),
        ("cifar10_cosine", 1.0, 0.01, 9.507, 9.561, 0.368),
        ("cifar10_cosine", 2.0, 0.01, 14.154, 9.498, 0.370),
        ("cifar10_cosine", 3.0, 0.01, 18.542, 9.641, 0.293),
        ("cifar10_cosine", 5.0, 0.01, 24.063, 9.493, 0.167),
    ),
    "cifar10_attrition": _table(
        "App. E.3.3, attrition", 5000,
        ("cifar10_cosine", 1.0, 0.0, 9.666, 9.463, 0.402),
        ("cifar10_cosine", 1.0, 0.005, 9.562, 9.504, 0.382),
        ("cifar10_cosine", 1.0, 0.01, 9.507, 9.561, 0.368),
        ("cifar10_cosine", 1.0, 0.02, 10.400, 9.653, 0.269),
        ("cifar10_cosine", 1.0, 0.05, 12.727, 9.565, 0.268),
    ),
    "celeba_30m": _table(
        "App. E.4, 30M parameters", 10_000,
        ("celeba_30m_fisher", 1.0, 0.01, 9.844),
        ("celeba_30m", 1.0, 0.01, 7.637),
    ),
    "celeba_60m": _table("App. E.4, 60M parameters", 50_000, ("celeba", 1.5, 0.005, 4.948)),
    "celeba_sweep": _table(
        "App. E.4, guidance and attrition", 5000,
        ("celeba", 1.0, 0.005, 7.580),
        ("celeba", 1.0, 0.01, 7.541),
        ("celeba", 1.5, 0.005, 7.217),
        ("celeba", 1.5, 0.01, 7.483),
    ),
    "cifar10_curves": ImageRecipe(
        "App. E.3.1, curves of training", ("cifar10_unconditional", "cifar10_fisher_unconditional"), figure="curves",
        changes={"n_steps": 50_000, "evaluate_every": 5000},
    ),
    "cifar10_classes": ImageRecipe(
        "Figure of guided CIFAR-10", ("cifar10_cosine",), figure="classes", drawn=Trial(2.0, 0.005), n_columns=5
    ),
    "cifar10_smoothing": ImageRecipe(
        "Figure of attrition on CIFAR-10", ("cifar10_cosine",), figure="attrition", n_columns=9
    ),
    "celeba_smoothing": ImageRecipe("Figure of attrition on CelebA", ("celeba",), figure="attrition", n_columns=25),
}  # fmt: skip
"""The recipes by name."""

COMMON = {
    "channels": (128, 256, 256, 256), "attention_at": 16, "flip": True, "lr": 2e-4, "ema_decay": 0.9999, "clip": 1.0,
    "head": "softplus", "inputs": "range", "n_sampling_steps": 1000, "dropout": 0.1,
}  # fmt: skip
AUTHORS: dict[str, dict[str, Any]] = {
    "cifar10_cosine": COMMON
    | {"layers_per_block": 4, "batch_size": 256, "n_warmup_steps": 5000, "p_uncond": 0.2, "n_steps": 1_300_000},
    "cifar10_unconditional": COMMON
    | {"layers_per_block": 4, "batch_size": 256, "n_warmup_steps": 5000, "n_steps": 1_300_000},
    "cifar10_fisher": COMMON
    | {"layers_per_block": 2, "batch_size": 256, "n_warmup_steps": 0, "p_uncond": 0.2, "n_steps": 300_000},
    "cifar10_blackout": COMMON
    | {"layers_per_block": 2, "batch_size": 256, "n_warmup_steps": 2000, "n_steps": 300_000, "dropout": 0.0},
    "celeba": COMMON
    | {"layers_per_block": 4, "batch_size": 100, "n_warmup_steps": 5000, "p_uncond": 0.2, "n_steps": 1_300_000},
    "celeba_30m": COMMON
    | {"layers_per_block": 2, "batch_size": 64, "n_warmup_steps": 2000, "p_uncond": 0.1, "n_steps": 1_300_000},
}
"""What the settings files of the paper's code say. There is none for the other settings; they follow their neighbours."""

REASONS: dict[tuple[str, str], str] = {
    (
        "cifar10_cosine",
        "n_steps",
    ): "the paper's text: conditional models improve until nearly 1 million steps, its limit",
    (
        "cifar10_unconditional",
        "n_steps",
    ): "the paper's text: unconditional models stop improving at about 300,000 steps",
    (
        "cifar10_fisher",
        "n_steps",
    ): "the paper's text, as for the cosine schedule: a fair comparison needs equal trainings",
    ("celeba", "n_steps"): "the captions of the paper's tables: 1 million steps",
    ("celeba_30m", "n_steps"): "the caption of the paper's table: 500,000 steps",
}
"""Why settings differ from ``AUTHORS``, by settings and name."""

OTHER_DIFFERENCES: dict[str, str] = {
    "Fisher without condition, Fisher on CelebA": "no settings file: those of the same data set with the same schedule or "
    "network",
    "blocks, warm-up and dropout of the Fisher and Blackout models": "as in the settings files, which give them two blocks "
    "and less or no warm-up; `--studies schedules` compares schedules with all else equal",
    "conditions left out": "for a fifth of the training images, as in the settings files and the paper's appendix, and for a "
    "tenth in the smaller CelebA model; the paper's main text says a tenth",
    "batch of the smaller CelebA model": "64 as in its settings file; the paper's text says 100",
    "images to compare with": "held-out ones, as in the paper's code; `--reference train` takes the training images, as is "
    "more common",
    "conditions of drawn images": "all classes equally often, or the attributes of the first held-out faces; the paper's "
    "code draws them from held-out images",
    "time": "shown to the network as 1000 t, not cut to a whole number: the schedules are continuous",
    "steps of the Blackout schedule": "999 instead of 1,000: as many as fit between its 1,000 time points",
    "moving average": "after each optimiser step, and quicker in the first steps; the paper's code averages before the step",
    "prediction": "clipped to what fits below 255 before it is rounded, as in the paper's code",
    "30M parameters": "the settings file gives 36 million; no number of blocks gives 30 million",
    "seed": "0 instead of 42",
}
"""What differs, or is not known, beside the settings."""


def recipe_table() -> pd.DataFrame:
    """A row for each row or figure of each recipe: settings, and the paper's values.

    Returns
    -------
    The table; its columns are those of the recipe, of :class:`PaperRow` and of the training's settings.

    Examples
    --------
    >>> table = recipe_table()
    >>> table.loc[table["recipe"] == "celeba_60m", ["guidance", "paper_frechet"]].values.tolist()
    [[1.5, 4.948]]
    """
    rows = []
    for name, recipe in RECIPES.items():
        figures = [PaperRow(config, recipe.drawn, 0, float("nan")) for config in recipe.configs if recipe.figure]
        for row in recipe.rows or figures:
            config = recipe.settings()[row.config]
            uncond = not config.conditional
            keys = {"recipe": name, "where": recipe.where, "settings": row.config, "schedule": config.schedule}
            varied = recipe.figure == "attrition"
            rows.append(
                keys
                | {"guidance": "uncond" if uncond else row.trial.guidance}
                | {"attrition": "0 to 1" if varied else 0.0 if uncond else row.trial.attrition}
                | {"images": row.n_images or (config.n_evaluated if recipe.figure == "curves" else None)}
                | {"blocks": config.layers_per_block, "batch": config.batch_size, "steps": config.n_steps}
                | {"lr": config.lr}
                | {"paper_frechet": row.frechet, "paper_inception_score": row.inception_score}
                | {"paper_inception_score_sd": row.inception_score_sd}
            )
    return pd.DataFrame(rows)


def difference_table() -> pd.DataFrame:
    """Each setting that is not what the paper's code has, and why.

    Returns
    -------
    A row for each; a difference without a reason is an error.

    Examples
    --------
    >>> difference_table()["setting"].unique().tolist()
    ['n_steps']
    """
    rows = []
    for name, theirs in AUTHORS.items():
        for setting, value in theirs.items():
            ours = getattr(CONFIGS[name], setting)
            if ours != value:
                reason = REASONS[name, setting]
                rows.append({"settings": name, "setting": setting, "here": ours, "paper's code": value, "why": reason})
    return pd.DataFrame(rows)
