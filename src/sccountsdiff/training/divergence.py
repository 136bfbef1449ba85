"""Trainings whose loss has gone are stopped, with the likely cause."""

from __future__ import annotations

import math
from typing import Any

import lightning.pytorch as pl
import torch

from sccountsdiff.diffusion.host import host_sees

EXPLODED = 1e4
"""A loss so many times above the first one, or above 1, does not come back."""

LOOK_EVERY = 50
"""Steps between two looks at the losses of a GPU: each look waits for it."""


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
        # A copy: where a step is a graph of CUDA, the next one overwrites its loss.
        self._unseen.append((plan.global_step, plan.current_epoch, loss.detach().clone()))
        if host_sees(loss) or len(self._unseen) >= self.every:
            self.look(plan.trainer)

    def look(self, trainer: pl.Trainer) -> None:
        """Stop at the first loss since the last look that is none; to be called before weights are kept."""
        unseen, self._unseen = self._unseen, []
        if not unseen:
            return
        losses = torch.stack([loss for *_, loss in unseen])
        self._first = float(losses[0]) if self._first is None else self._first
        has_diverged = self.has_diverged(float(losses.masked_fill(~losses.isfinite(), math.inf).max()))
        # All processes stop or none: they wait for each other.
        if not trainer.strategy.reduce_boolean_decision(has_diverged, all=False):
            return
        for (step, epoch, _), value in zip(unseen, losses.tolist(), strict=True):
            if self.has_diverged(value):
                raise TrainingDiverged(
                    f"Training diverged in step {step} of epoch {epoch}: the loss is {value:.3g}. "
                    f"{likely_cause(self.lr, trainer)}"
                )
        raise TrainingDiverged(f"Training diverged in another process. {likely_cause(self.lr, trainer)}")

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


def likely_cause(lr: float, trainer: pl.Trainer) -> str:
    """What to change, as far as the settings tell."""
    usual = 1e-3
    if lr > 3 * usual:
        return f"The learning rate of {lr:g} is the likely cause: {usual:g} and less is usual."
    if "16" in str(trainer.precision):
        return f"The precision, {trainer.precision}, is the likely cause: train in 32 bits."
    if not trainer.gradient_clip_val:
        return "That gradients are not clipped is the likely cause: `gradient_clip_val=1.0` is usual."
    return "A lower learning rate, or counts without cells of extreme depth, may help."
