"""The moving average of the weights, of which the best stays."""

from __future__ import annotations

import math
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import WeightAveraging

from sccountsdiff.training.divergence import TrainingDiverged, likely_cause, look_at_losses


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
        super().__init__(use_buffers=False)
        self.decay = decay
        self.monitor = monitor
        self.best_loss = math.inf
        self.best_epoch: int | None = None
        self._best: dict[str, torch.Tensor] | None = None
        self._start: dict[str, torch.Tensor] | None = None

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Remember where training starts from, and follow the weights to their device: the average was made before."""
        assert self._average_model is not None
        self._start = _copy_of(pl_module)
        self._average_model.to(pl_module.device)

    @torch.no_grad()
    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Move the average towards the weights after each optimiser step.

        Not by torch's own function, which reads how many steps there were from the device, and waits for it.
        """
        n = self._latest_update_step
        if trainer.global_step == n:  # gradients are still being added up
            return
        assert self._average_model is not None
        averaged, current = (list(model.parameters()) for model in (self._average_model.module, pl_module))
        torch._foreach_lerp_(averaged, current, 1 - min(self.decay, (1 + n) / (10 + n)) if n > 0 else 1.0)
        self._average_model.n_averaged += 1
        self._latest_update_step = trainer.global_step

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Keep the average if it is the best so far; a loss that is none ends the training."""
        loss = trainer.callback_metrics.get(self.monitor)
        if loss is not None and not math.isfinite(loss):
            raise TrainingDiverged(
                f"Training diverged in epoch {trainer.current_epoch}: the validation loss is {float(loss):.3g}. "
                f"{likely_cause(getattr(pl_module, 'lr', 0.0), trainer)}"
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
