"""What a training writes while it runs: a table of losses and scores, and checkpoints."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import lightning.pytorch as pl
import pandas as pd
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from sccountsdiff.benchmark.images.model import ImageDiffusion

Evaluate = Callable[[ImageDiffusion, int], dict[str, float]]
"""Called with the model (averaged weights) and the step; what it returns becomes part of the history."""


class History(Callback):
    """Writes a line of ``history.csv`` at every evaluation, and calls the user's own evaluation.

    Parameters
    ----------
    path
        File to write; lines up to the step of a checkpoint that training goes on from are kept.
    evaluate
        Called with the model (its averaged weights) and the step.
    """

    def __init__(self, path: Path, evaluate: Evaluate | None = None):
        self.path, self.evaluate = path, evaluate
        self._losses: list[Tensor] = []

    def state_dict(self) -> dict[str, list[Tensor]]:
        """Losses since the last line: part of a checkpoint."""
        return {"losses": [loss.cpu() for loss in self._losses]}

    def load_state_dict(self, state_dict: dict[str, list[Tensor]]) -> None:
        """Go on from a checkpoint."""
        self._losses = list(state_dict["losses"])

    def on_train_start(self, trainer: pl.Trainer, pl_module: ImageDiffusion) -> None:
        """Forget what a longer run wrote after the checkpoint."""
        if trainer.is_global_zero and self.path.is_file():
            rows = pd.read_csv(self.path)
            rows = rows[rows["step"] <= trainer.global_step]
            rows.to_csv(self.path, index=False)
            if trainer.global_step in set(rows["step"]):  # a checkpoint is written before the evaluation of its step
                self._losses = []

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: ImageDiffusion, outputs, batch, batch_idx) -> None:
        """Remember the loss; of several processes, one keeps the history."""
        if trainer.is_global_zero:
            self._losses.append(outputs["loss"].detach())

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: ImageDiffusion) -> None:
        """Write a line; the first one before training."""
        if not trainer.is_global_zero or (trainer.sanity_checking and trainer.global_step):
            return
        losses, self._losses = torch.tensor([loss.item() for loss in self._losses] or [math.nan]), []
        row = {"step": trainer.global_step, "train_loss": losses.mean().item()}
        row["train_loss_sd"] = losses.std(correction=0).item()
        row["heldout_loss"] = trainer.callback_metrics["heldout_loss"].item()
        if self.evaluate is not None:
            row |= self.evaluate(pl_module, trainer.global_step)
        pd.DataFrame([row]).to_csv(self.path, mode="a", header=not self.path.is_file(), index=False)


class Saver(Callback):
    """Writes a checkpoint every so many steps, and after the last one.

    Parameters
    ----------
    path
        File, replaced by each checkpoint.
    every
        Steps between two.
    """

    def __init__(self, path: Path, every: int):
        self.path, self.every = path, every

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: ImageDiffusion, outputs, batch, batch_idx) -> None:
        """Write it, if it is time."""
        if trainer.global_step % self.every == 0 or trainer.global_step == trainer.max_steps:
            trainer.save_checkpoint(self.path)
