"""The methods that are timed: what each does for each task."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scvi
import torch
from anndata import AnnData
from lightning.pytorch.callbacks import Callback

from sccountsdiff import CountsDiffImputer
from sccountsdiff.benchmark.baselines import get_baseline


@dataclass
class Subject:
    """A method under the clock: what it does for each task, and for how many cells.

    Attributes
    ----------
    name
        Its name.
    n_cells
        Cells that it is given.
    work
        What to do for each of the tasks that it has.
    batch_cells
        Cells of a training step.

    Examples
    --------
    >>> Subject("nothing", n_cells=8, work={"one_draw": lambda: None}).n_cells
    8
    """

    name: str
    n_cells: int
    work: dict[str, Callable[[], Any]]
    batch_cells: int = 0


class _Clock(Callback):
    """When validation was best, in seconds of CPU time after the start of training."""

    def __init__(self, monitor: str):
        self.monitor, self.best, self.seconds = monitor, float("inf"), 0.0

    def on_train_start(self, *args: Any) -> None:
        self.start = time.process_time()

    def on_validation_end(self, trainer: Any, *args: Any) -> None:
        loss = trainer.callback_metrics.get(self.monitor)
        if loss is not None and float(loss) < self.best and hasattr(self, "start"):
            self.best, self.seconds = float(loss), time.process_time() - self.start


def _training(make: Callable[[], Any], monitor: str, batch_size: int, max_epochs: int | None) -> Callable[[], float]:
    def train() -> float:
        clock = _Clock(monitor)
        options = {"enable_progress_bar": False, "early_stopping": True, "accelerator": "cpu"}
        make().train(max_epochs, batch_size=batch_size, train_size=0.9, callbacks=[clock], **options)
        return clock.seconds

    return train


def _step(module: torch.nn.Module, batch: dict, optimizer: torch.optim.Optimizer, **kwargs: Any) -> Callable[[], None]:
    def step() -> None:
        module.train()
        optimizer.zero_grad()
        module(batch, **kwargs)[2].loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        module.eval()

    return step


def _batch(adata: AnnData, batch_size: int) -> dict[str, torch.Tensor]:
    n = min(batch_size, adata.n_obs)
    return {"X": torch.from_numpy(adata.X[:n].toarray())}


def _countsdiff(
    adata: AnnData,
    batch_size: int,
    max_epochs: int | None,
    name: str = "countsdiff",
    as_paper: bool = False,
    **kwargs: Any,
) -> Subject:
    CountsDiffImputer.setup_anndata(adata)
    model = CountsDiffImputer(adata, **kwargs)
    model.is_trained_ = True  # the time does not depend on the weights
    optimizer = torch.optim.AdamW(model.module.parameters(), fused=True)
    half = np.random.default_rng(0).random(adata.shape) < 0.5
    options = {"batch_size": batch_size, "silent": True}
    sampling = {"n_steps": 19, "n_resamples": 3} if as_paper else {}  # the paper's, whose mean is that of five draws

    def draw(n_samples: int) -> None:
        model.impute(sites=half, n_samples=n_samples, seed=0, key_added=None, **sampling, **options)

    work: dict[str, Callable] = {
        "training_step": _step(model.module, _batch(adata, batch_size), optimizer),
        "one_pass_mean": lambda: draw(5 if as_paper else 0),
        "default_mean": lambda: model.get_normalized_expression(return_numpy=True, **options),
        "one_draw": lambda: draw(1),
        "five_draws": lambda: draw(5),
        "training": _training(lambda: CountsDiffImputer(adata, **kwargs), "validation_loss", batch_size, max_epochs),
    }
    if as_paper:
        work = {task: work[task] for task in ("training_step", "one_pass_mean", "one_draw")}
    return Subject(name, adata.n_obs, work, min(batch_size, adata.n_obs))


def _transformer(adata: AnnData, batch_size: int, max_epochs: int | None) -> Subject:
    settings = {"backbone": "transformer", "head": "softplus", "observed_training": False}
    return _countsdiff(adata, min(batch_size, 4), max_epochs, "transformer", as_paper=True, **settings)


def _scvi(adata: AnnData, batch_size: int, max_epochs: int | None) -> Subject:
    scvi.model.SCVI.setup_anndata(adata)
    model = scvi.model.SCVI(adata)
    model.is_trained_ = True
    model.module.eval()  # as training leaves it
    optimizer = torch.optim.Adam(model.module.parameters(), lr=1e-3, eps=0.01, weight_decay=1e-6)
    batch = next(iter(model._make_data_loader(adata=model.adata, batch_size=batch_size)))
    options = {"batch_size": batch_size}

    def mean() -> None:
        model.get_normalized_expression(return_numpy=True, silent=True, **options)

    work = {
        "training_step": _step(model.module, batch, optimizer, loss_kwargs={"kl_weight": 1.0}),
        "one_pass_mean": mean,
        "default_mean": mean,
        "one_draw": lambda: model.posterior_predictive_sample(n_samples=1, silent=True, **options),
        "five_draws": lambda: model.posterior_predictive_sample(n_samples=5, silent=True, **options),
        "training": _training(lambda: scvi.model.SCVI(adata), "elbo_validation", batch_size, max_epochs),
    }
    return Subject("scvi", adata.n_obs, work, min(batch_size, adata.n_obs))


def _baseline(name: str) -> Callable[[AnnData, int, int | None], Subject]:
    def make(adata: AnnData, batch_size: int, max_epochs: int | None) -> Subject:
        half = np.random.default_rng(0).random(adata.shape) < 0.5
        return Subject(
            name, adata.n_obs, {"one_pass_mean": lambda: get_baseline(name)().fit(adata).impute(adata, half)}
        )

    return make


SUBJECTS: dict[str, Callable[[AnnData, int, int | None], Subject]] = {
    "countsdiff": _countsdiff,
    "scvi": _scvi,
    "magic": _baseline("magic"),
    "knn_mean": _baseline("knn_mean"),
    "transformer": _transformer,
}
