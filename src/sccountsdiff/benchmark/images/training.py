"""Training of an image model by Lightning: batches, losses and scores on the way, checkpoints to continue from."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler

from sccountsdiff.benchmark.images.config import ImageConfig, save_config
from sccountsdiff.benchmark.images.data import Splits
from sccountsdiff.benchmark.images.model import ImageDiffusion, load_model
from sccountsdiff.benchmark.quiet import quiet
from sccountsdiff.benchmark.seeding import global_seed
from sccountsdiff.checkpoints import check_settings, read_checkpoint, save_whole
from sccountsdiff.files import check_can_write, replacing, set_aside
from sccountsdiff.training import BestAverage, as_signalled

logger = logging.getLogger("sccountsdiff")

NOT_WANTED = ("use_distributed_sampler", "logger", "enable_model_summary", "enable_checkpointing")
"""What Lightning's trainer would do by itself; ``StepBatches``, ``History`` and ``Saver`` do it here."""

Evaluate = Callable[[ImageDiffusion, int], dict[str, float]]
"""Called with the model (averaged weights) and the step; what it returns becomes part of the history."""


@dataclasses.dataclass(eq=False)
class StepBatches(Sampler):
    """Batches of a training run that may stop after any step and continue as if it had not.

    Every pass over the images has its own order, drawn from the seed and the number of the pass; steps walk through one
    pass after the other.

    Parameters
    ----------
    n_images
        Images to choose from.
    batch_size
        Images of one step, over all processes.
    n_steps
        Steps of the whole training.
    seed
        Seed of the order.
    first_step
        Says at which step to begin, once iteration begins: 0, or where a checkpoint left off.
    rank, world_size
        This process, and how many there are: each takes every ``world_size``-th image of a batch.

    Examples
    --------
    >>> all_of_it = [batch for batch in StepBatches(5, 2, 4, seed=0)]
    >>> later = [batch for batch in StepBatches(5, 2, 4, seed=0, first_step=lambda: 3)]
    >>> all_of_it[3:] == later
    True
    >>> sorted(sum(all_of_it, [])[:5])
    [0, 1, 2, 3, 4]
    """

    n_images: int
    batch_size: int
    n_steps: int
    seed: int
    first_step: Callable[[], int] = lambda: 0
    rank: int = 0
    world_size: int = 1

    def __post_init__(self):
        if self.batch_size % self.world_size:
            raise ValueError(f"`batch_size` {self.batch_size} cannot be shared evenly by {self.world_size} processes.")

    def __len__(self) -> int:
        return self.n_steps

    def __iter__(self) -> Iterator[list[int]]:
        order = lru_cache(2)(lambda number: np.random.default_rng([self.seed, number]).permutation(self.n_images))
        for step in range(self.first_step(), self.n_steps):
            positions = range(step * self.batch_size + self.rank, (step + 1) * self.batch_size, self.world_size)
            yield [int(order(position // self.n_images)[position % self.n_images]) for position in positions]


class History(pl.Callback):
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
            rows = _read_history(self.path)
            rows = rows[rows["step"] <= trainer.global_step]
            self._write(rows)
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
        self._write(
            pd.concat([_read_history(self.path), pd.DataFrame([row])]) if self.path.is_file() else pd.DataFrame([row])
        )

    def _write(self, rows: pd.DataFrame) -> None:
        with replacing(self.path) as beside:
            rows.to_csv(beside, index=False)


def _read_history(path: Path) -> pd.DataFrame:
    """The lines so far; a file that is none is put aside."""
    try:
        # Digits as they were written: what is read and written again is the same.
        rows = pd.read_csv(path, float_precision="round_trip")
        rows["step"] = pd.to_numeric(rows["step"])
        return rows
    except (KeyError, TypeError, ValueError) as error:
        logger.warning("%s is damaged (%s): put aside as %s.", path, error, set_aside(path).name)
        return pd.DataFrame({"step": pd.Series(dtype=int)})


class Saver(pl.Callback):
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
            save_whole(trainer, self.path)


class _Stream(pl.LightningDataModule):
    """Loaders that know at which step training is."""

    def __init__(self, splits: Splits, config: ImageConfig, n_workers: int, n_heldout: int):
        super().__init__()
        self.splits, self.config, self.n_workers, self.n_heldout = splits, config, n_workers, n_heldout

    def train_dataloader(self) -> DataLoader:
        images, config, trainer = self.splits.train, self.config, self.trainer
        share = {"rank": trainer.global_rank, "world_size": trainer.world_size}
        sizes = (len(images), config.batch_size, config.n_steps)
        batches = StepBatches(*sizes, config.seed, first_step=lambda: trainer.global_step, **share)
        return DataLoader(images, batch_sampler=batches, num_workers=self.n_workers)

    def val_dataloader(self) -> DataLoader:
        images = self.splits.heldout
        chosen = range(len(images))[: self.n_heldout][self.trainer.global_rank :: self.trainer.world_size]
        return DataLoader(images, self.config.batch_size, sampler=chosen, num_workers=self.n_workers)


def default_device() -> str:
    """``"cuda"`` if there is one, else ``"cpu"``: torch draws binomial numbers on no other device.

    Examples
    --------
    >>> default_device() in ("cuda", "cpu")
    True
    """
    return "cuda" if torch.cuda.is_available() else "cpu"


def _step_of(checkpoint: Path, config: ImageConfig) -> int | None:
    """The step of a checkpoint, ``None`` without one; an error if it was made with other settings."""
    saved = read_checkpoint(checkpoint)
    if saved is None:
        return None
    if "image_model" not in saved:
        raise ValueError(f"{checkpoint} is a checkpoint, but not of an image model: choose another folder.")
    check_settings(checkpoint, saved["image_model"]["config"], dataclasses.asdict(config))
    return saved["global_step"]


def train(
    config: ImageConfig,
    splits: Splits,
    output: str | Path,
    *,
    evaluate: Evaluate | None = None,
    checkpoint_every: int | None = None,
    resume: bool = False,
    stop_at: int | None = None,
    n_heldout: int = 1000,
    n_workers: int = 0,
    progress: bool = False,
    **trainer_kwargs: Any,
) -> ImageDiffusion:
    """Train a model; the one returned has the averaged weights.

    Writes ``config.yaml``, ``history.csv`` and ``last.ckpt`` into a folder. A run that continues from ``last.ckpt`` ends with
    the same weights, bit for bit, as one that was never stopped.

    Parameters
    ----------
    config
        Settings.
    splits
        Images.
    output
        Folder.
    evaluate
        Called before the first step and then every ``config.evaluate_every`` steps, with the model and the step; its numbers
        go into the history.
    checkpoint_every
        Steps between two checkpoints; by default those between two evaluations.
    resume
        Continue from ``last.ckpt`` in the folder, if there is one.
    stop_at
        Stop after this step of ``config.n_steps``, as an interruption would.
    n_heldout
        Largest number of held-out images for the held-out loss.
    n_workers
        Processes that read images.
    progress
        Show a progress bar.
    **trainer_kwargs
        Arguments of :class:`lightning.pytorch.Trainer`, such as ``accelerator`` (``"cuda"`` or ``"cpu"``), ``devices``,
        ``strategy`` or ``precision``.

    Returns
    -------
    The trained model.

    Examples
    --------
    >>> from sccountsdiff.benchmark.images import load_config, load_images
    >>> config = load_config("digits", channels=(8, 8), n_steps=2, evaluate_every=2, n_warmup_steps=1)
    >>> model = train(config, load_images("digits"), "run")
    >>> from pathlib import Path
    >>> sorted(path.name for path in Path("run").iterdir())
    ['config.yaml', 'history.csv', 'last.ckpt']
    """
    output = Path(output)
    output.mkdir(parents=True, exist_ok=True)
    checkpoint = output / "last.ckpt"
    check_can_write(checkpoint)
    step = _step_of(checkpoint, config) if resume else None
    resume = step is not None
    if step is not None and step >= config.n_steps:
        return load_model(checkpoint, trainer_kwargs.get("accelerator", default_device()))
    if not resume:
        for old in (checkpoint, output / "history.csv"):
            old.unlink(missing_ok=True)
    save_config(config, output / "config.yaml")
    evaluate_every = min(config.evaluate_every, config.n_steps)
    # In this order: an evaluation ends before the averaged weights are put away again, and a checkpoint is written after
    # the step has entered the average.
    callbacks = [
        History(output / "history.csv", evaluate),
        BestAverage(config.ema_decay, monitor=""),  # no metric chooses: the last average stays
        Saver(checkpoint, checkpoint_every or evaluate_every),
        *trainer_kwargs.pop("callbacks", []),
    ]
    with quiet(), global_seed(config.seed):
        trainer = pl.Trainer(
            **{
                "max_steps": min(stop_at or config.n_steps, config.n_steps),
                "max_epochs": 1,
                "accelerator": default_device(),
                "gradient_clip_val": config.clip,
                "check_val_every_n_epoch": None,
                "val_check_interval": evaluate_every,
                "num_sanity_val_steps": -1,  # an evaluation before the first step
                "enable_progress_bar": progress,
                "callbacks": callbacks,
            }
            | dict.fromkeys(NOT_WANTED, False)
            | trainer_kwargs
        )
        model = ImageDiffusion.for_images(config, splits.train)
        stream = _Stream(splits, config, n_workers, n_heldout)
        try:
            trainer.fit(model, stream, ckpt_path=checkpoint if resume else None, weights_only=True)
        except SystemExit as error:
            raise as_signalled(error) from None
    return model.to(trainer.strategy.root_device).eval()  # Lightning leaves it on the CPU
