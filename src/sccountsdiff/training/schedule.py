"""How fast and how long to train, and how often to validate."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch

VALIDATION_DRAWS = 1000
"""Noised states that a small validation set is repeated to: the loss of a few cells is mostly noise."""


def warm_up_and_decay(
    optimizer: torch.optim.Optimizer, n_steps: int, n_warmup_steps: int, lr_final: float
) -> dict[str, Any]:
    """An optimiser whose learning rate rises linearly and falls along half a cosine, in the form Lightning takes it.

    Parameters
    ----------
    optimizer
        Optimiser with the highest learning rate.
    n_steps
        Steps until the learning rate has fallen.
    n_warmup_steps
        Steps over which it rises; the cosine falls meanwhile.
    lr_final
        Share of the learning rate that is left at the end.

    Examples
    --------
    >>> optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    >>> scheduler = warm_up_and_decay(optimizer, n_steps=4, n_warmup_steps=2, lr_final=0.2)["lr_scheduler"]["scheduler"]
    >>> [round(scheduler.lr_lambdas[0](step), 2) for step in range(6)]
    [0.5, 0.88, 0.6, 0.32, 0.2, 0.2]
    """
    share = partial(_share_of_lr, n_steps, n_warmup_steps, lr_final)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, share)
    return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


# A function of the module, not a local one: a trained model keeps it, and can be pickled with it.


def _share_of_lr(n_steps: int, n_warmup_steps: int, lr_final: float, step: int) -> float:
    decay = 0.5 * (1 + math.cos(math.pi * min(step / n_steps, 1)))
    return min((step + 1) / max(n_warmup_steps, 1), 1) * (lr_final + (1 - lr_final) * decay)


def default_lr(n_genes: int) -> float:
    """0.001 up to a thousand genes, falling with the square root of their number from there on.

    A step moves the weights of all genes at once, so the more genes a cell is read from, the further each step takes
    the hidden units: with a whole transcriptome of few cells, steps for a thousand genes overfit before they have learnt.

    Examples
    --------
    >>> [round(default_lr(n), 5) for n in (200, 1_000, 4_000, 16_000)]
    [0.001, 0.001, 0.0005, 0.00025]
    """
    return 1e-3 * min(1.0, math.sqrt(1000 / n_genes))


def epochs_between_validations(n_train: int, n_validation: int, batch_size: int, max_epochs: int) -> int:
    """Epochs after which to validate: so that it takes a quarter of the time at most, and happens 20 times at least.

    Examples
    --------
    >>> [epochs_between_validations(n, n // 9, 128, 250) for n in (500, 5_000, 50_000)]
    [3, 1, 1]
    """
    n_repeats = math.ceil(VALIDATION_DRAWS / max(n_validation, VALIDATION_DRAWS // 8))
    n_passes = n_repeats * math.ceil(n_validation / batch_size)  # each a third of a training step
    wanted = math.ceil(n_passes / (0.75 * math.ceil(n_train / batch_size)))
    return max(1, min(wanted, max_epochs // 20))


def default_max_epochs(n_train: int, batch_size: int) -> int:
    """Epochs that make about 2,000 optimiser steps for a thousand cells, growing with the square root of the cells.

    Examples
    --------
    >>> [default_max_epochs(n, 128) for n in (1_000, 10_000, 100_000, 1_000_000)]
    [250, 81, 26, 9]
    """
    n_steps = 2000 * math.sqrt(n_train / 1000)
    return max(1, math.ceil(n_steps / math.ceil(n_train / batch_size)))
