"""A training step and a validation step of the network, and its optimiser."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from scvi import REGISTRY_KEYS

from sccountsdiff.module import CountsDiffModule
from sccountsdiff.seeding import seed_process
from sccountsdiff.training.divergence import LossWatch, WatchedTraining
from sccountsdiff.training.schedule import VALIDATION_DRAWS, default_lr, warm_up_and_decay


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
        if compile_kwargs and not compile:
            raise ValueError(f"compile_kwargs={compile_kwargs} are of no use without compile=True.")
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
            seed_process(torch.initial_seed(), self.global_rank)

    def on_fit_end(self) -> None:
        """Let go of what was compiled, which cannot be pickled."""
        self._compiled = None

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
