"""Checkpoints of a training: written whole, read without running anything, and enough to go on bit for bit."""

from __future__ import annotations

import pickle
import random
import time
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import pandas as pd
import torch

from sccountsdiff.files import replacing, set_aside
from sccountsdiff.seeding import seed_process

SECONDS_BETWEEN = 20.0
"""Time between two checkpoints, of which there is one after an epoch at most."""

KEY = "sccountsdiff"
"""Where a checkpoint of Lightning holds what is ours."""

UNREADABLE = (
    AttributeError,
    EOFError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    pickle.UnpicklingError,
)
"""What is raised where a file that should be a checkpoint is read, or looked into, and is damaged or something else."""


class Checkpoints(pl.Callback):
    """Writes where training is to a file, between epochs; training that is started from it goes on as if never stopped.

    Beside what Lightning knows, that is the state of all random numbers, from which the order of the cells and the noise
    come, and the history.

    Parameters
    ----------
    path
        The file.
    settings
        What the training was asked for: one with other settings does not go on from here.
    """

    def __init__(self, path: Path, settings: dict[str, str]):
        self.path, self.settings = path, settings
        self._to_restore: dict[str, Any] | None = None
        self._is_finished = False
        self._last_time = time.monotonic()

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Between two epochs nothing is under way: go on from here, or write it down."""
        if self._to_restore is not None:
            set_random_state(self._to_restore)
            self._to_restore = None
            if trainer.world_size > 1:  # the state is that of the first process
                seed_process(int(torch.randint(2**62, ())), trainer.global_rank)
            # An epoch begins. Lightning takes it for one that was under way, and has made the iterator over the cells,
            # which draws a random number, before the state was restored.
            trainer.fit_loop.restarting = False
            iter(trainer.fit_loop._data_fetcher)
        elif trainer.current_epoch > 0:
            is_time = time.monotonic() - self._last_time >= SECONDS_BETWEEN
            # All processes save or none: they wait for each other, and their clocks differ.
            if trainer.strategy.reduce_boolean_decision(is_time, all=False):
                save_whole(trainer, self.path)
                self._last_time = time.monotonic()

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write down that there is nothing left to do."""
        self._is_finished = True
        save_whole(trainer, self.path)

    def on_save_checkpoint(self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict) -> None:
        """Add what is ours."""
        history = getattr(trainer.logger, "history", None) if trainer.is_global_zero else None  # others have none
        checkpoint[KEY] = {
            "settings": self.settings,
            "is_finished": self._is_finished,
            "random_state": random_state(),
            "history": _as_lists(history or {}),
        }

    def on_load_checkpoint(self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict) -> None:
        """Take up what was done before."""
        self._to_restore = checkpoint[KEY]["random_state"]
        if trainer.is_global_zero and hasattr(trainer.logger, "history"):
            trainer.logger.experiment.data = as_tables(checkpoint[KEY]["history"])


def save_whole(trainer: pl.Trainer, path: Path, previous: Path | None = None) -> None:
    """Have Lightning write a checkpoint that is whole or not there.

    Parameters
    ----------
    trainer
        The trainer.
    path
        The file, replaced when the new one is complete.
    previous
        Where to keep what it replaces, if anywhere.
    """
    if trainer.is_global_zero:
        with replacing(path) as beside:
            trainer.save_checkpoint(beside)
            if previous is not None and path.is_file():
                path.replace(previous)
    else:
        trainer.save_checkpoint(path)  # other processes write nothing, but are waited for


def read_checkpoint(path: Path) -> dict[str, Any] | None:
    """A checkpoint, or ``None`` if there is none; a damaged one is set aside.

    Parameters
    ----------
    path
        The file. Nothing in it is run.

    Returns
    -------
    Its content.

    Examples
    --------
    >>> read_checkpoint(Path("nowhere.ckpt"))
    """
    if not path.is_file():
        return None
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        content["global_step"], content["state_dict"]
        return content
    except UNREADABLE as error:
        set_aside(path, error)
        return None


def check_settings(path: Path, old: dict[str, Any], new: dict[str, Any]) -> None:
    """Refuse to go on with other settings than those that a checkpoint was made with.

    Parameters
    ----------
    path
        The checkpoint.
    old, new
        Settings by name.

    Examples
    --------
    >>> check_settings("last.ckpt", {"lr": 0.1}, {"lr": 0.2})
    Traceback (most recent call last):
        ...
    ValueError: last.ckpt was made with other settings, so training cannot go on: lr (0.1 instead of 0.2).
    """
    different = [f"{name} ({old.get(name)} instead of {new[name]})" for name in new if old.get(name) != new[name]]
    if different:
        raise ValueError(f"{path} was made with other settings, so training cannot go on: {', '.join(different)}.")


def random_state() -> dict[str, Any]:
    """The states of all global streams of random numbers, as data.

    Returns
    -------
    What :func:`set_random_state` takes.

    Examples
    --------
    >>> state = random_state()
    >>> first = torch.rand(1)
    >>> set_random_state(state)
    >>> bool(first == torch.rand(1))
    True
    """
    numpy_state = np.random.get_state(legacy=False)
    numpy_state["state"]["key"] = numpy_state["state"]["key"].tolist()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "numpy": numpy_state,
        "python": random.getstate(),
    }


def set_random_state(state: dict[str, Any]) -> None:
    """Set the states of all global streams of random numbers.

    Parameters
    ----------
    state
        From :func:`random_state`.
    """
    torch.set_rng_state(state["torch"])
    if len(state["cuda"]) == torch.cuda.device_count() > 0:
        torch.cuda.set_rng_state_all(state["cuda"])
    numpy_state = state["numpy"]
    key = np.array(numpy_state["state"]["key"], dtype=np.uint32)
    np.random.set_state(numpy_state | {"state": numpy_state["state"] | {"key": key}})
    random.setstate(state["python"])


def _as_lists(history: dict[str, pd.DataFrame]) -> dict[str, dict[str, list]]:
    return {
        name: {"index": [int(i) for i in table.index], "values": [float(x) for x in table.iloc[:, 0]]}
        for name, table in history.items()
    }


def as_tables(history: dict[str, dict[str, list]]) -> dict[str, pd.DataFrame]:
    """Histories as scvi-tools has them, from those of a checkpoint.

    Examples
    --------
    >>> as_tables({"loss": {"index": [0, 1], "values": [2.0, 1.5]}})["loss"].loc[1, "loss"]
    1.5
    """
    return {
        name: pd.DataFrame({name: column["values"]}, index=pd.Index(column["index"], name="epoch"), dtype=object)
        for name, column in history.items()
    }
