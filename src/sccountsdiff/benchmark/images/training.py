"""Training of an image model by Lightning: batches, checkpoints and how to continue from them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader

from sccountsdiff.benchmark.images.callbacks import Evaluate, History, Saver
from sccountsdiff.benchmark.images.config import ImageConfig, save_config
from sccountsdiff.benchmark.images.data import Splits
from sccountsdiff.benchmark.images.model import ImageDiffusion, load_model
from sccountsdiff.benchmark.images.stream import StepBatches
from sccountsdiff.benchmark.quiet import quiet
from sccountsdiff.benchmark.seeding import global_seed
from sccountsdiff.training import BestAverage


class _Stream(pl.LightningDataModule):
    """Loaders that know at which step training is."""

    def __init__(self, splits: Splits, config: ImageConfig, n_workers: int, n_heldout: int):
        super().__init__()
        self.splits, self.config, self.n_workers = splits, config, n_workers
        self.n_heldout = min(n_heldout, len(splits.heldout))

    def train_dataloader(self) -> DataLoader:
        trainer = self.trainer
        batches = StepBatches(
            len(self.splits.train),
            self.config.batch_size,
            self.config.n_steps,
            self.config.seed,
            first_step=lambda: trainer.global_step,
            rank=trainer.global_rank,
            world_size=trainer.world_size,
        )
        return DataLoader(self.splits.train, batch_sampler=batches, num_workers=self.n_workers)

    def val_dataloader(self) -> DataLoader:
        chosen = range(self.trainer.global_rank, self.n_heldout, self.trainer.world_size)
        return DataLoader(self.splits.heldout, self.config.batch_size, sampler=chosen, num_workers=self.n_workers)


def default_device() -> str:
    """``"cuda"`` if there is one, else ``"cpu"``: torch draws binomial numbers on no other device.

    Examples
    --------
    >>> default_device() in ("cuda", "cpu")
    True
    """
    return "cuda" if torch.cuda.is_available() else "cpu"


def _check_resumable(checkpoint: Path, config: ImageConfig) -> int:
    """The step of a checkpoint; an error if it was made with other settings."""
    saved = torch.load(checkpoint, map_location="cpu", weights_only=True)
    old, new = saved["image_model"]["config"], dataclasses.asdict(config)
    different = [f"{name} ({old[name]} instead of {new[name]})" for name in new if old[name] != new[name]]
    if different:
        raise ValueError(
            f"{checkpoint} was made with other settings, so training cannot go on: {', '.join(different)}."
        )
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
    resume = resume and checkpoint.is_file()
    if resume and _check_resumable(checkpoint, config) >= config.n_steps:
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
                "use_distributed_sampler": False,
                "logger": False,
                "enable_progress_bar": progress,
                "enable_model_summary": False,
                "enable_checkpointing": False,  # Saver does it
                "callbacks": callbacks,
            }
            | trainer_kwargs
        )
        model = ImageDiffusion.for_images(config, splits.train)
        stream = _Stream(splits, config, n_workers, n_heldout)
        trainer.fit(model, stream, ckpt_path=checkpoint if resume else None)
    return model.to(trainer.strategy.root_device).eval()  # Lightning leaves it on the CPU
