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
_SCGPT_TRAINING = {"max_steps": None, "n_tokens": None, "hidden_shares": (0.4,), "batch_size": 64, "lr": 1e-4}
_SCGPT_TRAINING |= {"ema_decay": None, "n_warmup_steps": 0}
BATCH_SIZE = 512
N_STEPS = 19
"""Steps between the 20 points in time of the paper's code. Of its three rounds of RePaint each goes back 20 steps, to the
beginning, where nothing is left of the round before: together they are one."""

GAIN_STEPS, XTRIMOGENE_WARMUP = 10_000, 9766


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
    allow_slow
        Whether Forest-Diffusion may take as long as it takes.

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
    allow_slow: bool = False

    @property
    def n_training(self) -> int:
        """Cells that a network trains on."""
        return round(TRAINING_SHARE * (1 - VALIDATION_SHARE) * self.n_cells)

    @property
    def n_test(self) -> int:
        """Cells that are imputed."""
        return round((1 - TRAINING_SHARE) * self.n_cells)

    def steps(self, n_steps: int) -> int:
        """The share of a number of steps that is made."""
        return max(min(FEWEST_STEPS, n_steps), round(self.scale * n_steps))

    def epochs(self, n_steps: int, batch_size: int) -> int:
        """Whole epochs over the cells that a network trains on that make up for a number of steps."""
        return math.ceil(self.steps(n_steps) / math.ceil(self.n_training / batch_size))


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
    grid
        Settings to choose from on validation cells, where the paper chose.

    Examples
    --------
    >>> from sccountsdiff.benchmark.paper.atlases import FETUS
    >>> Row("Zero imputation", "zero").method(Budget(FETUS, 1000))
    Zero()
    """

    name: str
    registered: str
    settings: Callable[[Budget], dict[str, Any]] = lambda budget: {}
    grid: tuple[dict[str, Any], ...] = ()

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
    sampling = {"n_steps": N_STEPS, "n_resamples": 1}
    return {"max_epochs": epochs, "model_kwargs": network, "train_kwargs": training, **sampling}


def _countsdiff(budget: Budget) -> dict[str, Any]:
    """With the attrition and the guidance that the paper's code has for the atlas."""
    return countsdiff_settings(budget) | {"attrition": budget.atlas.attrition, "guidance": budget.atlas.guidance}


def _trained(max_epochs: int, **settings: Any) -> dict[str, Any]:
    """Of a torch method: trained to the end, as in the paper, with validation cells that only say which weights to keep."""
    return {"max_epochs": max_epochs, "patience": max_epochs, "validation_share": VALIDATION_SHARE, **settings}


def _remdm(budget: Budget) -> dict[str, Any]:
    """CountsDiff's transformer with a class for each count, trained as long."""
    atlas = budget.atlas
    network = {"backbone": "transformer", "n_hidden": atlas.n_hidden, "n_heads": atlas.n_heads, "n_layers": 3}
    network |= {"quantile": 1.0, "max_classes": 10_000, "dropout": 0.1, "p_uncond": 0.2}
    training = {"batch_size": BATCH_SIZE, "lr": 2e-4, "ema_decay": atlas.ema_decay, "n_warmup_steps": 1000}
    sampling = {"known": "noised", "n_steps": N_STEPS, "n_resamples": 1, "eta": 0.005}
    return _trained(budget.epochs(atlas.n_steps, BATCH_SIZE), **network, **training, **sampling)


def _scidpms(budget: Budget) -> dict[str, Any]:
    """The original's network, target and sampler, and the authors' training, at full size; scaled down, our smaller ones."""
    original = {"group_size": 1, "n_layers": 6, "n_heads": 8, "n_time": 128, "n_levels": 300}
    original |= {"batch_size": 72, "lr": 5e-4, "weight_decay": 1e-6, "ema_decay": None, "n_warmup_steps": 0}
    original |= {"predicts": "noise", "target_share": 0.8, "eta": 1.0, "n_steps": 300}
    return _trained(budget.atlas.scidpms_epochs, **(original if budget.scale == 1 else {}))


def _scgpt(budget: Budget) -> dict[str, Any]:
    size = {"n_hidden": 128, "n_heads": 4, "n_layers": 4, "n_feedforward": 256, "dropout": 0.2}
    return _trained(10, value_style="continuous", **_SCGPT_TRAINING, **size)


def _scgpt_pretrained(budget: Budget) -> dict[str, Any]:
    return _trained(10, weights_path=budget.weights, unknown_genes="mean", **_SCGPT_TRAINING)


def _xtrimogene(budget: Budget) -> dict[str, Any]:
    """The authors' "3M" configuration; 8 batches of 128 cells make a step there."""
    sizes = {"n_hidden": 128, "n_heads": 2, "n_layers": 4, "expansion": 4, "n_bins": 100}
    sizes |= {"n_decoder_hidden": 128, "n_decoder_heads": 2, "n_decoder_layers": 2}
    hidden = {"hidden_shares": (0.3,), "hidden_zeros": 0.03}
    training = {"max_steps": None, "batch_size": 1024, "lr": 1e-4, "ema_decay": None}
    # Fewer cells make fewer steps, of which as large a share is warm-up.
    training["n_warmup_steps"] = round(XTRIMOGENE_WARMUP * budget.n_cells / budget.atlas.n_cells)
    return _trained(5, **sizes, **hidden, **training)


def _hivae(budget: Budget) -> dict[str, Any]:
    sizes = {"n_latent": 64, "n_components": 10, "n_gene_latent": 1, "n_hidden": 0}
    return _trained(100, batch_size=256, lr=1e-3, n_warmup_steps=0, **sizes)


def _gain(budget: Budget) -> dict[str, Any]:
    training = {"batch_size": 128, "lr": 1e-3, "n_warmup_steps": 0}
    # An epoch has more steps than the whole training of the paper.
    epochs = budget.epochs(GAIN_STEPS, 128)
    training["trainer_kwargs"] = {"limit_train_batches": math.ceil(budget.steps(GAIN_STEPS) / epochs)}
    return _trained(epochs, hint_rate=0.9, reconstruction=100.0, **training)


def _forest_diffusion(budget: Budget) -> dict[str, Any]:
    settings = {"n_t": 20, "n_copies": 1, "n_trees": 100, "n_resamples": 1, "jump_share": 1.0, "n_jobs": -1}
    return settings | {"allow_slow": budget.allow_slow}


def _grid(**values: tuple) -> tuple[dict[str, Any], ...]:
    """The settings as they are, and with one of them varied at a time."""
    return ({}, *({name: value} for name, some in values.items() for value in some))


ROWS = (
    Row("Zero imputation", "zero"),
    Row("Mean imputation", "gene_mean"),
    Row("Conditional Mean", "conditional_mean"),
    Row("MAGIC", "magic"),  # chooses its number of neighbours itself, on held-out training cells
    Row("scIDPMs", "scidpms", _scidpms),
    Row("GAIN", "gain", _gain),
    Row("HI-VAE (Poisson)", "hivae_poisson", _hivae),
    Row("HI-VAE (Gaussian)", "hivae_gaussian", _hivae),
    Row("scGPT (scratch)", "scgpt", _scgpt),
    Row("scGPT (pretrained)", "scgpt_pretrained", _scgpt_pretrained),
    Row("xTrimoGene", "xtrimogene", _xtrimogene),
    Row("Forest-Diffusion", "forest_diffusion", _forest_diffusion),
    Row("ReMDM", "remdm", _remdm, _grid(n_steps=(9, 99), n_resamples=(3,), eta=(0.0, 0.02), guidance=(0.5, 2.0))),
    Row("Blackout", "blackout", countsdiff_settings),
    Row(
        "CountsDiff",
        "countsdiff_paper",
        _countsdiff,
        _grid(n_steps=(9, 38), n_resamples=(3,), attrition=(0.0, 0.005, 0.02), guidance=(0.5, 1.0, 2.0)),
    ),
)
"""All methods of the paper's tables of imputation."""

_CLASSIFIED = {"Zero imputation", "Mean imputation", "Conditional Mean", "MAGIC", "ReMDM", "CountsDiff"}
CLASSIFIER_ROWS = tuple(row for row in ROWS if row.name in _CLASSIFIED)
"""Those of which the paper classified the imputed cells."""
