"""Cells of an AnnData as the tensors the model takes, for data that was never set up as well."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from scvi import REGISTRY_KEYS
from torch import Tensor

from sccountsdiff.data.reading import Matrix, as_matrix, read_rows
from sccountsdiff.data.validation import check_counts, check_covariates, check_mask, find_count_layers, get_matrix

logger = logging.getLogger("sccountsdiff")


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


def make_source(
    adata: AnnData,
    genes: Sequence[str],
    *,
    layer: str | None,
    mask_layer: str | None,
    categories: dict[str, np.ndarray],
    continuous_keys: Sequence[str],
    categorical_obs: pd.DataFrame | None = None,
    continuous_obs: pd.DataFrame | None = None,
    unseen_to_null: bool = False,
) -> CellSource:
    """Check an AnnData against what the model was trained on, and make it readable.

    Parameters
    ----------
    adata
        Data; its genes may stand in another order, and there may be more of them.
    genes
        Names of the model's genes.
    layer, mask_layer
        Where the counts are, and where the mask of observed counts is. Data without that mask is taken as observed.
    categories
        Categorical covariates with their categories, in the order of their codes.
    continuous_keys
        Continuous covariates.
    categorical_obs, continuous_obs
        Where the covariates are, if not in ``adata.obs``.
    unseen_to_null
        Give cells with unseen categories the null state instead of raising an error.
    """
    name = "adata.X" if layer is None else f"adata.layers[{layer!r}]"
    counts = as_matrix(get_matrix(adata, layer), name)
    check_counts(
        counts,
        name=name,
        obs_names=adata.obs_names,
        var_names=adata.var_names,
        layers_hint=lambda: find_count_layers(adata),
    )
    mask = None
    if mask_layer is not None:
        if mask_layer in adata.layers:
            mask = as_matrix(adata.layers[mask_layer], f"adata.layers[{mask_layer!r}]")
            check_mask(mask, adata.shape, name=f"adata.layers[{mask_layer!r}]")
        else:
            logger.info("No adata.layers[%r]: all counts are taken as observed.", mask_layer)
    categorical_obs = adata.obs if categorical_obs is None else categorical_obs
    continuous_obs = adata.obs if continuous_obs is None else continuous_obs
    check_covariates(categorical_obs, list(categories), [])
    check_covariates(continuous_obs, [], list(continuous_keys))
    return CellSource(
        counts,
        match_genes(adata.var_names, genes),
        mask,
        encode(categorical_obs, categories, unseen_to_null),
        continuous_obs[list(continuous_keys)].to_numpy(dtype=np.float32),
    )


def match_genes(var_names: pd.Index, genes: Sequence[str]) -> np.ndarray:
    """Position of each of ``genes`` in ``var_names``; an error names the ones that are missing."""
    if not var_names.is_unique:
        raise ValueError("adata.var_names are not unique: call adata.var_names_make_unique() first.")
    positions = var_names.get_indexer(pd.Index(genes))
    missing = np.asarray(genes)[positions < 0]
    if len(missing):
        shown = ", ".join(map(str, missing[:5])) + (", ..." if len(missing) > 5 else "")
        raise ValueError(
            f"adata lacks {len(missing)} of the {len(genes)} genes the model was trained on: {shown}. "
            "Genes are matched by adata.var_names."
        )
    return positions


def encode(obs: pd.DataFrame, categories: dict[str, np.ndarray], unseen_to_null: bool = False) -> np.ndarray:
    """Codes of categorical covariates, ``(cells, covariates)``; unseen categories get the code after the last one."""
    codes = np.zeros((len(obs), len(categories)), dtype=np.int64)
    for k, (key, known) in enumerate(categories.items()):
        values = obs[key].astype(object).to_numpy()
        column = pd.Index(known.astype(object)).get_indexer(values)
        if (column < 0).any() and not unseen_to_null:
            unseen = sorted({str(value) for value in values[column < 0]})
            raise ValueError(
                f"adata.obs[{key!r}] holds categories that the model was not trained on: {', '.join(unseen)}. It knows "
                f"{', '.join(map(str, known))}. Pass unseen_to_null=True to treat these cells as having no covariates."
            )
        codes[:, k] = np.where(column < 0, len(known), column)
    return codes
