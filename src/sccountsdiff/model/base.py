"""What all methods of the model build on: its genes and covariates, and the cells that they work with."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from weakref import WeakValueDictionary, finalize

import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from mudata import MuData
from scvi import REGISTRY_KEYS
from scvi.data import AnnDataManager
from scvi.model.base import BaseModelClass, UnsupervisedTrainingMixin

from sccountsdiff.compat import field_state, is_mudata_setup, setup_args
from sccountsdiff.data.messages import suggestion
from sccountsdiff.data.modalities import KnownFeatures
from sccountsdiff.data.reading import DaskMatrix
from sccountsdiff.data.source import CellSource, CellTables, CountMatrix, find_cells, make_source, open_counts
from sccountsdiff.data.summary import CountSummary, whole_checksum
from sccountsdiff.model.fields import known_features
from sccountsdiff.module import CountsDiffModule

MAX_FITTED_ENTRIES = 10_000_000
"""Entries, cells times genes, that what is not trained is fitted to."""


class _Kept(dict):
    """What data keeps for itself: no part of what is copied, pickled or written."""

    def __reduce__(self) -> tuple:
        return dict, ()


class CheckedData(NamedTuple):
    """Data that was checked in full, and by what it is recognised if it is met again."""

    summary: CountSummary
    fingerprint: tuple[bytes, ...]


def check_data(matrix: CountMatrix, cells: CellTables, args: dict, may_lack_genes: bool = False) -> CheckedData:
    """Check counts and mask in one pass; ``args`` are those of the set-up."""
    labels = pd.Categorical(cells.categorical_obs[args["labels_key"]]) if args["zeros"] == "missing" else None
    return CheckedData(matrix.summarise(labels, may_lack_genes), matrix.fingerprint)


class CountsDiffBase(UnsupervisedTrainingMixin, BaseModelClass):
    """Access to the data of the model, and to other data of the same kind."""

    module: CountsDiffModule
    is_trained_: bool
    history_: dict | None
    started_from_: str | None = None
    frozen_categories_: list[int] | None = None
    _has_learnt: bool

    # scvi-tools keeps whatever was set up in tables of the class, for ever. Here data keeps what is noted of it, and the
    # tables only know where that is: data that nobody holds any more goes.

    @classmethod
    def register_manager(cls, adata_manager: AnnDataManager) -> None:
        """Note a set-up; called by the set-up.

        Parameters
        ----------
        adata_manager
            What scvi-tools knows of the data.

        Examples
        --------
        >>> model.register_manager(model.adata_manager)
        """
        if not isinstance(cls._setup_adata_manager_store, WeakValueDictionary):
            cls._setup_adata_manager_store = WeakValueDictionary(cls._setup_adata_manager_store)
        super().register_manager(adata_manager)
        kept = vars(adata_manager.adata).setdefault("_sccountsdiff", _Kept())
        kept[cls.__qualname__] = adata_manager

    def _register_manager_for_instance(self, adata_manager: AnnDataManager) -> None:
        if self.id not in self._per_instance_manager_store:
            finalize(self, self._per_instance_manager_store.pop, self.id, None)
        super()._register_manager_for_instance(adata_manager)

    @property
    def gene_names(self) -> np.ndarray:
        """Names of the model's genes.

        Returns
        -------
        The names, in the order of the columns of what the model returns.

        Examples
        --------
        >>> bool((model.gene_names == adata.var_names).all())
        True
        """
        return np.asarray(field_state(self.registry_, REGISTRY_KEYS.X_KEY)["column_names"])

    @property
    def categories(self) -> dict[str, np.ndarray]:
        """Categorical covariates and their categories.

        Returns
        -------
        The categories that the model knows, by covariate; empty for a model without categorical covariates.

        Examples
        --------
        >>> import sccountsdiff
        >>> cells = sccountsdiff.datasets.pbmc68k()[:60, :25].copy()
        >>> sccountsdiff.CountsDiffImputer.setup_anndata(cells, categorical_covariate_keys=["cell_type"])
        >>> "CD19+ B" in sccountsdiff.CountsDiffImputer(cells).categories["cell_type"]
        True
        """
        return dict(field_state(self.registry_, REGISTRY_KEYS.CAT_COVS_KEY).get("mappings", {}))

    @property
    def continuous_keys(self) -> list[str]:
        """Continuous covariates.

        Returns
        -------
        Their columns in ``obs``; empty for a model without continuous covariates.

        Examples
        --------
        >>> model.continuous_keys
        []
        """
        return list(field_state(self.registry_, REGISTRY_KEYS.CONT_COVS_KEY).get("columns", []))

    @property
    def size_factor_key(self) -> str | None:
        """The continuous covariate that is a size factor, of which the model sees the log.

        Returns
        -------
        Its column in ``obs``, or ``None``.

        Examples
        --------
        >>> model.size_factor_key is None
        True
        """
        return setup_args(self.registry_).get("size_factor_key")  # older models have none

    def _gene_positions(self, genes: Sequence[str], argument: str) -> np.ndarray:
        """Where genes stand among those of the model; an error names one that it does not have."""
        if isinstance(genes, str):
            raise ValueError(f"`{argument}` must be a list of genes, not one name: pass [{genes!r}].")
        if not isinstance(genes, Iterable):
            raise TypeError(f"`{argument}` must be a list of genes, not {genes!r}.")
        genes = list(genes)
        place = {name: position for position, name in enumerate(self.gene_names)}
        for gene in genes:
            if gene not in place:
                raise KeyError(f"{argument}: the model has no gene {gene!r}.{suggestion(gene, self.gene_names)}")
        return np.array([place[gene] for gene in genes], dtype=int)

    def _some_of(self, rows: np.ndarray) -> np.ndarray:
        """As many of the rows, spread over all of them, as make a matrix of moderate size."""
        n = min(len(rows), max(MAX_FITTED_ENTRIES // len(self.gene_names), 1000))
        return rows[np.unique(np.linspace(0, len(rows) - 1, n).astype(int))]

    def _freeze(self, n_known: Sequence[int]) -> None:
        """Train nothing but the vectors of categories after the first ``n_known`` of each covariate, from now on and once saved."""
        self.module.requires_grad_(False)
        self.module.denoiser.conditioning.freeze_known(n_known)
        self.frozen_categories_ = list(n_known)

    def _require_trained(self) -> None:
        if not self.is_trained:
            raise RuntimeError("The model is not trained yet: call `model.train()` first.")

    def _cells(self, adata: AnnData | MuData | None, layer: str | None = None) -> CellTables:
        """Where counts and covariates are, of the model's data or of other data of the same kind.

        ``layer`` is what the user named in place of that of the set-up; ``"X"`` is ``X`` unless there is such a layer.
        """
        adata = self.adata if adata is None else adata
        if adata is None:
            raise ValueError("The model was loaded without data: pass `adata`.")
        is_mudata = is_mudata_setup(self.registry_)
        if is_mudata and not isinstance(adata, MuData):
            raise TypeError(f"The model was set up with MuData, but `adata` is {type(adata).__name__}.")
        if not is_mudata and not isinstance(adata, AnnData):
            raise TypeError(f"`adata` must be an AnnData, not {type(adata).__name__}.")
        args = setup_args(self.registry_)
        if layer == "X" and not (isinstance(adata, AnnData) and layer in adata.layers):
            of_counts = None
        else:
            of_counts = args["layer"] if layer is None else layer
        return find_cells(adata, args.get("modalities"), of_counts, args["mask_layer"], self._known_features)

    @property
    def _known_features(self) -> KnownFeatures | None:
        """Features of each modality, if the model was set up with several."""
        return known_features(field_state(self.registry_, REGISTRY_KEYS.X_KEY))

    def _counts_adata(self, adata: AnnData | MuData | None, layer: str | None = None) -> AnnData:
        """The AnnData that holds the counts."""
        return self._cells(adata, layer).adata

    def _is_own(self, adata: AnnData | MuData | None) -> bool:
        """Whether data is that of the model, which was checked when it was set up."""
        return adata is None or adata is self.adata

    def _source(
        self,
        adata: AnnData | MuData | None = None,
        unseen_to_null: bool = False,
        rows: np.ndarray | None = None,
        layer: str | None = None,
        takes_layer: bool = True,
    ) -> CellSource:
        """Cells of the model's data, or of new data, checked; with ``rows``, only these cells are.

        A method that does not take another ``layer`` is not to advise it.
        """
        cells = self._cells(adata, layer)
        matrix = self._open_counts(cells, None if layer is None else "layer", takes_layer)
        if not self._is_own(adata) or self._summary(matrix) is None:
            if not isinstance(matrix.counts, DaskMatrix):  # which is computed once, and checked then
                matrix.check(rows)
        source = make_source(
            cells,
            matrix,
            self.gene_names,
            categories=self.categories,
            continuous_keys=self.continuous_keys,
            size_factor_key=self.size_factor_key,
            unseen_to_null=unseen_to_null,
            rows=rows,
        )
        if unseen_to_null and not self.module.knows_null:
            asked = slice(None) if rows is None else rows
            unseen = source.categories[asked] >= [len(known) for known in self.categories.values()]
            if unseen.any() or np.isnan(source.continuous[asked]).any():
                raise ValueError(
                    "`unseen_to_null=True` treats cells with unseen or unknown covariates as having none, but this model "
                    "was made with `p_uncond=0` and has never seen such cells. Leave these cells out, or train one "
                    "with `p_uncond` above 0."
                )
        return source

    def _digests(self, source: CellSource | None = None) -> dict[str, str]:
        """Short names for weights and data: a result that was begun with others is not gone on with."""
        weights, data = hashlib.sha256(), hashlib.sha256()
        for name, tensor in self.module.state_dict().items():
            weights.update(name.encode() + tensor.detach().cpu().contiguous().numpy().tobytes())
        if source is not None:
            matrices = [matrix for matrix in (source.counts, source.matrix.mask) if matrix is not None]
            known = (source.columns, source.categories, source.continuous)
            for part in (*map(whole_checksum, matrices), *(values.tobytes() for values in known)):
                data.update(part)
        return {"weights": weights.hexdigest(), "data": data.hexdigest()}

    def _open_counts(self, cells: CellTables, argument: str | None = None, takes_layer: bool = True) -> CountMatrix:
        """Counts and mask; ``argument`` is the one that named the layer of the counts, for messages."""
        mask_layer = cells.mask_layer
        if mask_layer is not None and mask_layer not in cells.adata.layers:
            warnings.warn(
                f"The model was set up with mask_layer={mask_layer!r}, which these data do not have: all of their counts, "
                "zeros too, are taken as observed.",
                stacklevel=2,
            )
            mask_layer = None
        return open_counts(cells.adata, cells.layer, mask_layer, "" if takes_layer else None, argument, cells.joined)

    def _summary(self, matrix: CountMatrix) -> CountSummary | None:
        """What the check at set-up found; ``None`` if the data was changed as a whole since then."""
        checked = getattr(self.adata_manager, "checked_data", None)  # set by the set-up
        return checked.summary if checked is not None and checked.fingerprint == matrix.fingerprint else None


def refuse_other_types(adata: object) -> None:
    """Refuse what is no data of scverse."""
    if not isinstance(adata, AnnData | MuData | None):
        raise TypeError(f"`adata` must be an AnnData or a MuData, not {type(adata).__name__}.")


def refuse_mps(accelerator: str) -> None:
    """Refuse Apple's GPUs. To Lightning, "gpu" is one where there is one."""
    if accelerator == "mps" or (accelerator == "gpu" and torch.backends.mps.is_available()):
        raise ValueError("PyTorch cannot draw binomials on Apple GPUs (mps): use the CPU.")
