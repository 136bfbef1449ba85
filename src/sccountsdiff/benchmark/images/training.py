"""Training of an image model: Lightning around the core's thinning and loss."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import pandas as pd
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor
from torch.utils.data import DataLoader

from sccountsdiff.benchmark.images.config import ImageConfig, save_config
from sccountsdiff.benchmark.images.data import CountImages, Splits, pixel_moments
from sccountsdiff.benchmark.images.network import ImageDenoiser
from sccountsdiff.benchmark.images.stream import StepBatches
from sccountsdiff.benchmark.quiet import quiet
from sccountsdiff.benchmark.seeding import global_seed
from sccountsdiff.diffusion import Prediction, count_loss, get_schedule, thin
from sccountsdiff.training import BestAverage, warm_up_and_decay

Predict = Callable[[Tensor, Tensor, Tensor | None, Tensor], Prediction]
"""A prediction from noised images, times, conditions and which of these to leave out: the network, or a reference."""

Evaluate = Callable[["ImageDiffusion", int], dict[str, float]]
"""Called with the model (averaged weights) and the step; what it returns becomes part of the history."""


class ImageDiffusion(pl.LightningModule):
    """CountsDiff on images.

    Parameters
    ----------
    config
        Settings.
    mean, variance
        Moments of each pixel (:func:`~sccountsdiff.benchmark.images.pixel_moments`).
    max_count
        Largest value of a pixel.
    names
        Names of the classes or attributes.
    multi_label
        Whether ``names`` are attributes.

    Examples
    --------
    >>> import torch
    >>> config = ImageConfig("digits", channels=(8, 8))
    >>> model = ImageDiffusion(config, torch.ones(1, 8, 8), torch.ones(1, 8, 8), 16, tuple("0123456789"))
    >>> model.shape
    (1, 8, 8)
    """

    def __init__(
        self,
        config: ImageConfig,
        mean: Tensor,
        variance: Tensor,
        max_count: int,
        names: tuple[str, ...],
        multi_label: bool = False,
    ):
        super().__init__()
        self.config, self.max_count, self.names = config, max_count, names
        self.shape = tuple(mean.shape)
        self.schedule = get_schedule(config.schedule)
        self.network = ImageDenoiser(
            mean,
            variance,
            max_count,
            self.schedule,
            n_conditions=len(names) if config.conditional else 0,
            multi_label=multi_label,
            channels=config.channels,
            layers_per_block=config.layers_per_block,
            attention_at=config.attention_at,
            dropout=config.dropout,
            head=config.head,
        )

    @classmethod
    def for_images(cls, config: ImageConfig, data: CountImages) -> ImageDiffusion:
        """An untrained model for these images."""
        return cls(config, *pixel_moments(data), data.max_count, data.names, data.multi_label)

    def denoise_with(self, conditions: Tensor | None) -> Callable[..., Prediction]:
        """The network with its conditions bound, as :func:`~sccountsdiff.diffusion.guide` wants it."""

        def denoise(x: Tensor, status: Tensor, t: Tensor, null: Tensor) -> Prediction:
            copies = 1 if conditions is None else len(x) // len(conditions)  # 2 under guidance
            repeated = None if conditions is None else torch.cat([conditions] * copies)
            return self.network(x, t, repeated, null)

        return denoise

    def loss(
        self,
        x0: Tensor,
        conditions: Tensor,
        p_uncond: float,
        generator: torch.Generator | None = None,
        predict: Predict | None = None,
    ) -> Tensor:
        """Eq. 6 with one time for each image (Algorithm 1), for the network or for another way to predict."""
        n = len(x0)

        def uniform() -> Tensor:
            return torch.rand(n, generator=generator, device=x0.device)

        # One time in each n-th of [0, 1]: uniform, and the loss varies less from batch to batch.
        t = (torch.randperm(n, generator=generator, device=x0.device) + uniform()) / n
        t = self.schedule.snap(t).to(x0.dtype).clamp_min(1e-4)
        p = self.schedule.survival(t).to(x0.dtype)[:, None, None, None]
        xt = thin(x0, p, generator)
        prediction = (predict or self.network)(xt, t, conditions, uniform() < p_uncond)
        weight = self.schedule.weight(t).to(x0.dtype)[:, None, None, None]
        return (weight * count_loss(x0 - xt, prediction.log_mean)).mean()

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """Loss of one batch. What it draws depends on seed, step and process, not on what came before."""
        images, conditions = batch
        torch.manual_seed(_step_seed(self.config.seed, self.global_step, self.global_rank))
        x0 = images.float()
        if self.config.flip:
            mirrored = torch.rand(len(x0), device=x0.device) < 0.5
            x0 = torch.where(mirrored[:, None, None, None], x0.flip(-1), x0)
        loss = self.loss(x0, conditions, self.config.p_uncond)
        self.log("train_loss", loss, prog_bar=True, on_step=True, on_epoch=False)
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """Loss of one batch of held-out images with the same draws each time."""
        loss = self.heldout_loss(batch, batch_idx)
        many = self.trainer.world_size > 1
        self.log("heldout_loss", loss, prog_bar=True, on_epoch=True, batch_size=len(batch[0]), sync_dist=many)

    def heldout_loss(self, batch: tuple[Tensor, Tensor], batch_idx: int, predict: Predict | None = None) -> Tensor:
        """Loss of one batch, its times and noise drawn from the number of the batch alone."""
        images, conditions = batch
        generator = torch.Generator(self.device).manual_seed(batch_idx)
        return self.loss(images.float(), conditions, 0.0, generator, predict)

    def configure_optimizers(self):
        """Adam with linear warm-up, then a constant learning rate or one that falls along a cosine."""
        config = self.config
        optimizer = torch.optim.Adam(self.parameters(), lr=config.lr)
        return warm_up_and_decay(optimizer, config.n_steps, config.n_warmup_steps, config.lr_final)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add what is needed to build the model again."""
        checkpoint["image_model"] = {
            "config": dataclasses.asdict(self.config),
            "max_count": self.max_count,
            "names": list(self.names),
            "multi_label": bool(self.network.condition and self.network.condition.multi_label),
        }


def _step_seed(*numbers: int) -> int:
    """One seed from several numbers, far apart even for neighbouring ones."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1)


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
    # the average has seen the step.
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


def load_model(path: str | Path, device: str | torch.device = "cpu") -> ImageDiffusion:
    """A model with the averaged weights of a checkpoint.

    Parameters
    ----------
    path
        A ``.ckpt`` file written by :func:`train`.
    device
        Where to put it.

    Returns
    -------
    The model, in evaluation mode.

    Examples
    --------
    >>> from sccountsdiff.benchmark.images import load_config, load_images
    >>> config = load_config("digits", channels=(8, 8), n_steps=2, n_warmup_steps=1)
    >>> model = train(config, load_images("digits"), "run")
    >>> load_model("run/last.ckpt").config == config
    True
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"No checkpoint at {str(path)!r}.")
    checkpoint = torch.load(path, map_location=device, weights_only=True)
    about, weights = checkpoint["image_model"], checkpoint["state_dict"]
    model = ImageDiffusion(
        ImageConfig(**about["config"]),
        weights["network.mean"],
        weights["network.variance"],
        about["max_count"],
        tuple(about["names"]),
        about["multi_label"],
    )
    model.load_state_dict(weights)
    return model.to(device).eval()
