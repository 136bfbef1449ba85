"""Cells of an AnnData as the tensors the model takes, for data that was never set up as well."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from anndata.abc import CSCDataset
from scvi import REGISTRY_KEYS
from torch import Tensor

from sccountsdiff.data.counts import check_counts, find_count_layers, get_matrix
from sccountsdiff.data.covariates import check_covariates, continuous_values, encode
from sccountsdiff.data.messages import matrix_name, some_of
from sccountsdiff.data.missing import check_mask
from sccountsdiff.data.reading import Matrix, as_matrix, by_rows, read_rows

if TYPE_CHECKING:
    from mudata import MuData


@dataclass(frozen=True)
class Cells:
    """Where in an AnnData or a MuData the counts and the covariates of the same cells are.

    Attributes
    ----------
    adata
        Holds counts and mask.
    categorical_obs, continuous_obs
        Tables with the covariates, a row for each cell of ``adata``, in its order.
    """

    adata: AnnData
    categorical_obs: pd.DataFrame
    continuous_obs: pd.DataFrame


def find_cells(data: AnnData | MuData, modalities: Mapping[str, str] | None = None) -> Cells:
    """Find counts and covariates, and refuse modalities that do not have the cells of the MuData in its order.

    Parameters
    ----------
    data
        AnnData or MuData.
    modalities
        Of a MuData: as in :meth:`~sccountsdiff.CountsDiffImputer.setup_mudata`.
    """
    if modalities is None:
        return Cells(data, data.obs, data.obs)
    for argument, modality in {"layer": None, **modalities}.items():
        if modality not in data.mod:
            raise KeyError(f"modalities[{argument!r}] must be one of {', '.join(data.mod)}, not {modality!r}.")
        if not data.mod[modality].obs_names.equals(data.obs_names):
            raise ValueError(
                f"Modality {modality!r} does not have the cells of the MuData, in its order: call "
                "muon.pp.intersect_obs(mdata), or subset it, first."
            )

    def obs_of(argument: str) -> pd.DataFrame:
        return data.mod[modalities[argument]].obs if argument in modalities else data.obs

    counts = data.mod[modalities["layer"]]
    return Cells(counts, obs_of("categorical_covariate_keys"), obs_of("continuous_covariate_keys"))


@dataclass(frozen=True)
class CellSource:
    """Counts, mask and covariates of some cells, read block by block and never changed.

    Attributes
    ----------
    counts
        Cells x genes of the data, in whatever it is stored.
    columns
        Position in the data of each of the model's genes.
    mask
        True = observed; ``None``: no mask.
    categories, continuous
        Codes and values of the covariates, a row for each cell.
    """

    counts: Matrix
    columns: np.ndarray
    mask: Matrix | None
    categories: np.ndarray
    continuous: np.ndarray
    _in_order: bool = field(init=False)

    def __post_init__(self):
        for name in ("mask", "categories", "continuous"):
            part = getattr(self, name)
            if part is not None and part.shape[0] != self.n_cells:
                raise ValueError(f"{name} has {part.shape[0]} rows for {self.n_cells} cells.")
        in_order = np.array_equal(self.columns, np.arange(self.counts.shape[1]))
        object.__setattr__(self, "_in_order", in_order)

    @property
    def n_cells(self) -> int:
        """Number of cells."""
        return self.counts.shape[0]

    def select(self, block: np.ndarray) -> np.ndarray:
        """The model's genes of a block of the data."""
        return block if self._in_order else block[:, self.columns]

    def read(self, rows: np.ndarray, observed_key: str) -> tuple[np.ndarray, dict[str, Tensor]]:
        """Counts as they stand in the data, all genes, and the tensors for the model; ``rows`` in increasing order."""
        counts = read_rows(self.counts, rows)
        tensors = {
            REGISTRY_KEYS.X_KEY: torch.from_numpy(self.select(counts).astype(np.float32)),
            REGISTRY_KEYS.CAT_COVS_KEY: torch.from_numpy(self.categories[rows]),
            REGISTRY_KEYS.CONT_COVS_KEY: torch.from_numpy(self.continuous[rows]),
        }
        if self.mask is not None:
            tensors[observed_key] = torch.from_numpy(self.select(read_rows(self.mask, rows)).astype(np.float32))
        return counts, tensors


def open_counts(
    adata: AnnData,
    layer: str | None,
    mask_layer: str | None,
    rows: np.ndarray | None = None,
    setup: str | None = None,
) -> tuple[Matrix, Matrix | None]:
    """Counts and mask of an AnnData, checked and ready to be read by cells; nothing is changed in ``adata``.

    Parameters
    ----------
    adata
        Data.
    layer, mask_layer
        Where the counts are, and where the mask of observed counts is.
    rows
        The only cells that are checked, in increasing order; default: all.
    setup
        Method that was given the names of the layers, for messages; `None`: they are those of a model.
    """
    name = matrix_name(layer)
    counts = by_rows(as_matrix(get_matrix(adata, layer, None if setup is None else "layer"), name))
    check_counts(
        counts,
        name=name,
        rows=rows,
        obs_names=adata.obs_names,
        var_names=adata.var_names,
        hints=lambda: find_count_layers(adata, name, setup),
    )
    if isinstance(counts, CSCDataset):
        warnings.warn(
            f"{name} is stored by columns (CSC) in a file, all of which has to be read for every block of cells: write "
            "it as CSR first, or load it into memory.",
            stacklevel=2,
        )
    if mask_layer is None:
        return counts, None
    mask_name = matrix_name(mask_layer)
    mask = by_rows(as_matrix(get_matrix(adata, mask_layer, "mask_layer"), mask_name))
    check_mask(mask, adata.shape, name=mask_name, rows=rows)
    return counts, mask


def make_source(
    cells: Cells,
    genes: Sequence[str],
    *,
    layer: str | None = None,
    mask_layer: str | None = None,
    categories: dict[str, np.ndarray] | None = None,
    continuous_keys: Sequence[str] = (),
    unseen_to_null: bool = False,
    rows: np.ndarray | None = None,
) -> CellSource:
    """Check cells against what the model was trained on, and make them readable.

    Parameters
    ----------
    cells
        Data; its genes may stand in another order, and there may be more of them.
    genes
        Names of the model's genes.
    layer, mask_layer
        Where the counts are, and where the mask of observed counts is. Data without that mask is taken as observed,
        with a warning.
    categories
        Categorical covariates with their categories, in the order of their codes.
    continuous_keys
        Continuous covariates.
    unseen_to_null
        Give cells with unseen categories the null state instead of raising an error.
    rows
        The only cells that will be read, in increasing order; the others are not checked. Default: all.
    """
    adata, categories = cells.adata, categories or {}
    if mask_layer is not None and mask_layer not in adata.layers:
        warnings.warn(
            f"The model was set up with mask_layer={mask_layer!r}, which these data do not have: all of their counts, "
            "zeros too, are taken as observed.",
            stacklevel=2,
        )
        mask_layer = None
    counts, mask = open_counts(adata, layer, mask_layer, rows)
    asked = slice(None) if rows is None else rows
    categorical_obs, continuous_obs = cells.categorical_obs.iloc[asked], cells.continuous_obs.iloc[asked]
    check_covariates(categorical_obs, list(categories))
    check_covariates(continuous_obs, continuous_keys, continuous=True)
    codes = np.zeros((adata.n_obs, len(categories)), dtype=np.int64)
    codes[asked] = encode(categorical_obs, categories, unseen_to_null)
    values = np.zeros((adata.n_obs, len(continuous_keys)))
    values[asked] = continuous_values(continuous_obs, continuous_keys)
    return CellSource(counts, match_genes(adata.var_names, genes), mask, codes, values)


def match_genes(var_names: pd.Index, genes: Sequence[str]) -> np.ndarray:
    """Position of each of ``genes`` in ``var_names``; an error names the ones that are missing."""
    if not var_names.is_unique:
        raise ValueError("adata.var_names are not unique: call adata.var_names_make_unique() first.")
    positions = var_names.get_indexer(pd.Index(genes))
    missing = np.asarray(genes)[positions < 0]
    if len(missing):
        raise ValueError(
            f"adata lacks {len(missing)} of the {len(genes)} genes the model was trained on: {some_of(missing)}. "
            "Genes are matched by adata.var_names."
        )
    return positions
