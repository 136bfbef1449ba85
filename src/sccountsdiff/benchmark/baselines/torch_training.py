"""The one training loop of all baselines that are torch networks."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import lightning.pytorch as pl
import numpy as np
import pandas as pd
import torch
from lightning.pytorch.callbacks import EarlyStopping
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler, TensorDataset

from sccountsdiff.benchmark.baselines.base import Baseline
from sccountsdiff.benchmark.baselines.cells import Cells
from sccountsdiff.benchmark.baselines.covariate_codes import CovariateCoder
from sccountsdiff.benchmark.quiet import quiet
from sccountsdiff.seeding import global_seed
from sccountsdiff.training import BestAverage

VALIDATION = "validation_loss"
MAX_GRADIENT_NORM = 1.0
PLAIN = {"enable_model_summary": False, "enable_checkpointing": False, "logger": False, "num_sanity_val_steps": 0}
"""Settings of a Lightning trainer that trains, and does nothing beside it."""


@dataclass(frozen=True)
class Batch:
    """Some cells as tensors.

    Attributes
    ----------
    counts
        (cells, genes), 0 where they are not observed.
    observed
        (cells, genes), boolean.
    categories, continuous
        Covariates, (cells, categorical covariates) of whole numbers and (cells, continuous covariates).
    unseen
        (cells,), boolean: cells with a category that was not seen in training.
    """

    counts: Tensor
    observed: Tensor
    categories: Tensor
    continuous: Tensor
    unseen: Tensor

    def __len__(self) -> int:
        return len(self.counts)


Objective = tuple[list[nn.Parameter], Callable[[Batch], Tensor]]


class Network(nn.Module, ABC):
    """What a torch baseline trains: a network that knows its loss.

    A network of which parts minimise different losses (a generative adversarial one) overrides :meth:`objectives`.
    """

    @abstractmethod
    def loss(self, batch: Batch) -> Tensor:
        """Loss of a batch, a scalar, in training and in validation; random numbers come from torch's global stream."""

    def objectives(self) -> list[Objective]:
        """Parameters and the loss that they minimise; each pair has an optimiser, which makes one step for every batch."""
        return [(list(self.parameters()), self.loss)]


def mlp(*widths: int) -> nn.Sequential:
    """Linear layers of these widths, with rectifiers between them.

    Examples
    --------
    >>> mlp(3, 8, 2)
    Sequential(
      (0): Linear(in_features=3, out_features=8, bias=True)
      (1): ReLU()
      (2): Linear(in_features=8, out_features=2, bias=True)
    )
    """
    layers = [layer for sizes in pairwise(widths) for layer in (nn.Linear(*sizes), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


@dataclass(eq=False)
class TorchBaseline(Baseline):
    """A method that is a torch network: it says which network, and how to impute with it.

    Subclasses write ``_network`` and ``_fill``. Training is by Adam with warm-up and gradient clipping, on whatever device
    Lightning finds. Some training cells are held out; their loss, on the same random numbers in every epoch, says when to
    stop and which weights to keep.

    Parameters
    ----------
    max_epochs
        Epochs at most.
    batch_size
        Cells per step.
    lr
        Learning rate.
    weight_decay
        Decoupled weight decay.
    patience
        Epochs without a better validation loss before training stops; ``None`` trains to the end and keeps the last weights.
    ema_decay
        Decay of the moving average of the weights; ``None`` for no average.
    n_warmup_steps
        Steps over which the learning rate rises.
    validation_share
        Share of the training cells that is held out.
    progress
        Show Lightning's progress bar.
    trainer_kwargs
        Further arguments of :class:`lightning.pytorch.Trainer`, such as the accelerator.
    """

    max_epochs: int = 100
    batch_size: int = 128
    lr: float = 1e-3
    weight_decay: float = 0.0
    patience: int | None = 15
    ema_decay: float | None = None
    n_warmup_steps: int = 100
    validation_share: float = 0.1
    progress: bool = False
    trainer_kwargs: dict[str, object] = field(default_factory=dict)

    @property
    def training_key(self) -> str | None:
        """As of all methods; one with another network is never the same."""
        key = super().training_key
        return None if key is None else f"{type(self)._network.__qualname__} {key}"

    @abstractmethod
    def _network(self, cells: Cells) -> Network:
        """An untrained network for these training cells; statistics of the cells that it needs become its buffers."""

    @abstractmethod
    def _fill(self, batch: Batch, sites: Tensor, generator: torch.Generator) -> Tensor:
        """Predict or draw the counts of a batch, (cells, genes), without gradients; what is not at ``sites`` is ignored."""

    def _n_epochs(self, n_cells: int) -> int:
        """Epochs at most, for this many training cells."""
        return self.max_epochs

    def _fit(self, cells: Cells, seed: int) -> None:
        with global_seed(seed):
            self.network = self.untrained(cells)
            self._train(cells, seed)

    def untrained(self, cells: Cells) -> Network:
        """The network for these training cells as training starts from it."""
        self.coder = CovariateCoder.fit(cells.covariates)
        return self._network(cells)

    def _train(self, cells: Cells, seed: int) -> None:
        """Fit the network; the best or the last weights stay in it."""
        order = np.random.default_rng(seed).permutation(len(cells))
        n_validation = 0 if self.patience is None else int(self.validation_share * len(cells))
        held_out, used = np.sort(order[:n_validation]), np.sort(order[n_validation:])
        callbacks: list[pl.Callback] = []
        if n_validation:
            callbacks.append(EarlyStopping(VALIDATION, patience=self.patience))
        if n_validation or self.ema_decay is not None:  # without decay the average is the weights as they are
            callbacks.append(BestAverage(decay=self.ema_decay or 0.0, monitor=VALIDATION))
        settings = {
            "max_epochs": self._n_epochs(len(cells)),
            "devices": 1,  # several would start further processes, each with the script of the user
            "callbacks": callbacks,
            "enable_progress_bar": self.progress,
            "limit_val_batches": None if n_validation else 0,
            **PLAIN,
            **self.trainer_kwargs,
        }
        loop = _Loop(self, seed)
        with quiet():
            trainer = pl.Trainer(**settings)
            trainer.fit(loop, self._loader(cells[used], True), self._loader(cells[held_out], False))
        self.history = pd.DataFrame(loop.history).rename_axis("epoch")
        self.network.to(trainer.strategy.root_device).eval()  # Lightning leaves it on the CPU

    def _impute(self, cells: Cells, sites: np.ndarray, n_samples: int, seed: int) -> np.ndarray:
        with torch.inference_mode():
            draws = [np.concatenate(list(self._one_answer(cells, sites, [seed, draw]))) for draw in range(n_samples)]
        return np.stack(draws) if n_samples > 1 else draws[0]

    def _one_answer(self, cells: Cells, sites: np.ndarray, entropy: list[int]) -> Iterator[np.ndarray]:
        """Blocks of filled-in cells, in order; the draws of a block depend on its number and ``entropy`` only."""
        device = next(self.network.parameters()).device
        batches = zip(self._loader(cells, False), torch.as_tensor(sites).split(self.batch_size), strict=True)
        for number, (values, sites_of_batch) in enumerate(batches):
            batch = Batch(*(value.to(device) for value in values))
            state = np.random.SeedSequence([*entropy, number]).generate_state(1, np.uint64)[0]
            generator = torch.Generator(device).manual_seed(int(state))
            yield self._fill(batch, sites_of_batch.to(device), generator).float().cpu().numpy()

    def _loader(self, cells: Cells, shuffle: bool) -> DataLoader:
        """Batches that are taken from the tensors by index, much faster than collating cells one by one."""
        counts = cells.counts.astype(np.float32, copy=False)
        tensors = [torch.as_tensor(counts), torch.as_tensor(cells.observed)]
        data = TensorDataset(*tensors, *self.coder(cells.covariates))
        order = RandomSampler(data) if shuffle else SequentialSampler(data)
        # A last batch of one cell would be nothing to normalise over.
        drop_last = shuffle and len(data) % self.batch_size == 1 and len(data) > 1
        return DataLoader(data, sampler=BatchSampler(order, self.batch_size, drop_last), batch_size=None)


class _Loop(pl.LightningModule):
    """Adam for each objective in turn, and a validation loss on the same random numbers in every epoch."""

    def __init__(self, method: TorchBaseline, seed: int):
        super().__init__()
        self.automatic_optimization = False
        self.method, self.network, self.seed = method, method.network, seed
        self.history: list[dict[str, float]] = []

    def training_step(self, values: list[Tensor], batch_idx: int) -> None:
        """One step for each objective."""
        batch, optimizers = Batch(*values), self.optimizers()
        optimizers = optimizers if isinstance(optimizers, list) else [optimizers]
        for optimizer, (_, objective) in zip(optimizers, self.network.objectives(), strict=True):
            self.toggle_optimizer(optimizer)
            loss = objective(batch)
            if not torch.isfinite(loss):
                raise RuntimeError(f"The training loss is {float(loss)}; a lower learning rate may help.")
            optimizer.zero_grad()
            self.manual_backward(loss)
            self.clip_gradients(optimizer, gradient_clip_val=MAX_GRADIENT_NORM, gradient_clip_algorithm="norm")
            warmth = min(1.0, (self.global_step // len(optimizers) + 1) / max(self.method.n_warmup_steps, 1))
            for group in optimizer.param_groups:
                group["lr"] = self.method.lr * warmth
            optimizer.step()
            self.untoggle_optimizer(optimizer)
        self.log("train_loss", loss, on_step=False, on_epoch=True, prog_bar=True, batch_size=len(batch))

    def validation_step(self, values: list[Tensor], batch_idx: int) -> None:
        """Loss of the network, in evaluation mode."""
        batch = Batch(*values)
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices):
            torch.manual_seed(self.seed * 1000 + batch_idx)
            loss = self.network.loss(batch)
        self.log(VALIDATION, loss, on_step=False, on_epoch=True, prog_bar=True, batch_size=len(batch))

    def on_train_epoch_end(self) -> None:
        """Keep the losses of the epoch."""
        losses = {key: float(value) for key, value in self.trainer.callback_metrics.items()}
        self.history.append({key: value for key, value in losses.items() if math.isfinite(value)})

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        """One Adam for each objective."""
        settings = {"lr": self.method.lr, "weight_decay": self.method.weight_decay}
        return [torch.optim.AdamW(parameters, **settings) for parameters, _ in self.network.objectives()]
