"""Cells of an AnnData as the tensors the model takes, for data that was never set up as well."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from anndata.abc import CSCDataset
from scvi import REGISTRY_KEYS
from torch import Tensor

from sccountsdiff.data.counts import check_block, check_counts, find_count_layers, get_matrix
from sccountsdiff.data.covariates import check_covariates, continuous_values, encode
from sccountsdiff.data.messages import matrix_name, some_of, values_of
from sccountsdiff.data.missing import OBSERVED_KEY, check_mask, check_mask_block
from sccountsdiff.data.reading import Block, Matrix, as_matrix, by_rows, dense, is_sparse, iter_some_rows, read_block
from sccountsdiff.data.summary import CountSummary, sample_checksum, summarise_counts

if TYPE_CHECKING:
    from mudata import MuData


@dataclass(frozen=True)
class CellTables:
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


def find_cells(data: AnnData | MuData, modalities: Mapping[str, str] | None = None) -> CellTables:
    """Find counts and covariates, and refuse modalities that do not have the cells of the MuData in its order.

    Parameters
    ----------
    data
        AnnData or MuData.
    modalities
        Of a MuData: as in :meth:`~sccountsdiff.CountsDiffImputer.setup_mudata`.
    """
    if not isinstance(data.obs, pd.DataFrame):
        raise TypeError(
            f"adata.obs is a {type(data.obs).__name__}, as of data that is read lazily: use adata.to_memory()."
        )
    if modalities is None:
        return CellTables(data, data.obs, data.obs)
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
    return CellTables(counts, obs_of("categorical_covariate_keys"), obs_of("continuous_covariate_keys"))


@dataclass(frozen=True)
class CountMatrix:
    """Counts and mask of an AnnData, ready to be read by cells, with what messages about them need.

    Attributes
    ----------
    adata
        Where they are.
    layer, mask_layer
        Layers of the counts (``None``: ``X``) and of the mask.
    counts
        Cells x genes, in whatever it is stored.
    mask
        True = observed; ``None``: no mask.
    setup
        Method that was given the names of the layers, for messages; ``None``: they are those of a model.
    """

    adata: AnnData
    layer: str | None
    mask_layer: str | None
    counts: Matrix
    mask: Matrix | None
    setup: str | None = None

    @property
    def _messages(self) -> dict[str, Any]:
        """What messages about the counts name."""
        return {
            "name": matrix_name(self.layer),
            "obs_names": self.adata.obs_names,
            "var_names": self.adata.var_names,
            "hints": lambda: find_count_layers(self.adata, matrix_name(self.layer), self.setup),
        }

    def check(self, rows: np.ndarray | None = None) -> None:
        """Refuse what is no count or no mask, in these cells or in all."""
        check_counts(self.counts, rows=rows, **self._messages)
        if self.mask is not None:
            check_mask(self.mask, self.adata.shape, name=matrix_name(self.mask_layer), rows=rows)

    def summarise(self, labels: pd.Categorical | None = None) -> CountSummary:
        """Check all of it in one pass that also gathers what a model starts from."""
        mask_name = matrix_name(self.mask_layer)
        return summarise_counts(self.counts, self.mask, labels=labels, mask_name=mask_name, **self._messages)

    def fingerprint(self) -> tuple[bytes, ...]:
        """Checksums by which a change of counts or mask as a whole is noticed."""
        return tuple(sample_checksum(matrix) for matrix in (self.counts, self.mask) if matrix is not None)

    def read(self, rows: np.ndarray) -> np.ndarray:
        """The counts of some cells as they stand in the data, checked; ``rows`` in increasing order."""
        block = read_block(self.counts, rows)
        check_block(block, rows, range(self.counts.shape[1]), **self._messages)
        return block.toarray() if is_sparse(block) else np.array(block)  # never a view of the data


def open_counts(adata: AnnData, layer: str | None, mask_layer: str | None, setup: str | None = None) -> CountMatrix:
    """Counts and mask of an AnnData; nothing is changed in ``adata``, and nothing is checked yet.

    Parameters
    ----------
    adata
        Data.
    layer, mask_layer
        Where the counts are, and where the mask of observed counts is.
    setup
        Method that was given the names of the layers, for messages; `None`: they are those of a model.
    """
    name = matrix_name(layer)
    counts = by_rows(as_matrix(get_matrix(adata, layer, None if setup is None else "layer"), name))
    if isinstance(counts, CSCDataset):
        warnings.warn(
            f"{name} is stored by columns (CSC) in a file, all of which has to be read for every block of cells: write "
            "it as CSR first, or load it into memory.",
            stacklevel=2,
        )
    mask = None
    if mask_layer is not None:
        mask = by_rows(as_matrix(get_matrix(adata, mask_layer, "mask_layer"), matrix_name(mask_layer)))
    return CountMatrix(adata, layer, mask_layer, counts, mask, setup)


@dataclass(frozen=True)
class CellSource:
    """Counts, mask and covariates of some cells, read block by block and never changed.

    Attributes
    ----------
    matrix
        Counts and mask, of all genes of the data.
    columns
        Position in the data of each of the model's genes.
    categories, continuous
        Codes and values of the covariates, a row for each cell.
    """

    matrix: CountMatrix
    columns: np.ndarray
    categories: np.ndarray
    continuous: np.ndarray

    @property
    def counts(self) -> Matrix:
        """Cells x genes of the data."""
        return self.matrix.counts

    @property
    def n_cells(self) -> int:
        """Number of cells."""
        return self.counts.shape[0]

    @cached_property
    def _in_order(self) -> bool:
        return np.array_equal(self.columns, np.arange(self.counts.shape[1]))

    def select(self, block: Block) -> Block:
        """The model's genes of a block of the data."""
        return block if self._in_order else block[:, self.columns]

    def read(self, rows: np.ndarray) -> tuple[np.ndarray, dict[str, Tensor]]:
        """Counts as they stand in the data, all genes, and the tensors for the model; ``rows`` in increasing order."""
        counts = self.matrix.read(rows)
        tensors = {
            REGISTRY_KEYS.X_KEY: torch.from_numpy(self.select(counts).astype(np.float32)),
            REGISTRY_KEYS.CAT_COVS_KEY: torch.from_numpy(self.categories[rows]),
            REGISTRY_KEYS.CONT_COVS_KEY: torch.from_numpy(self.continuous[rows]),
        }
        if self.matrix.mask is not None:
            mask = read_block(self.matrix.mask, rows)
            check_mask_block(mask, rows, range(mask.shape[1]), name=matrix_name(self.matrix.mask_layer))
            tensors[OBSERVED_KEY] = torch.from_numpy(self.select(dense(mask)).astype(np.float32))
        return counts, tensors

    def any_missing(self, rows: np.ndarray) -> bool:
        """Whether an entry of the model's genes is missing in these cells; what other genes hold does not matter."""
        if self.counts.dtype.kind == "f":
            for _, block in iter_some_rows(self.counts, rows):
                if np.isnan(values_of(self.select(block))).any():
                    return True
        if self.matrix.mask is not None:
            for _, block in iter_some_rows(self.matrix.mask, rows):
                block = self.select(block)
                if int((block != 0).sum()) < block.shape[0] * block.shape[1]:
                    return True
        return False


def make_source(
    cells: CellTables,
    matrix: CountMatrix,
    genes: Sequence[str] | np.ndarray,
    *,
    categories: dict[str, np.ndarray] | None = None,
    continuous_keys: Sequence[str] = (),
    unseen_to_null: bool = False,
    rows: np.ndarray | None = None,
) -> CellSource:
    """Match genes and covariates with those that the model was trained on.

    Parameters
    ----------
    cells, matrix
        Data; its genes may stand in another order, and there may be more of them.
    genes
        Names of the model's genes.
    categories
        Categorical covariates with their categories, in the order of their codes.
    continuous_keys
        Continuous covariates.
    unseen_to_null
        Give cells with unseen categories the null state instead of raising an error.
    rows
        The only cells that will be read, in increasing order; covariates of the others are not checked. Default: all.
    """
    adata, categories = cells.adata, categories or {}
    asked = slice(None) if rows is None else rows
    categorical_obs, continuous_obs = cells.categorical_obs.iloc[asked], cells.continuous_obs.iloc[asked]
    check_covariates(categorical_obs, list(categories))
    check_covariates(continuous_obs, continuous_keys, continuous=True)
    codes = np.zeros((adata.n_obs, len(categories)), dtype=np.int64)
    codes[asked] = encode(categorical_obs, categories, unseen_to_null)
    values = np.zeros((adata.n_obs, len(continuous_keys)))
    values[asked] = continuous_values(continuous_obs, continuous_keys)
    return CellSource(matrix, match_genes(adata.var_names, genes), codes, values)


def match_genes(var_names: pd.Index, genes: Sequence[str] | np.ndarray) -> np.ndarray:
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
