"""The model class: construction and training."""

from __future__ import annotations

import hashlib
import inspect
import logging
import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from lightning.pytorch import Trainer as LightningTrainer
from lightning.pytorch.callbacks import Callback, EarlyStopping
from lightning.pytorch.strategies import DDPStrategy
from mudata import MuData
from scvi import REGISTRY_KEYS, settings
from scvi.dataloaders import AnnDataLoader, DataSplitter
from scvi.train import Trainer
from torch.utils.data import DataLoader

from sccountsdiff.checkpoints import KEY, Checkpoints, as_tables, check_settings, read_checkpoint
from sccountsdiff.checks import check_keywords, check_number, check_share, keywords_of, whole_number
from sccountsdiff.compat import setup_args
from sccountsdiff.data.covariates import continuous_values, encode, location_and_scale, seen_covariates
from sccountsdiff.data.modalities import MODALITY_COLUMN
from sccountsdiff.data.source import CellTables, CountMatrix, make_source
from sccountsdiff.data.splitting import split_train_validation
from sccountsdiff.diffusion import Schedule
from sccountsdiff.files import check_can_write
from sccountsdiff.model.base import check_data
from sccountsdiff.model.denoise import DenoiseMixin
from sccountsdiff.model.generate import GenerateMixin
from sccountsdiff.model.impute import ImputeMixin
from sccountsdiff.model.latent import LatentMixin
from sccountsdiff.model.predict import PredictMixin
from sccountsdiff.model.query import QueryMixin
from sccountsdiff.model.saving import refuse_mps, refuse_other_types
from sccountsdiff.model.setup import SetupMixin
from sccountsdiff.model.sharing import SharingMixin
from sccountsdiff.module import CountsDiffModule
from sccountsdiff.nn import Backbone, Head, get_backbone
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

N_FACTORS = 20
"""Default number of factors."""

MAX_FITTED_ENTRIES = 10_000_000
"""Entries, cells times genes, that depths and factors are fitted to."""

_FIXED_IN_TRAINING = {
    "shuffle_set_split": "cells are always split at random, by `scvi.settings.seed`",
    "datamodule": "it trains on the data that the model was made with",
    "early_stopping_monitor": "early stopping watches the validation loss",
    "early_stopping_mode": "early stopping watches the validation loss",
}


class CountsDiffImputer(
    SetupMixin, QueryMixin, ImputeMixin, DenoiseMixin, PredictMixin, GenerateMixin, LatentMixin, SharingMixin
):
    """CountsDiff: a diffusion model on the natural numbers that imputes, denoises and generates counts.

    Parameters
    ----------
    adata
        Data set up with :meth:`setup_anndata` or :meth:`setup_mudata`. An AnnData that was not set up is set up with
        ``layer="counts"`` if there is one, else with ``X``.
    registry
        Takes the place of ``adata`` when a model is loaded without data.
    backbone
        ``"mlp"`` (default), ``"transformer"`` (the paper's) or a :class:`~sccountsdiff.nn.Backbone` of your own.
    schedule
        ``"cosine"`` (default), ``"fisher"``, ``"blackout"`` or a :class:`~sccountsdiff.diffusion.Schedule`.
    head
        ``"nb"``, ``"gamma_mixture"``, ``"truncated_nb"``, ``"truncated_mixture"``, ``"poisson"``, ``"softplus"`` (the
        paper's) or a :class:`~sccountsdiff.nn.Head` of your own. Default: ``"nb"``, or ``"truncated_mixture"`` for data
        set up with ``zeros="missing"``, of which a negative binomial would expect the zeros that are not there.
    observed_training
        Train with a random share of each cell shown as it is, so that imputation can show observed counts as they
        are. ``False`` is the paper's training; imputation then shows them thinned (RePaint).
    p_uncond
        Share of training cells whose covariates are dropped, for guidance.
    n_factors
        Number of factors of a linear model of the genes, fitted when the model is made, whose posterior given the
        observed entries is an input of the network; 0 leaves it out. Default: 20, or as many as there are genes; 0 with
        ``observed_training=False``.
    gene_groups
        Column of ``var`` with the group of each gene, such as its modality, or the group of each gene itself. Each group
        has a depth of its own, and training hides whole groups at times, so that one that a cell lacks can be imputed.
        Default: the modality, if several were set up, or ``"feature_types"`` if there is such a column.
    n_hidden, n_layers, dropout_rate
        Of the backbone; ``None`` leaves its own default.
    **backbone_kwargs
        Further settings of the backbone.

    Examples
    --------
    >>> import sccountsdiff
    >>> adata = sccountsdiff.datasets.pbmc68k()[:100, :50].copy()
    >>> model = sccountsdiff.CountsDiffImputer(adata)
    >>> model.train(max_epochs=1, enable_progress_bar=False)
    >>> imputed = model.impute(n_samples=2, silent=True)

    Saved and loaded as any model of scvi-tools:

    >>> model.save("my_model", overwrite=True)
    >>> again = sccountsdiff.CountsDiffImputer.load("my_model", adata=adata)
    >>> again.is_trained
    True
    """

    _training_plan_cls = CountsDiffTrainingPlan
    _module_cls = CountsDiffModule
    _train_runner_cls = CarefulRunner

    def __init__(
        self,
        adata: AnnData | MuData | None = None,
        registry: dict | None = None,
        backbone: str | type[Backbone] = "mlp",
        schedule: str | Schedule = "cosine",
        head: str | type[Head] | Head | None = None,
        observed_training: bool = True,
        p_uncond: float = 0.2,
        n_factors: int | None = None,
        gene_groups: str | Sequence[str] | None = None,
        n_hidden: int | None = None,
        n_layers: int | None = None,
        dropout_rate: float | None = None,
        **backbone_kwargs,
    ):
        check_number("p_uncond", p_uncond)
        if not 0 <= p_uncond < 1:
            raise ValueError(f"`p_uncond` must be at least 0 and below 1, not {p_uncond}.")
        options = {"n_hidden": n_hidden, "n_layers": n_layers, "dropout_rate": dropout_rate}
        options = {name: value for name, value in options.items() if value is not None} | backbone_kwargs
        self._check_options(get_backbone(backbone), options)
        refuse_other_types(adata)
        if adata is not None and not self._is_set_up(adata):
            if isinstance(adata, MuData):
                raise ValueError("Set up the MuData with `CountsDiffImputer.setup_mudata` first.")
            layer = "counts" if "counts" in adata.layers else None
            logger.info("Setting up with %s.", "adata.X" if layer is None else "adata.layers['counts']")
            self.setup_anndata(adata, layer=layer)
        super().__init__(adata, registry)

        n_genes = len(self.gene_names)
        n_categories = [len(known) for known in self.categories.values()]
        zeros_missing = setup_args(self.registry_)["zeros"] == "missing"
        law = ("truncated_mixture" if zeros_missing else "nb") if head is None else head
        label_position = list(self.categories).index(setup_args(self.registry_)["labels_key"]) if zeros_missing else 0
        # Loading fills these in from the saved state.
        means, largest = np.ones(n_genes), np.ones(n_genes)
        location, scale = np.zeros(len(self.continuous_keys)), np.ones(len(self.continuous_keys))
        self.fills_in_ = "missing" if zeros_missing or setup_args(self.registry_)["mask_layer"] is not None else "zeros"
        expressed = np.zeros((n_categories[label_position], n_genes), dtype=bool) if zeros_missing else None
        if adata is not None:
            self._check_unchanged()
            cells = self._cells(None)
            matrix = self._open_counts(cells)
            summary = self._summary(matrix) or check_data(matrix, cells, setup_args(self.registry_)).summary
            means, largest = summary.gene_means(zeros_missing), summary.largest
            # What `impute` fills in by default is settled here, once, and saved with the model.
            self.fills_in_ = "missing" if summary.has_missing else self.fills_in_
            gene_groups = _groups_of_genes(cells, gene_groups)  # noted, as a model without data has no columns
            if zeros_missing:
                expressed = summary.expressed(list(self.categories.values())[label_position])
            values = continuous_values(cells.continuous_obs, self.continuous_keys)
            location, scale = location_and_scale(values)
            # Saved with the model, by the underscore at the end.
            self.seen_covariates_ = seen_covariates(encode(cells.categorical_obs, self.categories), values)
        self.module = self._module_cls(
            means,
            backbone=backbone,
            schedule=schedule,
            head=law,
            n_categories=n_categories,
            continuous_location=location,
            continuous_scale=scale,
            gene_max=largest,
            expressed=expressed,
            label_position=label_position,
            observed_training=observed_training,
            p_uncond=p_uncond,
            n_factors=_number_of_factors(n_factors, n_genes, observed_training),
            gene_groups=None if gene_groups is None else pd.factorize(np.asarray(gene_groups))[0],
            backbone_kwargs=options,
        )
        denoiser = self.module.denoiser
        if adata is not None and (
            denoiser.factors is not None or denoiser.group_depth is not None or summary.has_missing
        ):
            self._fit_to_some_cells(cells, matrix, at_random=not zeros_missing)
        self._model_summary_string = (
            f"CountsDiffImputer with {n_genes} genes, backbone: {_name(backbone)}, head: {_name(law)}, "
            f"schedule: {schedule}, "
            f"covariates: {', '.join([*self.categories, *self.continuous_keys]) or 'none'}"
        )
        self.init_params_ = self._get_init_params(locals())

    def _check_options(self, network: type[Backbone], options: Mapping[str, object]) -> None:
        """Refuse arguments of the set-up, and those that the backbone does not take."""
        allowed = keywords_of(network)
        for name in inspect.signature(self.setup_mudata).parameters:
            if name in options and name not in (allowed or ()):
                method = "setup_mudata(mdata" if name == "modalities" else "setup_anndata(adata"
                raise TypeError(
                    f"`{name}` is an argument of the set-up: call `CountsDiffImputer.{method}, {name}=...)` first, and "
                    "make the model without it."
                )
        if allowed is not None:
            settings_of_its_own = [name for name in allowed if name not in ("n_genes", "n_outputs")]
            check_keywords(f"The backbone {network.__name__}", options, settings_of_its_own)

    def _is_set_up(self, adata: AnnData | MuData) -> bool:
        try:
            return self._get_most_recent_anndata_manager(adata) is not None
        except ValueError:
            # The data bears the mark of a set-up, but that was of another object.
            method = "setup_mudata" if isinstance(adata, MuData) else "setup_anndata"
            raise ValueError(
                f"`adata` is a copy of data that was set up, or was copied and the copy set up since. Call "
                f"`CountsDiffImputer.{method}(adata, ...)` again, with the same arguments."
            ) from None

    def _fit_to_some_cells(self, cells: CellTables, matrix: CountMatrix, at_random: bool) -> None:
        """Fit what is not trained to some of the cells."""
        source = make_source(
            cells, matrix, self.gene_names, categories=self.categories, continuous_keys=self.continuous_keys
        )
        some = self.module.read(source.read(self._some_of(np.arange(source.n_cells)))[1])
        self.module.denoiser.fit(some["x0"], some["missing"], at_random)

    def _some_of(self, rows: np.ndarray) -> np.ndarray:
        """As many of the rows, spread over all of them, as make a matrix of moderate size."""
        n = min(len(rows), max(MAX_FITTED_ENTRIES // len(self.gene_names), 1000))
        return rows[np.unique(np.linspace(0, len(rows) - 1, n).astype(int))]

    # Training -------------------------------------------------------------------------------------------------------

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
            Epochs without improvement to wait for, at least 1. Default: a tenth of ``max_epochs``, at least 5.
        ema_decay
            Decay of the moving average of the weights, from 0 to 1.
        gradient_clip_val
            Norm at which gradients are clipped.
        datasplitter_kwargs
            How minibatches are loaded: arguments of :class:`scvi.dataloaders.AnnDataLoader`, such as ``num_workers``,
            ``persistent_workers`` and ``pin_memory``.
        plan_kwargs
            Settings of ``sccountsdiff.training.CountsDiffTrainingPlan``, such as ``lr``.
        callbacks
            Further Lightning callbacks.
        checkpoint
            Folder to which training writes, every now and then, where it is. The same call with the same folder goes on
            from there, after whatever stopped it, and ends with the same weights as if nothing had: on a CPU, bit for bit.
        **trainer_kwargs
            Passed to :class:`scvi.train.Trainer`, such as ``precision="bf16-mixed"``, or ``strategy="ddp"`` to train on
            several ``devices``.

        Notes
        -----
        A training that is interrupted, by Ctrl-C or by a signal that asks to end, leaves the best weights so far in the
        model, which then is trained, and raises ``KeyboardInterrupt`` or ``SystemExit`` (143). One whose loss is no number any
        more, or explodes, raises ``sccountsdiff.training.TrainingDiverged`` and leaves the best weights too. Without a
        single epoch the model is as it was.

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
        if max_epochs is not None:
            max_epochs = whole_number("max_epochs", max_epochs)
        batch_size = whole_number("batch_size", batch_size)
        if early_stopping_patience == 0:
            raise ValueError(
                "`early_stopping_patience` must be at least 1, not 0; `early_stopping=False` turns early stopping off."
            )
        if early_stopping_patience is not None:
            early_stopping_patience = whole_number("early_stopping_patience", early_stopping_patience)
        check_share("ema_decay", ema_decay)
        train_size = 0.9 if train_size is None else train_size
        split = split_train_validation(self.adata.n_obs, train_size, validation_size, settings.seed or 0)
        self._check_unchanged()
        self._source()  # the whole data may have been normalised in place since the model was made
        can_validate = len(split[1]) > 0
        max_epochs = max_epochs or default_max_epochs(len(split[0]), batch_size)
        if can_validate:
            every = epochs_between_validations(len(split[0]), len(split[1]), batch_size, max_epochs)
            trainer_kwargs.setdefault("check_val_every_n_epoch", every)
        patience = early_stopping_patience or max(5, max_epochs // 10)
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
        # Weights of an earlier training are validated first: they stay if none of this one's are better.
        trainer_kwargs.setdefault("num_sanity_val_steps", -1 if self.is_trained and can_validate else 0)
        # To scvi-tools, a trained model has a history, to which it adds; one that was given its weights has none yet.
        if self.history_ is None:
            self.is_trained_ = False
        if self.module.denoiser.group_depth is not None:
            self.module.denoiser.group_depth.log_dispersion.zero_()  # of an earlier training, after which it was set
        if checkpoint is not None:
            asked = {"max_epochs": max_epochs, "batch_size": batch_size, "ema_decay": ema_decay, "patience": patience}
            asked |= {"early_stopping": early_stopping, "gradient_clip_val": gradient_clip_val, **(plan_kwargs or {})}
            path = Path(checkpoint, "last.ckpt")
            of_training = self._training_settings(asked | trainer_kwargs, split)
            saved = self._find_checkpoint(path, of_training)
            if saved is not None and saved[KEY]["is_finished"]:
                return self._take_over(saved, split)
            callbacks.append(Checkpoints(path, of_training))
            trainer_kwargs["ckpt_path"] = None if saved is None else path
        self.module.train()  # loading and earlier training leave it in evaluation mode, and Lightning keeps that
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
                    **(datasplitter_kwargs or {}),
                    "external_indexing": split,
                    "data_and_attributes": self._dtypes(),
                },
                gradient_clip_val=gradient_clip_val,
                plan_kwargs=plan_kwargs,
                callbacks=callbacks,
                **trainer_kwargs,
            )
        # Processes that were spawned keep to themselves which cells they trained on.
        self.train_indices, self.validation_indices, self.test_indices = split
        if can_validate and self.module.group_members is not None:
            self.module.eval()
            self.module.calibrate(**self.module.read(self._source().read(self._some_of(split[1]))[1]))

    def _find_checkpoint(self, path: Path, settings: dict[str, str]) -> dict | None:
        """The checkpoint to go on from, if there is one; an error if it is of another training."""
        path.parent.mkdir(parents=True, exist_ok=True)
        # Weights, their average, the best one, and two moments of the gradients.
        check_can_write(path, 5 * sum(value.nbytes for value in self.module.state_dict().values()))
        saved = read_checkpoint(path)
        if saved is not None:
            if KEY not in saved:
                raise ValueError(f"{path} is a checkpoint, but not of such a training: choose another folder.")
            check_settings(path, saved[KEY]["settings"], settings)
            logger.info("Going on from %s, after %d steps.", path, saved["global_step"])
        return saved

    def _training_settings(self, asked: Mapping[str, object], split: Sequence[np.ndarray]) -> dict[str, str]:
        """What decides how training goes, but for random numbers."""
        made = self.init_params_["non_kwargs"] | self.init_params_["kwargs"]
        counts = self._open_counts(self._cells(None))
        data = [*counts.fingerprint(), *(rows.tobytes() for rows in split), "\0".join(self.gene_names).encode()]
        digest = hashlib.sha256(b"\0".join(data)).hexdigest()[:16]
        return {name: repr(value) for name, value in {**made, **asked}.items()} | {"data": digest}

    def _take_over(self, saved: dict, split: Sequence[np.ndarray]) -> None:
        """Be as a training has left the model that has finished, but not been saved."""
        (best,) = (state["best"] for name, state in saved["callbacks"].items() if name.startswith(BestAverage.__name__))
        self._training_plan_cls(self.module).load_state_dict(best)
        self.module.eval()
        self.history_ = as_tables(saved[KEY]["history"])
        self.is_trained_ = True
        self.train_indices, self.validation_indices, self.test_indices = split

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
        takers = (self.train, super().train, Trainer, LightningTrainer)
        allowed = {name for taker in takers for name in inspect.signature(taker).parameters}
        check_keywords("train(), like scvi.train.Trainer,", trainer_kwargs, sorted(allowed), what=None)

    def _dtypes(self) -> dict[str, type]:
        """Types in which minibatches are read: as scvi-tools does, but continuous covariates in double precision."""
        dtypes = {REGISTRY_KEYS.CAT_COVS_KEY: np.int64, REGISTRY_KEYS.CONT_COVS_KEY: np.float64}
        return {key: dtypes.get(key, np.float32) for key in self.adata_manager.data_registry}

    # Devices --------------------------------------------------------------------------------------------------------

    def to_device(self, device: str | int | torch.device) -> None:
        """Move the model to another device.

        Parameters
        ----------
        device
            ``"cpu"``, ``"cuda:0"``, the number of a GPU, or a :class:`torch.device`.

        Examples
        --------
        >>> model.to_device("cpu")
        """
        refuse_mps(torch.device(device).type)
        super().to_device(device)


def _name(part: object) -> str:
    """Of a part of the model that was given by name, as a class or as an object."""
    return part if isinstance(part, str) else getattr(part, "__name__", type(part).__name__)


def _refuse_other_types(adata: object) -> None:
    if not isinstance(adata, AnnData | MuData | None):
        raise TypeError(f"`adata` must be an AnnData or a MuData, not {type(adata).__name__}.")


def _groups_of_genes(cells: CellTables, groups: str | Sequence[str] | None) -> list[str] | None:
    """The group of each gene; ``None`` if there are no groups."""
    var = cells.adata.var
    if isinstance(groups, str) and groups not in var:
        raise KeyError(f"gene_groups: {groups!r} is not a column of adata.var; found {list(var.columns)}.")
    if groups is None:
        groups = MODALITY_COLUMN if MODALITY_COLUMN in var else None
    if isinstance(groups, str):
        groups = var[groups].astype(str).tolist()
    if groups is not None and len(groups) != len(var):
        raise ValueError(f"`gene_groups` must have a group for each of the {len(var)} genes, not {len(groups)}.")
    if cells.joined is not None and list(groups or []) != var[MODALITY_COLUMN].tolist():
        raise ValueError("`gene_groups` cannot be other than the modalities, of which several were set up.")
    return None if groups is None else list(groups)


def _number_of_factors(n_factors: int | None, n_genes: int, observed_training: bool) -> int:
    if n_factors is None:
        return min(N_FACTORS, n_genes) if observed_training else 0
    return whole_number("n_factors", n_factors, least=0)


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
