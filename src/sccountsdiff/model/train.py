"""Training of the model."""

from __future__ import annotations

import hashlib
import inspect
import logging
import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from lightning.pytorch import Trainer as LightningTrainer
from lightning.pytorch.callbacks import Callback, EarlyStopping
from lightning.pytorch.strategies import DDPStrategy
from scvi import REGISTRY_KEYS, settings
from scvi.dataloaders import AnnDataLoader, DataSplitter
from scvi.train import Trainer
from torch.utils.data import DataLoader

from sccountsdiff.calibration import calibrate, level
from sccountsdiff.checkpoints import KEY, Checkpoints, as_tables, check_settings, read_checkpoint
from sccountsdiff.checks import check_keywords, check_share, keywords_of, whole_number
from sccountsdiff.compat import setup_args
from sccountsdiff.data.reading import compute_here
from sccountsdiff.data.splitting import split_train_validation
from sccountsdiff.files import check_can_write, check_folder
from sccountsdiff.model.base import refuse_mps
from sccountsdiff.model.setup import SetupMixin
from sccountsdiff.progress import progress_callbacks
from sccountsdiff.quiet import quiet
from sccountsdiff.training import (
    BestAverage,
    CarefulRunner,
    CountsDiffTrainingPlan,
    default_max_epochs,
    epochs_between_validations,
)

logger = logging.getLogger("sccountsdiff")

_FIXED_IN_TRAINING = {
    "shuffle_set_split": "cells are always split at random, by `scvi.settings.seed`",
    "datamodule": "it trains on the data that the model was made with",
    "early_stopping_monitor": "early stopping watches the validation loss",
    "early_stopping_mode": "early stopping watches the validation loss",
}


_PRECISIONS = ("32", "32-true", "16-mixed", "16", "bf16-mixed", "bf16")
"""Those in which weights stay as they are; others would change them in place, and the counts do not go with them."""

PATIENCE, PATIENCE_BY_HEART = 0.3, 0.1
"""Share of all epochs to wait for an improvement, and the same for laws that are learnt by heart (:attr:`Head.is_calibrated`).

The validation loss is noisy where cells are few: with a tenth, trainings were ended long before they were done, now and then. For
laws that are learnt by heart a longer wait was not found to help.
"""

_OF_A_TRAINING = ("is_trained_", "history_", "started_from_", "train_indices", "validation_indices", "test_indices")
"""What a model keeps of its training, beside the weights."""


class TrainMixin(SetupMixin):
    """Training, by the trainer of scvi-tools."""

    _training_plan_cls = CountsDiffTrainingPlan
    _train_runner_cls = CarefulRunner

    def train(
        self,
        max_epochs: int | None = None,
        *,
        accelerator: str = "auto",
        devices: int | list[int] | str = "auto",
        train_size: float | None = 0.9,
        validation_size: float | None = None,
        batch_size: int = 128,
        early_stopping: bool = True,
        early_stopping_patience: int | None = None,
        ema_decay: float = 0.999,
        gradient_clip_val: float = 1.0,
        datasplitter_kwargs: dict | None = None,
        plan_kwargs: dict | None = None,
        callbacks: Sequence[Callback] = (),
        checkpoint: str | Path | None = None,
        **trainer_kwargs,
    ) -> None:
        """Train the model; the weights that stay are the moving average with the best validation loss.

        Parameters
        ----------
        max_epochs
            Passes over the training cells. Default: about 2,000 optimiser steps for a thousand cells, growing with
            the square root of the number of cells; early stopping ends most trainings before.
        accelerator, devices
            Passed to Lightning; by default a GPU is used where there is one.
        train_size, validation_size
            Shares of cells to train on (``None``: 0.9, as in scvi-tools) and to validate on (default: all others).
        batch_size
            Cells in a minibatch.
        early_stopping
            Stop when the validation loss, on fixed times and noise, has not improved.
        early_stopping_patience
            Epochs without improvement to wait for, at least 1. Default: three tenths of ``max_epochs``, a tenth with
            ``zeros="missing"``, at least 5.
        ema_decay
            Decay of the moving average of the weights, from 0 to 1.
        gradient_clip_val
            Norm at which gradients are clipped.
        datasplitter_kwargs
            How minibatches are loaded: arguments of :class:`scvi.dataloaders.AnnDataLoader`, such as ``num_workers``,
            ``persistent_workers`` and ``pin_memory``.
        plan_kwargs
            Settings of the optimiser: the highest learning rate ``lr`` (by default 0.001, less for more than a thousand genes),
            ``weight_decay`` (0.01), the ``n_warmup_steps`` over which the learning rate rises (100) and the share of it that is
            left at the end, ``lr_final`` (0.01). ``compile=True``, with ``compile_kwargs`` for :func:`torch.compile`, is for
            GPUs.
        callbacks
            Further Lightning callbacks.
        checkpoint
            Folder to which training writes, every now and then, where it is. The same call with the same folder goes on
            from there, after whatever stopped it, and ends with the same weights as if nothing had: on a CPU, with as many
            threads, bit for bit. The history begins where this training did.
        **trainer_kwargs
            Passed to :class:`scvi.train.Trainer`, such as ``precision="bf16-mixed"``, or ``strategy="ddp"`` to train on
            several ``devices``.

        Notes
        -----
        A training that is interrupted, by Ctrl-C or by a signal that asks to end, leaves the best weights so far in the
        model, which then is trained, and raises ``KeyboardInterrupt`` or ``SystemExit`` (143). One whose loss is no number any
        more, or explodes, raises ``sccountsdiff.training.TrainingDiverged``, a ``RuntimeError``, and leaves the best weights
        too. Without a single epoch the model is as it was.

        Examples
        --------
        >>> model.train(max_epochs=1, enable_progress_bar=False)
        >>> sorted(model.history)
        ['train_loss', 'validation_loss']
        """
        if self.adata is None:
            raise ValueError("The model was loaded without data: training needs `adata`.")
        refuse_mps(accelerator)
        self._check_training_kwargs(trainer_kwargs, plan_kwargs)
        _check_loading(datasplitter_kwargs or {})
        if trainer_kwargs.get("strategy", "auto") == "auto" and _are_several(
            devices, trainer_kwargs.get("num_nodes", 1)
        ):
            trainer_kwargs["strategy"] = "ddp"  # Lightning's own choice, which scvi-tools has to know of
        max_epochs = None if max_epochs is None else whole_number("max_epochs", max_epochs)
        batch_size = whole_number("batch_size", batch_size)
        check_share("ema_decay", ema_decay)
        patience = _check_patience(early_stopping_patience)
        train_size = 0.9 if train_size is None else train_size
        split = split_train_validation(self.adata.n_obs, train_size, validation_size, settings.seed or 0)
        self._check_unchanged()
        self._source(takes_layer=False)  # the whole data may have been normalised in place since the model was made

        can_validate = len(split[1]) > 0
        max_epochs = max_epochs or default_max_epochs(len(split[0]), batch_size)
        if can_validate:
            every = epochs_between_validations(len(split[0]), len(split[1]), batch_size, max_epochs)
            trainer_kwargs.setdefault("check_val_every_n_epoch", every)
        waits = PATIENCE_BY_HEART if self.module.denoiser.head.is_calibrated else PATIENCE
        patience = patience or max(5, round(waits * max_epochs))
        patience = math.ceil(patience / (trainer_kwargs.get("check_val_every_n_epoch") or 1))  # in validations
        early_stopping = early_stopping and can_validate
        callbacks = [BestAverage(ema_decay), *progress_callbacks(trainer_kwargs), *callbacks]
        if early_stopping and _is_distributed(trainer_kwargs.get("strategy")):
            # scvi-tools turns early stopping off, and warns of it: here all processes see the same validation loss.
            min_delta = trainer_kwargs.get("early_stopping_min_delta", 0.0)
            callbacks.append(EarlyStopping("validation_loss", min_delta, patience))
            early_stopping = False
            warnings.filterwarnings("ignore", "early_stopping was automatically disabled")
        trainer_kwargs.setdefault("log_every_n_steps", 1)  # epochs of small data have few steps
        before = {name: getattr(self, name, None) for name in _OF_A_TRAINING}
        before["history_"] = None if self.history_ is None else dict(self.history_)  # which scvi-tools adds to in place
        corrections = [measured.clone() for measured in self.module.denoiser.corrections]
        goes_on, self._has_learnt = False, False
        if checkpoint is None:
            self.started_from_ = None
        else:
            asked = {"max_epochs": max_epochs, "batch_size": batch_size, "ema_decay": ema_decay, "patience": patience}
            asked |= {"early_stopping": early_stopping, "gradient_clip_val": gradient_clip_val, **(plan_kwargs or {})}
            path = Path(checkpoint, "last.ckpt")
            saved = self._find_checkpoint(path)
            of_training = self._training_settings(asked | trainer_kwargs, split) | self._start(saved)
            if saved is not None:
                old = saved[KEY]["settings"]
                # A setting that is no longer asked for is another one, too.
                check_settings(path, old, dict.fromkeys(old) | of_training)
                logger.info("Going on from %s, after %d steps.", path, saved["global_step"])
                if saved[KEY]["is_finished"]:
                    return self._take_over(saved, split)
            callbacks.append(Checkpoints(path, of_training))
            goes_on = saved is not None
            trainer_kwargs["ckpt_path"] = path if goes_on else None
        # Weights of an earlier training are validated first: they stay if none of this one's are better.
        validates_first = self.is_trained and can_validate and not goes_on
        trainer_kwargs.setdefault("num_sanity_val_steps", -1 if validates_first else 0)
        # To scvi-tools, a trained model has a history, to which it adds. One that was given its weights has none yet, and that
        # of a checkpoint begins where this training did.
        if self.history_ is None or goes_on:
            self.history_, self.is_trained_ = None, False
        if not self.module.is_frozen:
            self.module.denoiser.forget_corrections()
        self.module.train()  # loading and earlier training leave it in evaluation mode, and Lightning keeps that
        try:
            with quiet():
                super().train(
                    max_epochs=max_epochs,
                    accelerator=accelerator,
                    devices=devices,
                    batch_size=batch_size,
                    early_stopping=early_stopping,
                    early_stopping_monitor="validation_loss",
                    early_stopping_patience=patience,
                    # The same cells on every process, whether or not a seed was set.
                    datasplitter_kwargs={
                        "worker_init_fn": compute_here,
                        **(datasplitter_kwargs or {}),
                        "external_indexing": split,
                        "data_and_attributes": self._dtypes(),
                    },
                    gradient_clip_val=gradient_clip_val,
                    plan_kwargs=plan_kwargs,
                    callbacks=callbacks,
                    **trainer_kwargs,
                )
        finally:
            if self._has_learnt:  # perhaps not for as long as was asked for
                self._finish(split)
            else:  # not for a single epoch: it is what it was
                self._put_back(before, corrections)

    @torch.no_grad()
    def _put_back(self, before: Mapping[str, object], corrections: Sequence[torch.Tensor]) -> None:
        """Be trained, or not, as before."""
        for name, value in before.items():
            setattr(self, name, value)
        for measured, value in zip(self.module.denoiser.corrections, corrections, strict=True):
            measured.copy_(value)
        self.module.eval()

    def _find_checkpoint(self, path: Path) -> dict | None:
        """The checkpoint to go on from, if there is one."""
        check_folder(path.parent)
        path.parent.mkdir(parents=True, exist_ok=True)
        # Weights, their average, the best one, and two moments of the gradients.
        check_can_write(path, 5 * sum(value.nbytes for value in self.module.state_dict().values()))
        saved = read_checkpoint(path)
        if saved is not None and KEY not in saved:
            raise ValueError(f"{path} is a checkpoint, but not of such a training: choose another folder.")
        return saved

    def _training_settings(self, asked: Mapping[str, object], split: Sequence[np.ndarray]) -> dict[str, str]:
        """What decides how training goes, but for random numbers."""
        made = self.init_params_["non_kwargs"] | self.init_params_["kwargs"]
        source = self._source()
        data = [*source.matrix.fingerprint, *(rows.tobytes() for rows in split), "\0".join(self.gene_names).encode()]
        data += [source.categories.tobytes(), source.continuous.tobytes(), repr(setup_args(self.registry_)).encode()]
        data.append(repr(self.categories).encode())
        digest = hashlib.sha256(b"\0".join(data)).hexdigest()[:16]
        return {name: repr(value) for name, value in {**made, **asked}.items()} | {"data": digest}

    def _start(self, saved: dict | None) -> dict[str, str]:
        """The weights that a training starts from, or has started from if this model goes on with it."""
        name = "weights at the start"
        # A model that was stopped in this training has other weights by now; one that comes from an earlier training starts here.
        goes_on = saved is not None and saved[KEY]["settings"].get(name) == self.started_from_
        if not goes_on:
            self.started_from_ = self._digests()["weights"][:16] if self.is_trained else "random"
        return {name: str(self.started_from_)}

    def _take_over(self, saved: dict, split: Sequence[np.ndarray]) -> None:
        """Be as a training has left the model that has finished, but not been saved."""
        (best,) = (state["best"] for name, state in saved["callbacks"].items() if name.startswith(BestAverage.__name__))
        self._training_plan_cls(self.module).load_state_dict(best)
        self.module.eval()
        self.history_ = as_tables(saved[KEY]["history"])
        self.is_trained_ = True
        self._finish(split)

    def _finish(self, split: Sequence[np.ndarray]) -> None:
        """Note which cells were trained on, which processes that were spawned keep to themselves, and calibrate."""
        self.train_indices, self.validation_indices, self.test_indices = split
        self.module.eval()
        if self.module.is_frozen:  # what it says of cells that the reference knows is to stay
            return
        # Levels are small numbers, of which validation cells alone say little; dispersions are large where cells were learnt by heart.
        for rows, correct in ((np.concatenate(split[:2]), level), (split[1], calibrate)):
            if len(rows) > 0:
                correct(self.module, **self.module.read(self._source().read(self._some_of(np.sort(rows)))[1]))

    def _check_training_kwargs(self, trainer_kwargs: Mapping[str, object], plan_kwargs: object) -> None:
        """Refuse what neither the training plan nor the trainer takes."""
        of_plan = keywords_of(self._training_plan_cls)
        if of_plan is not None and isinstance(plan_kwargs, Mapping):
            check_keywords("`plan_kwargs`", plan_kwargs, [name for name in of_plan if name != "module"])
        for name in trainer_kwargs:
            if name in _FIXED_IN_TRAINING:
                raise TypeError(f"`train` takes no `{name}`: {_FIXED_IN_TRAINING[name]}.")
            setting = "lr" if name == "learning_rate" else name
            if setting in (of_plan or ()):
                raise TypeError(f"`train` takes no `{name}`: pass `plan_kwargs={{{setting!r}: ...}}`.")
        if (precision := str(trainer_kwargs.get("precision") or "32")) not in _PRECISIONS:
            raise ValueError(
                f"`precision` must be one of {', '.join(_PRECISIONS)}, not {precision!r}: weights and counts stay in 32 bits."
            )
        takers = (self.train, super().train, Trainer, LightningTrainer)
        allowed = {name for taker in takers for name in inspect.signature(taker).parameters}
        check_keywords("train(), like scvi.train.Trainer,", trainer_kwargs, sorted(allowed), what=None)

    def _dtypes(self) -> dict[str, type]:
        """Types in which minibatches are read: as scvi-tools does, but continuous covariates in double precision."""
        dtypes = {REGISTRY_KEYS.CAT_COVS_KEY: np.int64, REGISTRY_KEYS.CONT_COVS_KEY: np.float64}
        return {key: dtypes.get(key, np.float32) for key in self.adata_manager.data_registry}


def _check_patience(epochs: int | None) -> int | None:
    if epochs == 0:
        raise ValueError(
            "`early_stopping_patience` must be at least 1, not 0; `early_stopping=False` turns early stopping off."
        )
    return None if epochs is None else whole_number("early_stopping_patience", epochs)


def _are_several(devices: object, n_nodes: int) -> bool:
    if n_nodes > 1:
        return True
    if devices in (-1, "-1"):
        return torch.cuda.device_count() > 1
    if isinstance(devices, str) and "," in devices:
        devices = list(filter(None, devices.split(",")))
    if isinstance(devices, str):
        return devices.isdigit() and int(devices) > 1
    return len(devices) > 1 if isinstance(devices, Sequence) else isinstance(devices, int) and devices > 1


def _is_distributed(strategy: object) -> bool:
    return "ddp" in strategy if isinstance(strategy, str) else isinstance(strategy, DDPStrategy)


def _check_loading(options: Mapping[str, object]) -> None:
    """Refuse what no data loader takes, and what other arguments say."""
    elsewhere = {"batch_size": "`batch_size`", "external_indexing": "`train_size` and `validation_size`"}
    for name in elsewhere.keys() & options:
        raise TypeError(f"`datasplitter_kwargs` takes no `{name}`: pass {elsewhere[name]} to `train`.")
    takers = (DataSplitter, AnnDataLoader, DataLoader)
    fixed = {
        "self",
        "adata_manager",
        "dataset",
        "indices",
        "sampler",
        "batch_sampler",
        "shuffle",
        "data_and_attributes",
    }
    fixed |= {"train_size", "validation_size", "shuffle_set_split", "iter_ndarray", "collate_fn", "kwargs", *elsewhere}
    allowed = {name for taker in takers for name in inspect.signature(taker).parameters} - fixed
    check_keywords("`datasplitter_kwargs`", options, sorted(allowed))
