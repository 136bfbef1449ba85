"""The rows of the paper's tables: which method, with which settings."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sccountsdiff.benchmark.baselines import Baseline, get_baseline
from sccountsdiff.benchmark.paper.atlases import Atlas

TRAINING_SHARE, VALIDATION_SHARE = 0.9, 1 / 9
"""What methods are given of all cells, and what they hold out of that: 80/10/10 with the test cells."""

FEWEST_STEPS = 100
BATCH_SIZE = 512
N_STEPS, N_RESAMPLES = 19, 3


@dataclass(frozen=True)
class Budget:
    """What the settings of a row depend on.

    Attributes
    ----------
    atlas
        The paper's settings.
    n_cells
        Cells of the comparison, test cells included.
    scale
        Share of the paper's optimiser steps.
    weights
        Folder with released weights of scGPT.

    Examples
    --------
    >>> from sccountsdiff.benchmark.paper.atlases import FETUS
    >>> Budget(FETUS, n_cells=4_062_980).epochs(100_000, 512)
    16
    """

    atlas: Atlas
    n_cells: int
    scale: float = 1.0
    weights: str | Path | None = None

    def epochs(self, n_steps: int, batch_size: int) -> int:
        """Whole epochs over the cells that a network trains on that make up for a number of steps."""
        n_steps = max(min(FEWEST_STEPS, n_steps), round(self.scale * n_steps))
        n_cells = TRAINING_SHARE * (1 - VALIDATION_SHARE) * self.n_cells
        return math.ceil(n_steps / math.ceil(n_cells / batch_size))


@dataclass(frozen=True)
class Row:
    """A row of a table: its name there, the method, and its settings.

    Attributes
    ----------
    name
        Name in the paper's table.
    registered
        Name under which the method is registered.
    settings
        The method's settings, as a function of the budget.

    Examples
    --------
    >>> from sccountsdiff.benchmark.paper.atlases import FETUS
    >>> Row("Zero imputation", "zero").method(Budget(FETUS, 1000))
    Zero()
    """

    name: str
    registered: str
    settings: Callable[[Budget], dict[str, Any]] = lambda budget: {}

    def method(self, budget: Budget) -> Baseline:
        """The method, looked up by its registered name."""
        return get_baseline(self.registered)(**self.settings(budget))


def countsdiff_settings(budget: Budget, n_steps: int | None = None) -> dict[str, Any]:
    """The paper's network and training, for the methods that are variants of CountsDiff.

    Parameters
    ----------
    budget
        Atlas and size.
    n_steps
        Optimiser steps before scaling; by default those of the atlas.

    Examples
    --------
    >>> from sccountsdiff.benchmark.paper.atlases import HEART
    >>> countsdiff_settings(Budget(HEART, 1000))["model_kwargs"]["n_hidden"]
    128
    """
    atlas = budget.atlas
    network = {
        "n_hidden": atlas.n_hidden,
        "n_heads": atlas.n_heads,
        "n_layers": 3,
        "dropout_rate": 0.1,
        "p_uncond": 0.2,
    }
    # The learning rate stays where it is after warm-up.
    optimiser = {"lr": 2e-4, "weight_decay": atlas.weight_decay, "n_warmup_steps": 1000, "lr_final": 1.0}
    training = {"batch_size": BATCH_SIZE, "train_size": 1 - VALIDATION_SHARE, "early_stopping": False}
    training |= {"ema_decay": atlas.ema_decay, "gradient_clip_val": 1.0, "plan_kwargs": optimiser}
    epochs = budget.epochs(n_steps or atlas.n_steps, BATCH_SIZE)
    sampling = {"n_steps": N_STEPS, "n_resamples": N_RESAMPLES}
    return {"max_epochs": epochs, "model_kwargs": network, "train_kwargs": training, **sampling}


def _trained(max_epochs: int, **settings: Any) -> dict[str, Any]:
    """Of a torch method: trained to the end, as in the paper, with validation cells that only say which weights to keep."""
    return {"max_epochs": max_epochs, "patience": max_epochs, "validation_share": VALIDATION_SHARE, **settings}


def _remdm(budget: Budget) -> dict[str, Any]:
    epochs = budget.epochs(budget.atlas.n_steps, BATCH_SIZE)
    return _trained(epochs, batch_size=BATCH_SIZE, known="noised", n_resamples=N_RESAMPLES, p_uncond=0.2)


def _scidpms(budget: Budget) -> dict[str, Any]:
    """The original's network, training and sampler at full size; scaled down, our smaller ones."""
    original = {"group_size": 1, "n_layers": 6, "n_heads": 8, "n_levels": 300, "batch_size": 32, "lr": 5e-4}
    original |= {"eta": 1.0, "n_steps": 300}
    return _trained(budget.atlas.scidpms_epochs, **(original if budget.scale == 1 else {}))


def _scgpt(budget: Budget) -> dict[str, Any]:
    size = {"n_hidden": 128, "n_heads": 4, "n_layers": 4, "dropout": 0.2}
    return _trained(10, max_steps=None, batch_size=64, lr=1e-4, **size)


def _scgpt_pretrained(budget: Budget) -> dict[str, Any]:
    return _trained(10, max_steps=None, weights_path=budget.weights, unknown_genes="mean")


ROWS = (
    Row("Zero imputation", "zero"),
    Row("Mean imputation", "gene_mean"),
    Row("Conditional Mean", "conditional_mean"),
    Row("MAGIC", "magic"),
    Row("scIDPMs", "scidpms", _scidpms),
    Row("GAIN", "gain", lambda budget: _trained(budget.epochs(10_000, 128), batch_size=128, hint_rate=0.9)),
    Row("HI-VAE (Poisson)", "hivae_poisson", lambda budget: _trained(100)),
    Row("HI-VAE (Gaussian)", "hivae_gaussian", lambda budget: _trained(100)),
    Row("scGPT (scratch)", "scgpt", _scgpt),
    Row("scGPT (pretrained)", "scgpt_pretrained", _scgpt_pretrained),
    Row("xTrimoGene", "xtrimogene", lambda budget: _trained(5, max_steps=None, batch_size=128, lr=1e-4)),
    Row("Forest-Diffusion", "forest_diffusion", lambda budget: {"n_t": 20, "n_copies": 1, "n_trees": 100}),
    Row("ReMDM", "remdm", _remdm),
    Row("Blackout", "blackout", countsdiff_settings),
    Row("CountsDiff", "countsdiff_paper", countsdiff_settings),
)
"""All methods of the paper's tables of imputation."""

_CLASSIFIED = {"Zero imputation", "Mean imputation", "Conditional Mean", "MAGIC", "ReMDM", "CountsDiff"}
CLASSIFIER_ROWS = tuple(row for row in ROWS if row.name in _CLASSIFIED)
"""Those of which the paper classified the imputed cells."""
