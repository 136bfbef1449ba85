"""The model class: set-up, construction, training, saving."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd
import scipy.sparse as sp
from anndata import AnnData
from lightning.pytorch.callbacks import Callback
from mudata import MuData
from scvi import REGISTRY_KEYS, settings
from scvi.data import AnnDataManager, fields
from scvi.model.base import BaseModelClass, UnsupervisedTrainingMixin

from sccountsdiff._compat import field_state, is_mudata_setup, setup_args
from sccountsdiff.data.loading import CellSource, make_source, match_genes
from sccountsdiff.data.reading import as_matrix
from sccountsdiff.data.splitting import split_cells
from sccountsdiff.data.statistics import expressed_genes, gene_means
from sccountsdiff.data.validation import (
    check_counts,
    check_covariates,
    check_mask,
    check_observed,
    find_count_layers,
    get_matrix,
)
from sccountsdiff.diffusion import Schedule
from sccountsdiff.model.expect import ExpectMixin
from sccountsdiff.model.generate import GenerateMixin
from sccountsdiff.model.impute import ImputeMixin
from sccountsdiff.module import OBSERVED_KEY, CountsDiffModule
from sccountsdiff.nn import Backbone
from sccountsdiff.training import BestAverage, CountsDiffTrainingPlan, default_max_epochs

logger = logging.getLogger("sccountsdiff")


class CountsDiffImputer(ImputeMixin, ExpectMixin, GenerateMixin, UnsupervisedTrainingMixin, BaseModelClass):
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
        ``"nb"`` (default), ``"poisson"`` or ``"softplus"`` (the paper's).
    observed_training
        Train with a random share of each cell shown as it is, so that imputation can show observed counts as they
        are. ``False`` is the paper's training; imputation then needs ``known="noised"``.
    p_uncond
        Share of training cells whose covariates are dropped, for guidance.
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
    """

    _training_plan_cls = CountsDiffTrainingPlan
    _module_cls = CountsDiffModule

    def __init__(
        self,
        adata: AnnData | MuData | None = None,
        registry: dict | None = None,
        backbone: str | type[Backbone] = "mlp",
        schedule: str | Schedule = "cosine",
        head: Literal["nb", "poisson", "softplus"] = "nb",
        observed_training: bool = True,
        p_uncond: float = 0.2,
        n_hidden: int | None = None,
        n_layers: int | None = None,
        dropout_rate: float | None = None,
        **backbone_kwargs,
    ):
        if not 0 <= p_uncond < 1:
            raise ValueError(f"`p_uncond` must be at least 0 and below 1, not {p_uncond}.")
        if adata is not None and self._get_most_recent_anndata_manager(adata) is None:
            if isinstance(adata, MuData):
                raise ValueError("Set up the MuData with `CountsDiffImputer.setup_mudata` first.")
            layer = "counts" if "counts" in adata.layers else None
            logger.info("Setting up with %s.", "adata.X" if layer is None else "adata.layers['counts']")
            self.setup_anndata(adata, layer=layer)
        super().__init__(adata, registry)

        n_genes = len(self.gene_names)
        n_categories = [len(known) for known in self.categories.values()]
        zeros_missing = setup_args(self.registry_)["zeros"] == "missing"
        label_position = list(self.categories).index(setup_args(self.registry_)["labels_key"]) if zeros_missing else 0
        # Loading fills these in from the saved state.
        means = np.ones(n_genes)
        location, scale = np.zeros(len(self.continuous_keys)), np.ones(len(self.continuous_keys))
        expressed = np.zeros((n_categories[label_position], n_genes), dtype=bool) if zeros_missing else None
        if adata is not None:
            source = self._source()
            labels = source.categories[:, label_position] if zeros_missing else None
            if zeros_missing:
                expressed = expressed_genes(source.counts, labels, n_categories[label_position], source.mask)
            means = gene_means(source.counts, source.mask, labels, expressed)
            if self.continuous_keys:
                location, scale = source.continuous.mean(0), source.continuous.std(0).clip(1e-8)
        options = {"n_hidden": n_hidden, "n_layers": n_layers, "dropout_rate": dropout_rate}
        self.module = self._module_cls(
            means,
            backbone=backbone,
            schedule=schedule,
            head=head,
            n_categories=n_categories,
            continuous_location=location,
            continuous_scale=scale,
            expressed=expressed,
            label_position=label_position,
            observed_training=observed_training,
            p_uncond=p_uncond,
            backbone_kwargs={k: v for k, v in options.items() if v is not None} | backbone_kwargs,
        )
        name = backbone if isinstance(backbone, str) else backbone.__name__
        self._model_summary_string = (
            f"CountsDiffImputer with {n_genes} genes, backbone: {name}, head: {head}, schedule: {schedule}, "
            f"covariates: {', '.join([*self.categories, *self.continuous_keys]) or 'none'}"
        )
        self.init_params_ = self._get_init_params(locals())

    # What the model was set up with ---------------------------------------------------------------------------------

    @property
    def gene_names(self) -> np.ndarray:
        """Names of the model's genes."""
        return np.asarray(field_state(self.registry_, REGISTRY_KEYS.X_KEY)["column_names"])

    @property
    def categories(self) -> dict[str, np.ndarray]:
        """Categorical covariates and their categories."""
        return dict(field_state(self.registry_, REGISTRY_KEYS.CAT_COVS_KEY).get("mappings", {}))

    @property
    def continuous_keys(self) -> list[str]:
        """Continuous covariates."""
        return list(field_state(self.registry_, REGISTRY_KEYS.CONT_COVS_KEY).get("columns", []))

    def _counts_of(self, adata: AnnData | MuData | None) -> AnnData:
        """The AnnData that holds the counts."""
        adata = self.adata if adata is None else adata
        if adata is None:
            raise ValueError("The model was loaded without data: pass `adata`.")
        if is_mudata_setup(self.registry_):
            if not isinstance(adata, MuData):
                raise TypeError(f"The model was set up with MuData, but `adata` is {type(adata).__name__}.")
            return adata.mod[setup_args(self.registry_)["modalities"]["layer"]]
        if not isinstance(adata, AnnData):
            raise TypeError(f"`adata` must be an AnnData, not {type(adata).__name__}.")
        return adata

    def _source(self, adata: AnnData | MuData | None = None, unseen_to_null: bool = False) -> CellSource:
        """Cells of the model's data, or of new data checked against it."""
        args = setup_args(self.registry_)
        adata = self.adata if adata is None else adata
        modalities = args.get("modalities") or {}
        return make_source(
            self._counts_of(adata),
            self.gene_names,
            layer=args["layer"],
            mask_layer=args["mask_layer"],
            categories=self.categories,
            continuous_keys=self.continuous_keys,
            categorical_obs=_obs_of(adata, modalities.get("categorical_covariate_keys")),
            continuous_obs=_obs_of(adata, modalities.get("continuous_covariate_keys")),
            unseen_to_null=unseen_to_null,
        )

    # Training -------------------------------------------------------------------------------------------------------

    def train(
        self,
        max_epochs: int | None = None,
        *,
        accelerator: str = "auto",
        devices: int | list[int] | str = "auto",
        train_size: float = 0.9,
        validation_size: float | None = None,
        batch_size: int = 128,
        early_stopping: bool = True,
        early_stopping_patience: int | None = None,
        ema_decay: float = 0.999,
        gradient_clip_val: float = 1.0,
        plan_kwargs: dict | None = None,
        callbacks: Sequence[Callback] = (),
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
            Shares of cells to train on and to validate on (default: all others).
        batch_size
            Cells in a minibatch.
        early_stopping
            Stop when the validation loss, on fixed times and noise, has not improved.
        early_stopping_patience
            Epochs without improvement to wait for. Default: a tenth of ``max_epochs``, at least 5.
        ema_decay
            Decay of the moving average of the weights.
        gradient_clip_val
            Norm at which gradients are clipped.
        plan_kwargs
            Settings of ``sccountsdiff.training.CountsDiffTrainingPlan``, such as ``lr``.
        callbacks
            Further Lightning callbacks.
        **trainer_kwargs
            Passed to :class:`scvi.train.Trainer`.

        Examples
        --------
        >>> model.train(max_epochs=1, enable_progress_bar=False)
        >>> sorted(model.history)
        ['train_loss', 'validation_loss']
        """
        if self.adata is None:
            raise ValueError("The model was loaded without data: training needs `adata`.")
        if accelerator == "mps":
            raise ValueError("PyTorch cannot draw binomials on Apple GPUs (mps): use accelerator='cpu'.")
        if max_epochs is not None and max_epochs < 1:
            raise ValueError(f"`max_epochs` must be at least 1, not {max_epochs}.")
        if batch_size < 1:
            raise ValueError(f"`batch_size` must be at least 1, not {batch_size}.")
        split = split_cells(self.adata.n_obs, train_size, validation_size, settings.seed or 0)
        can_validate = len(split[1]) > 0
        max_epochs = max_epochs or default_max_epochs(len(split[0]), batch_size)
        if can_validate:
            trainer_kwargs.setdefault("check_val_every_n_epoch", 1)
        trainer_kwargs.setdefault("log_every_n_steps", 1)  # epochs of small data have few steps
        self.module.train()  # loading and earlier training leave it in evaluation mode, and Lightning keeps that
        super().train(
            max_epochs=max_epochs,
            accelerator=accelerator,
            devices=devices,
            batch_size=batch_size,
            early_stopping=early_stopping and can_validate,
            early_stopping_monitor="validation_loss",
            early_stopping_patience=early_stopping_patience or max(5, max_epochs // 10),
            # The same cells on every process, whether or not a seed was set.
            datasplitter_kwargs={"external_indexing": split},
            gradient_clip_val=gradient_clip_val,
            plan_kwargs=plan_kwargs,
            callbacks=[BestAverage(ema_decay), *callbacks],
            **trainer_kwargs,
        )

    # Set-up ---------------------------------------------------------------------------------------------------------

    @classmethod
    def setup_anndata(
        cls,
        adata: AnnData,
        layer: str | None = None,
        batch_key: str | None = None,
        labels_key: str | None = None,
        categorical_covariate_keys: Sequence[str] | None = None,
        continuous_covariate_keys: Sequence[str] | None = None,
        mask_layer: str | None = None,
        zeros: Literal["observed", "missing"] = "observed",
        **kwargs,
    ) -> None:
        """Say where the counts and the covariates are; every entry of the counts is checked.

        Parameters
        ----------
        adata
            AnnData with raw counts, in memory or backed.
        layer
            Layer with the counts; ``None``: ``X``. NaN means missing.
        batch_key, labels_key, categorical_covariate_keys
            Columns of ``obs`` to condition on.
        continuous_covariate_keys
            Numeric columns of ``obs`` to condition on.
        mask_layer
            Boolean layer, True = observed.
        zeros
            ``"observed"``: a zero is a count. ``"missing"``: zeros of genes that the cell's type (``labels_key``)
            expresses are missing, as in the paper.
        **kwargs
            For ``load``.

        Examples
        --------
        >>> import sccountsdiff
        >>> cells = sccountsdiff.datasets.pbmc68k()
        >>> sccountsdiff.CountsDiffImputer.setup_anndata(cells, categorical_covariate_keys=["cell_type"])
        """
        setup_method_args = cls._get_setup_method_args(**locals())
        categorical = _merge_keys(batch_key, labels_key, categorical_covariate_keys)
        continuous = _merge_keys(continuous_covariate_keys)
        _check_setup(adata, adata.obs, adata.obs, layer, categorical, continuous, mask_layer, zeros, labels_key, kwargs)
        anndata_fields = [
            fields.LayerField(REGISTRY_KEYS.X_KEY, layer, is_count_data=False, correct_data_format=False),
            fields.CategoricalJointObsField(REGISTRY_KEYS.CAT_COVS_KEY, categorical),
            fields.NumericalJointObsField(REGISTRY_KEYS.CONT_COVS_KEY, continuous),
        ]
        if mask_layer is not None:
            anndata_fields.append(
                fields.LayerField(OBSERVED_KEY, mask_layer, is_count_data=False, correct_data_format=False)
            )
        cls._register(anndata_fields, setup_method_args, adata, kwargs)

    @classmethod
    def setup_mudata(
        cls,
        mdata: MuData,
        layer: str | None = None,
        batch_key: str | None = None,
        labels_key: str | None = None,
        categorical_covariate_keys: Sequence[str] | None = None,
        continuous_covariate_keys: Sequence[str] | None = None,
        mask_layer: str | None = None,
        zeros: Literal["observed", "missing"] = "observed",
        modalities: dict[str, str] | None = None,
        **kwargs,
    ) -> None:
        """Say which modality holds the counts; otherwise as :meth:`setup_anndata`.

        Parameters
        ----------
        mdata
            MuData with raw counts in one modality.
        layer, batch_key, labels_key, categorical_covariate_keys, continuous_covariate_keys, mask_layer, zeros
            As in :meth:`setup_anndata`.
        modalities
            Modality for ``"layer"`` (required; also that of the mask) and, if they are not in ``mdata.obs``, for
            ``"categorical_covariate_keys"`` (with batch and labels) and ``"continuous_covariate_keys"``.
        **kwargs
            For ``load``.

        Examples
        --------
        >>> import mudata, sccountsdiff
        >>> mdata = mudata.MuData({"rna": sccountsdiff.datasets.pbmc68k()})
        >>> sccountsdiff.CountsDiffImputer.setup_mudata(mdata, modalities={"layer": "rna"})
        """
        modalities = dict(modalities or {})
        setup_method_args = cls._get_setup_method_args(**locals())
        known = ("layer", "categorical_covariate_keys", "continuous_covariate_keys")
        if not set(modalities) <= set(known):
            raise ValueError(
                f"`modalities` may name {', '.join(known)}, not {', '.join(set(modalities) - set(known))}."
            )
        for argument, modality in {"layer": None, **modalities}.items():
            if modality not in mdata.mod:
                raise KeyError(f"modalities[{argument!r}] must be one of {', '.join(mdata.mod)}, not {modality!r}.")
        cat_mod, cont_mod = (modalities.get(key) for key in known[1:])
        categorical = _merge_keys(batch_key, labels_key, categorical_covariate_keys)
        continuous = _merge_keys(continuous_covariate_keys)
        cells = mdata.mod[modalities["layer"]]
        if cells.n_obs != mdata.n_obs or not cells.obs_names.equals(mdata.obs_names):
            raise ValueError(
                f"Modality {modalities['layer']!r} does not have the cells of the MuData, in its order: call "
                "mudata.pp.intersect_obs(mdata) (from muon) or subset it first."
            )
        _check_setup(
            cells,
            _obs_of(mdata, cat_mod),
            _obs_of(mdata, cont_mod),
            layer,
            categorical,
            continuous,
            mask_layer,
            zeros,
            labels_key,
            kwargs,
        )
        layer_kwargs = {
            "mod_key": modalities["layer"],
            "mod_required": True,
            "is_count_data": False,
            "correct_data_format": False,
        }
        mudata_fields = [
            fields.MuDataLayerField(REGISTRY_KEYS.X_KEY, layer, **layer_kwargs),
            fields.MuDataCategoricalJointObsField(REGISTRY_KEYS.CAT_COVS_KEY, categorical, mod_key=cat_mod),
            fields.MuDataNumericalJointObsField(REGISTRY_KEYS.CONT_COVS_KEY, continuous, mod_key=cont_mod),
        ]
        if mask_layer is not None:
            mudata_fields.append(fields.MuDataLayerField(OBSERVED_KEY, mask_layer, **layer_kwargs))
        cls._register(mudata_fields, setup_method_args, mdata, kwargs)

    @classmethod
    def _register(cls, data_fields: list, setup_method_args: dict, data: AnnData | MuData, kwargs: dict) -> None:
        manager = AnnDataManager(fields=data_fields, setup_method_args=setup_method_args)
        manager.register_fields(data, **kwargs)
        cls.register_manager(manager)


def _merge_keys(*keys: str | Sequence[str] | None) -> list[str]:
    """All covariate keys, each once, in the order given."""
    merged = []
    for key in keys:
        merged += [key] if isinstance(key, str) else list(key or [])
    return list(dict.fromkeys(merged))


def _obs_of(data: AnnData | MuData, modality: str | None) -> pd.DataFrame:
    return data.obs if modality is None else data.mod[modality].obs


def _check_setup(
    adata: AnnData,
    categorical_obs: pd.DataFrame,
    continuous_obs: pd.DataFrame,
    layer: str | None,
    categorical: list[str],
    continuous: list[str],
    mask_layer: str | None,
    zeros: str,
    labels_key: str | None,
    load_kwargs: dict,
) -> None:
    """Refuse what cannot be trained on, before anything is registered."""
    if zeros not in ("observed", "missing"):
        raise ValueError(f"`zeros` must be 'observed' or 'missing', not {zeros!r}.")
    if zeros == "missing" and labels_key is None:
        raise ValueError("`zeros='missing'` needs `labels_key`: which zeros are missing depends on the cell's type.")
    check_covariates(categorical_obs, categorical, [])
    check_covariates(continuous_obs, [], continuous)
    name = "adata.X" if layer is None else f"adata.layers[{layer!r}]"
    counts = as_matrix(get_matrix(adata, layer), name)
    names = {"obs_names": adata.obs_names, "var_names": adata.var_names}
    check_counts(counts, name=name, layers_hint=lambda: find_count_layers(adata), **names)
    mask = None
    if mask_layer is not None:
        mask_name = f"adata.layers[{mask_layer!r}]"
        mask = as_matrix(get_matrix(adata, mask_layer), mask_name)
        check_mask(mask, adata.shape, name=mask_name)
    check_observed(counts, mask, name=name, **names)
    if not adata.var_names.is_unique:
        raise ValueError("adata.var_names are not unique: call adata.var_names_make_unique() first.")
    source_registry = load_kwargs.get("source_registry")
    if source_registry is not None:
        genes = field_state(source_registry, REGISTRY_KEYS.X_KEY)["column_names"]
        if not np.array_equal(match_genes(adata.var_names, genes), np.arange(adata.n_vars)):
            raise ValueError(
                "adata has other genes than the model, or in another order. Load with adata=False and pass the data to "
                "`impute`, or pass adata[:, model_genes]."
            )
    # Rows of a matrix stored by columns are dear to read, over and over again in training.
    if sp.issparse(counts) and counts.format == "csc":
        logger.info("Converting %s to CSR.", name)
        if layer is None:
            adata.X = counts.tocsr()
        else:
            adata.layers[layer] = counts.tocsr()
