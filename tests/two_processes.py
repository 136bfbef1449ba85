"""Trains a small model on two processes; run as a script by ``test_distributed.py``.

Each process writes what it drew in its first step, and the loss that it stopped at, to a file of its own.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import scvi
import torch
from anndata import AnnData
from lightning.pytorch.callbacks import Callback

from sccountsdiff import CountsDiffImputer, checkpoints

# By the clock of the second process there is never a reason to write a checkpoint; both have to agree.
checkpoints.SECONDS_BETWEEN = 1e9 if os.environ.get("LOCAL_RANK") == "1" else 0.0

SETTINGS = {"max_epochs": 40, "early_stopping_patience": 2, "plan_kwargs": {"lr": 0.02}, "enable_progress_bar": False}


def make_model() -> CountsDiffImputer:
    """Untrained, on counts of three types of cells."""
    torch.set_num_threads(1)
    scvi.settings.seed = 0
    rng = np.random.default_rng(0)
    rates = rng.gamma(0.5, 4.0, (3, 20))[rng.integers(3, size=400)]
    return CountsDiffImputer(AnnData(sp.csr_matrix(rng.poisson(rates).astype(np.float32))), n_hidden=8, n_layers=1)


class Report(Callback):
    """Writes down what a process does."""

    def __init__(self, folder: Path):
        self.folder, self.first = folder, {}

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if trainer.global_step == 1:
            self.first = {"cells": batch["X"].sum(1).tolist(), "noise": torch.rand(4).tolist()}

    def on_train_end(self, trainer, pl_module):
        loss = float(trainer.callback_metrics["validation_loss"])
        found = self.first | {"epochs": trainer.current_epoch, "loss": loss, "n_processes": trainer.world_size}
        (self.folder / f"rank{trainer.global_rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    strategy, folder, *accelerator = sys.argv[1], Path(sys.argv[2]), *sys.argv[3:]
    model = make_model()
    options = {
        "accelerator": (accelerator or ["cpu"])[0],
        "devices": 2,
        "batch_size": 32,
        "callbacks": [Report(folder)],
    }
    if strategy != "ddp":  # which is what several devices are trained with, unless one says otherwise
        options["strategy"] = strategy
    model.train(checkpoint=folder / "checkpoints", **options, **SETTINGS)
    assert len(model.train_indices) == 360 and "validation_loss" in model.history
    model.save(folder / "model")  # would fail the second time
    (folder / f"done{model.trainer.global_rank}").touch()
