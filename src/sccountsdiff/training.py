"""How the network is trained: optimiser, learning rate, weight averaging, validation that can be compared."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.pytorch.callbacks import WeightAveraging

from sccountsdiff.module import CountsDiffModule

VALIDATION_DRAWS = 1000
"""Noised states that a small validation set is repeated to: the loss of a few cells is mostly noise."""


class CountsDiffTrainingPlan(pl.LightningModule):
    """AdamW with linear warm-up and cosine decay; validation on fixed times, masks and noise.

    Parameters
    ----------
    module
        What is trained.
    lr
        Highest learning rate. Default: that of ``default_lr`` for the number of genes.
    weight_decay
        Decoupled weight decay.
    n_warmup_steps
        Optimiser steps over which the learning rate rises; at most a tenth of all steps.
    lr_final
        Share of ``lr`` that is left at the end.
    validation_seed
        Seed of the noise of the validation loss.
    """

    def __init__(
        self,
        module: CountsDiffModule,
        lr: float | None = None,
        weight_decay: float = 1e-2,
        n_warmup_steps: int = 100,
        lr_final: float = 0.01,
        validation_seed: int = 0,
    ):
        super().__init__()
        self.module = module
        self.lr = default_lr(module.n_genes) if lr is None else lr
        self.weight_decay = weight_decay
        self.n_warmup_steps = n_warmup_steps
        self.lr_final = lr_final
        self.validation_seed = validation_seed
        self.n_obs_training: int | None = None  # set by the runner
        self.n_obs_validation: int | None = None

    def on_fit_start(self) -> None:
        """Give each of several processes times and noise of its own: they start from the same seed."""
        if self.trainer.world_size > 1:
            keys = torch.initial_seed(), self.global_rank
            torch.manual_seed(int(np.random.SeedSequence(keys).generate_state(1, np.uint64)[0]))

    def training_step(self, batch, batch_idx: int) -> torch.Tensor:
        """Loss of one minibatch."""
        _, _, output = self.module(batch)
        self._log("train_loss", output)
        return output.loss

    def validation_step(self, batch, batch_idx: int) -> None:
        """Loss of one minibatch with the same draws in every epoch."""
        number = batch_idx * self.trainer.world_size + self.global_rank
        generator = torch.Generator(self.device).manual_seed(self.validation_seed + number)
        for _ in range(math.ceil(VALIDATION_DRAWS / max(self.n_obs_validation or 1, VALIDATION_DRAWS // 8))):
            _, _, output = self.module(batch, inference_kwargs={"generator": generator})
            self._log("validation_loss", output)

    def _log(self, name: str, output) -> None:
        self.log(
            name,
            output.loss,
            on_step=False,
            on_epoch=True,
            prog_bar=True,
            batch_size=output.n_obs_minibatch,
            sync_dist=self.trainer.world_size > 1,
        )

    def configure_optimizers(self):
        """AdamW and its schedule, in steps."""
        # scvi-tools' default eps of 0.01 would swamp the small gradients of rare genes.
        optimizer = torch.optim.AdamW(
            self.module.parameters(),
            lr=self.lr,
            weight_decay=self.weight_decay,
            betas=(0.9, 0.99),
            eps=1e-8,
            # With mixed precision, Lightning clips no gradients that a fused optimiser would unscale itself.
            fused="mixed" not in self.trainer.precision,
        )
        n_steps = max(1, int(self.trainer.estimated_stepping_batches))
        return warm_up_and_decay(optimizer, n_steps, min(self.n_warmup_steps, n_steps // 10), self.lr_final)


class BestAverage(WeightAveraging):
    """Exponential moving average of the weights after each optimiser step; the best one by validation stays.

    The average forgets its first steps quickly (decay ``(1 + n) / (10 + n)`` until ``decay`` is reached), so that
    short trainings are averaged as well. Where Lightning validates before the first step, the weights that training
    starts from take part.

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
        self._best: dict[str, torch.Tensor] | None = None

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Follow the weights to their device: the average was made before they were moved there."""
        average = self._average_model.to(pl_module.device)
        average.n_averaged = average.n_averaged.cpu()  # read in every step, for which a GPU would have to stop

    @torch.no_grad()
    def _move(self, averaged: list[torch.Tensor], current: list[torch.Tensor], n_averaged: torch.Tensor) -> None:
        n = self._latest_update_step  # as `n_averaged`, but on the host
        torch._foreach_lerp_(averaged, current, 1 - min(self.decay, (1 + n) / (10 + n)))

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Keep the average if it is the best so far."""
        loss = trainer.callback_metrics.get(self.monitor)
        if self._average_model is not None and loss is not None and float(loss) < self.best_loss:
            self.best_loss = float(loss)
            state = self._average_model.module.state_dict()
            self._best = {name: value.detach().clone() for name, value in state.items()}

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Leave the best average in the model."""
        super().on_train_end(trainer, pl_module)
        if self._best is not None:
            pl_module.load_state_dict(self._best)


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
