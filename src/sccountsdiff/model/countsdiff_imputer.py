"""The model class, and how a model is made."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from mudata import MuData

from sccountsdiff.checks import check_keywords, check_number, keywords_of, whole_number
from sccountsdiff.compat import setup_args
from sccountsdiff.data.counts import default_layer
from sccountsdiff.data.covariates import continuous_values, encode, location_and_scale, seen_covariates
from sccountsdiff.data.modalities import MODALITY_COLUMN
from sccountsdiff.data.source import CellTables, CountMatrix, make_source
from sccountsdiff.diffusion import Schedule
from sccountsdiff.model.base import check_data, refuse_mps, refuse_other_types
from sccountsdiff.model.denoise import DenoiseMixin
from sccountsdiff.model.generate import GenerateMixin
from sccountsdiff.model.impute import ImputeMixin
from sccountsdiff.model.latent import LatentMixin
from sccountsdiff.model.predict import PredictMixin
from sccountsdiff.model.query import QueryMixin
from sccountsdiff.model.sharing import SharingMixin
from sccountsdiff.model.train import TrainMixin
from sccountsdiff.module import CountsDiffModule
from sccountsdiff.nn import Backbone, Head, get_backbone

logger = logging.getLogger("sccountsdiff")

N_FACTORS = 20
"""Default number of factors."""


class CountsDiffImputer(
    TrainMixin, QueryMixin, ImputeMixin, DenoiseMixin, PredictMixin, GenerateMixin, LatentMixin, SharingMixin
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
        ``"nb_mixture"``, ``"nb"``, ``"gamma_mixture"``, ``"truncated_nb"``, ``"truncated_mixture"``, ``"poisson"``,
        ``"softplus"`` (the paper's) or a :class:`~sccountsdiff.nn.Head` of your own. Default: ``"nb_mixture"``, or
        ``"truncated_mixture"`` for data set up with ``zeros="missing"``, of which a negative binomial would expect the zeros
        that are not there.
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

    _module_cls = CountsDiffModule

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
            layer = default_layer(adata)
            logger.info("Setting up with %s.", "adata.X" if layer is None else "adata.layers['counts']")
            self.setup_anndata(adata, layer=layer)
        super().__init__(adata, registry)

        n_genes = len(self.gene_names)
        n_categories = [len(known) for known in self.categories.values()]
        zeros_missing = setup_args(self.registry_)["zeros"] == "missing"
        if head is None:  # noted by name: a saved model stays what it is, should the default change
            head = "truncated_mixture" if zeros_missing else "nb_mixture"
        label_position = list(self.categories).index(setup_args(self.registry_)["labels_key"]) if zeros_missing else 0
        # Loading fills these in from the saved state.
        means, largest = np.ones(n_genes), np.ones(n_genes)
        location, scale = np.zeros(len(self.continuous_keys)), np.ones(len(self.continuous_keys))
        is_log = np.array([key == self.size_factor_key for key in self.continuous_keys], dtype=bool)
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
            location, scale = location_and_scale(np.where(is_log, np.log(np.where(is_log, values, 1)), values))
            # Saved with the model, by the underscore at the end.
            self.seen_covariates_ = seen_covariates(encode(cells.categorical_obs, self.categories), values)
        self.module = self._module_cls(
            means,
            backbone=backbone,
            schedule=schedule,
            head=head,
            n_categories=n_categories,
            continuous_location=location,
            continuous_scale=scale,
            continuous_is_log=is_log,
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
            f"CountsDiffImputer with {n_genes} genes, backbone: {_name(backbone)}, head: {_name(head)}, "
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
            cells,
            matrix,
            self.gene_names,
            categories=self.categories,
            continuous_keys=self.continuous_keys,
            size_factor_key=self.size_factor_key,
        )
        some = self.module.read(source.read(self._some_of(np.arange(source.n_cells)))[1])
        self.module.denoiser.fit(some["x0"], some["missing"], at_random)

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
