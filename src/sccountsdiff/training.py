"""How the network is trained: optimiser, learning rate, weight averaging, validation that can be compared."""

from __future__ import annotations

import logging
import math
import signal
from collections.abc import Callable
from functools import partial
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.pytorch.callbacks import WeightAveraging
from lightning.pytorch.utilities.exceptions import SIGTERMException
from scvi import REGISTRY_KEYS
from scvi.train import TrainRunner

from sccountsdiff.diffusion.host import host_sees
from sccountsdiff.module import CountsDiffModule

logger = logging.getLogger("sccountsdiff")

EXPLODED = 1e4
"""A loss so many times above the first one, or above 1, does not come back."""

LOOK_EVERY = 50
"""Steps between two looks at the losses of a GPU: each look waits for it."""

VALIDATION_DRAWS = 1000
"""Noised states that a small validation set is repeated to: the loss of a few cells is mostly noise."""


class TrainingDiverged(RuntimeError):
    """The loss is not a number any more, or beyond all measure."""


class LossWatch:
    """Stops a training whose loss has gone, before it has spoilt more weights.

    Losses stay on their device and are looked at together, now and then: for each look the device has to be waited for.
    A CPU does not have to be waited for.

    Parameters
    ----------
    lr
        Learning rate, which is often the cause.
    every
        Steps between two looks at most.

    Examples
    --------
    >>> watch = LossWatch()
    >>> watch.has_diverged(2.0), watch.has_diverged(40.0), watch.has_diverged(1e9), watch.has_diverged(math.nan)
    (False, False, True, True)
    """

    def __init__(self, lr: float = 0.0, every: int = LOOK_EVERY) -> None:
        self.lr, self.every = lr, every
        self._first: float | None = None
        self._unseen: list[tuple[int, int, torch.Tensor]] = []

    def __call__(self, loss: torch.Tensor, plan: pl.LightningModule) -> None:
        """Remember the loss of a step, and look at the last ones if it is time."""
        self._unseen.append((plan.global_step, plan.current_epoch, loss.detach()))
        if host_sees(loss) or len(self._unseen) >= self.every:
            self.look(plan.trainer)

    def look(self, trainer: pl.Trainer) -> None:
        """Stop at the first loss since the last look that is none; to be called before weights are kept."""
        unseen, self._unseen = self._unseen, []
        if not unseen:
            return
        losses = torch.stack([loss for *_, loss in unseen])
        self._first = float(losses[0]) if self._first is None else self._first
        if not self.has_diverged(float(losses.masked_fill(~losses.isfinite(), math.inf).max())):
            return
        for (step, epoch, _), value in zip(unseen, losses.tolist(), strict=True):
            if self.has_diverged(value):
                raise TrainingDiverged(
                    f"Training diverged in step {step} of epoch {epoch}: the loss is {value:.3g}. "
                    f"{_likely_cause(self.lr, trainer)}"
                )

    def has_diverged(self, loss: float) -> bool:
        """Whether a loss is none, compared with the first one."""
        self._first = loss if self._first is None else self._first
        return not math.isfinite(loss) or loss > EXPLODED * max(1.0, abs(self._first))


class WatchedTraining(pl.LightningModule):
    """A training whose ``watch`` is given the loss of each step, and looks before weights are kept or saved."""

    watch: LossWatch

    def on_train_epoch_end(self) -> None:
        """Look at what is left."""
        look_at_losses(self)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Save no weights that are spoilt."""
        look_at_losses(self)


def look_at_losses(plan: torch.nn.Module) -> None:
    """Stop a training, if it is one that is watched, at a loss that is none."""
    if isinstance(plan, WatchedTraining):
        plan.watch.look(plan.trainer)


class CountsDiffTrainingPlan(WatchedTraining):
    """AdamW with linear warm-up and cosine decay; validation on fixed times, masks and noise.

    Parameters
    ----------
    module
        What is trained.
    lr
        Highest learning rate. Default: that of ``default_lr`` for the number of genes.
    weight_decay
        Decoupled weight decay; none where a part of the network is frozen, which it would move.
    n_warmup_steps
        Optimiser steps over which the learning rate rises; at most a tenth of all steps.
    lr_final
        Share of ``lr`` that is left at the end.
    validation_seed
        Seed of the noise of the validation loss.
    compile
        Compile network and loss of a training step, by :func:`torch.compile`, as one graph. For GPUs: on a CPU, where zeros
        and what is not asked for are passed over as it is, it takes longer.
    compile_kwargs
        Arguments of :func:`torch.compile`.
    """

    def __init__(
        self,
        module: CountsDiffModule,
        lr: float | None = None,
        weight_decay: float = 1e-2,
        n_warmup_steps: int = 100,
        lr_final: float = 0.01,
        validation_seed: int = 0,
        compile: bool = False,
        compile_kwargs: dict | None = None,
    ):
        super().__init__()
        self.module = module
        self.compile_kwargs = (compile_kwargs or {}) if compile else None
        self.lr = default_lr(module.n_genes) if lr is None else lr
        self.weight_decay = weight_decay
        self.n_warmup_steps = n_warmup_steps
        self.lr_final = lr_final
        self.validation_seed = validation_seed
        self._compiled: Callable[..., torch.Tensor] | None = None
        self.n_obs_training: int | None = None  # set by the runner
        self.n_obs_validation: int | None = None
        self.watch = LossWatch(self.lr)

    def on_fit_start(self) -> None:
        """Compile what is to be, and give each of several processes times and noise of its own: they start from the same seed."""
        if self.compile_kwargs is not None:
            # Not before: processes that are spawned are sent the plan.
            self._compiled = torch.compile(self._loss, **self.compile_kwargs)
        if self.trainer.world_size > 1:
            keys = torch.initial_seed(), self.global_rank
            torch.manual_seed(int(np.random.SeedSequence(keys).generate_state(1, np.uint64)[0]))

    def training_step(self, batch, batch_idx: int) -> torch.Tensor:
        """Loss of one minibatch."""
        drawn = self.module.inference(**self.module.read(batch))
        loss = (self._compiled or self._loss)(batch, drawn)
        self.watch(loss, self)
        self._log("train_loss", loss, batch)
        return loss

    def _loss(self, batch, drawn: dict) -> torch.Tensor:
        return self.module.loss(batch, drawn, self.module.generative(**drawn)).loss

    def validation_step(self, batch, batch_idx: int) -> None:
        """Loss of one minibatch with the same draws in every epoch."""
        number = batch_idx * self.trainer.world_size + self.global_rank
        generator = torch.Generator(self.device).manual_seed(self.validation_seed + number)
        for _ in range(math.ceil(VALIDATION_DRAWS / max(self.n_obs_validation or 1, VALIDATION_DRAWS // 8))):
            _, _, output = self.module(batch, inference_kwargs={"generator": generator})
            self._log("validation_loss", output.loss, batch)

    def _log(self, name: str, loss: torch.Tensor, batch) -> None:
        self.log(
            name,
            loss,
            on_step=False,
            on_epoch=True,
            prog_bar=True,
            batch_size=len(batch[REGISTRY_KEYS.X_KEY]),
            sync_dist=self.trainer.world_size > 1,
        )

    def configure_optimizers(self):
        """AdamW and its schedule, in steps."""
        # scvi-tools' default eps of 0.01 would swamp the small gradients of rare genes.
        optimizer = torch.optim.AdamW(
            [weights for weights in self.module.parameters() if weights.requires_grad],
            lr=self.lr,
            weight_decay=0.0 if self.module.is_frozen else self.weight_decay,
            betas=(0.9, 0.99),
            eps=1e-8,
            # With mixed precision, Lightning clips no gradients that a fused optimiser would unscale itself.
            fused="mixed" not in self.trainer.precision,
        )
        n_steps = max(1, int(self.trainer.estimated_stepping_batches))
        return warm_up_and_decay(optimizer, n_steps, min(self.n_warmup_steps, n_steps // 10), self.lr_final)


def _likely_cause(lr: float, trainer: pl.Trainer) -> str:
    usual = 1e-3
    if lr > 3 * usual:
        return f"The learning rate of {lr:g} is the likely cause: {usual:g} and less is usual."
    if "16" in str(trainer.precision):
        return f"The precision, {trainer.precision}, is the likely cause: train in 32 bits."
    if not trainer.gradient_clip_val:
        return "That gradients are not clipped is the likely cause: `gradient_clip_val=1.0` is usual."
    return "A lower learning rate, or counts without cells of extreme depth, may help."


def as_signalled(error: BaseException) -> BaseException:
    """What a training that was ended by a signal should raise: Lightning leaves by exits that tell nobody why.

    Parameters
    ----------
    error
        What Lightning raised.

    Returns
    -------
    ``KeyboardInterrupt`` for Ctrl-C, ``SystemExit`` with the code of the signal for a request to end, else the error itself.

    Examples
    --------
    >>> as_signalled(SIGTERMException()).code
    143
    """
    if isinstance(error, SIGTERMException):
        return SystemExit(128 + signal.SIGTERM)
    if isinstance(error, SystemExit) and isinstance(error.__context__, KeyboardInterrupt):
        return KeyboardInterrupt()
    return error


class BestAverage(WeightAveraging):
    """Exponential moving average of the weights after each optimiser step; the best one by validation stays.

    The average forgets its first steps quickly (decay ``(1 + n) / (10 + n)`` until ``decay`` is reached), so that
    short trainings are averaged as well. Where Lightning validates before the first step, the weights that training
    starts from take part. What is best so far, or else the weights before training, is at hand at any time, should training
    be interrupted.

    Parameters
    ----------
    decay
        Decay once warmed up.
    monitor
        Validation metric that says which average is best; without validation it is the last one.
    """

    def __init__(self, decay: float = 0.999, monitor: str = "validation_loss"):
        super().__init__(use_buffers=False, multi_avg_fn=self._move)
        self.decay = decay
        self.monitor = monitor
        self.best_loss = math.inf
        self.best_epoch: int | None = None
        self._best: dict[str, torch.Tensor] | None = None
        self._start: dict[str, torch.Tensor] | None = None

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Remember where training starts from, and follow the weights to their device: the average was made before."""
        self._start = _copy_of(pl_module)
        average = self._average_model.to(pl_module.device)
        average.n_averaged = average.n_averaged.cpu()  # read in every step, for which a GPU would have to stop

    @torch.no_grad()
    def _move(self, averaged: list[torch.Tensor], current: list[torch.Tensor], n_averaged: torch.Tensor) -> None:
        n = self._latest_update_step  # as `n_averaged`, but on the host
        torch._foreach_lerp_(averaged, current, 1 - min(self.decay, (1 + n) / (10 + n)))

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Keep the average if it is the best so far; a loss that is none ends the training."""
        loss = trainer.callback_metrics.get(self.monitor)
        if loss is not None and not math.isfinite(loss):
            raise TrainingDiverged(
                f"Training diverged in epoch {trainer.current_epoch}: the validation loss is {float(loss):.3g}. "
                f"{_likely_cause(getattr(pl_module, 'lr', 0.0), trainer)}"
            )
        if self._average_model is not None and loss is not None and float(loss) < self.best_loss:
            self._keep(None if trainer.sanity_checking else trainer.current_epoch, pl_module)
            self.best_loss = float(loss)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Until there is a validation, the latest is the best."""
        super().on_train_epoch_end(trainer, pl_module)
        if math.isinf(self.best_loss):
            self._keep(trainer.current_epoch, pl_module)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Leave the best average in the model."""
        super().on_train_end(trainer, pl_module)
        if self._best is not None:
            pl_module.load_state_dict(self._best)

    def leave_best(self, pl_module: pl.LightningModule) -> bool:
        """Leave the best average so far in the model, or what it was; whether there was one."""
        kept = self._start if self._best is None else self._best
        if kept is not None:
            pl_module.load_state_dict(kept)
        return self._best is not None

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint has to remember."""
        best = {"best_loss": self.best_loss, "best_epoch": self.best_epoch, "best": self._best}
        return super().state_dict() | (best if self._best is not None else {})

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        super().load_state_dict(state_dict)
        self.best_loss = state_dict.get("best_loss", math.inf)
        self.best_epoch, self._best = state_dict.get("best_epoch"), state_dict.get("best")

    def _keep(self, epoch: int | None, pl_module: pl.LightningModule) -> None:
        assert self._average_model is not None
        look_at_losses(pl_module)
        self._best, self.best_epoch = _copy_of(self._average_model.module), epoch


def _copy_of(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


class CarefulRunner(TrainRunner):
    """Runs a training, and keeps what it has reached if it is interrupted or diverges."""

    def _run_training_core(self) -> None:
        average = next(callback for callback in self.trainer.callbacks if isinstance(callback, BestAverage))
        plan = self.training_plan
        try:
            # No checkpoint is let run anything.
            weights_only = None if self.ckpt_path is None else True
            self.trainer.fit(plan, self.data_splitter, ckpt_path=self.ckpt_path, weights_only=weights_only)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is raised again
            n_epochs = self.trainer.current_epoch
            has_best = average.leave_best(plan)
            self._note(is_trained=has_best or self.model.is_trained_)
            kept = "The model is as it was before."
            if has_best and average.best_epoch is not None:
                kept = f"The weights of epoch {average.best_epoch}, the best so far, are kept: the model is trained."
            if isinstance(error, TrainingDiverged):
                raise TrainingDiverged(f"{error} {kept}") from None
            logger.warning("Training stopped after %d epochs. %s", n_epochs, kept)
            raise as_signalled(error) from None
        self._note(is_trained=True)

    def _note(self, is_trained: bool) -> None:
        """Leave a model that can be used, and knows what it was trained on."""
        self._update_history()
        if is_trained:
            for name in ("train", "test", "validation"):
                short = {"validation": "val"}.get(name, name)
                setattr(self.model, f"{name}_indices", getattr(self.data_splitter, f"{short}_idx", None))
        self.model.module.eval()
        self.model.is_trained_ = is_trained
        self.model.to_device(self.device)
        self.model.trainer = self.trainer


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
