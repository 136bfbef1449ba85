"""Cells of an AnnData as the tensors the model takes, for data that was never set up as well."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

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
from sccountsdiff.data.modalities import JOINED_MASK, JoinedCounts, KnownFeatures, Layers, join_modalities
from sccountsdiff.data.reading import Block, Matrix, as_matrix, by_rows, dense, is_sparse, iter_some_rows, read_block
from sccountsdiff.data.summary import CountSummary, sample_checksum, summarise_counts

if TYPE_CHECKING:
    from mudata import MuData

logger = logging.getLogger("sccountsdiff")

LEAST_SHARE_OF_GENES = 0.1
"""Share of the model's genes that data must have; with fewer, names are likely of another kind, or of another species."""

ADVICE = " Pass unseen_to_null=True to treat these cells as having no covariates at all."


@dataclass(frozen=True)
class CellTables:
    """Where in an AnnData or a MuData the counts and the covariates of the same cells are.

    Attributes
    ----------
    adata
        Holds counts and mask.
    categorical_obs, continuous_obs
        Tables with the covariates, a row for each cell of ``adata``, in its order.
    layer, mask_layer
        Layers of ``adata`` with the counts (``None``: ``X``) and the mask.
    joined
        Of several modalities: where in ``adata``, which is then a table of all of them, each is.
    """

    adata: AnnData
    categorical_obs: pd.DataFrame
    continuous_obs: pd.DataFrame
    layer: str | None = None
    mask_layer: str | None = None
    joined: JoinedCounts | None = None


def find_cells(
    data: AnnData | MuData,
    modalities: Mapping[str, str | Sequence[str]] | None = None,
    layer: Layers = None,
    mask_layer: Layers = None,
    known: KnownFeatures | None = None,
) -> CellTables:
    """Find counts and covariates, and refuse modalities that do not have the cells of the MuData in its order.

    Parameters
    ----------
    data
        AnnData or MuData.
    modalities
        Of a MuData: as in :meth:`~sccountsdiff.CountsDiffImputer.setup_mudata`.
    layer, mask_layer
        Where counts and mask are.
    known
        Features of the model that the data is for, if it knows several modalities; those that ``data`` lacks are missing.
    """
    names = cast("tuple[str | None, str | None]", (layer, mask_layer))  # unless counts are in several modalities
    if not isinstance(data.obs, pd.DataFrame):
        raise TypeError(
            f"adata.obs is a {type(data.obs).__name__}, as of data that is read lazily: use adata.to_memory()."
        )
    if modalities is None:
        return CellTables(data, data.obs, data.obs, *names)
    of_counts = modalities.get("layer")
    several = of_counts if isinstance(of_counts, list | tuple) else []
    aligned = {"layer": of_counts, **modalities}
    if several:
        del aligned["layer"]
    # Data that a model is used with may lack modalities, but not all of them.
    needed = several if known is None or not set(several) & set(data.mod) else []
    for argument, modality in [*aligned.items(), *(("layer", name) for name in needed)]:
        if modality not in data.mod:
            raise KeyError(f"modalities[{argument!r}] must be one of {', '.join(data.mod)}, not {modality!r}.")
    for modality in aligned.values():
        if not data.mod[modality].obs_names.equals(data.obs_names):
            raise ValueError(
                f"Modality {modality!r} does not have the cells of the MuData, in its order: call "
                "muon.pp.intersect_obs(mdata), or subset it, first."
            )

    def obs_of(argument: str) -> pd.DataFrame:
        return data.mod[modalities[argument]].obs if argument in modalities else data.obs

    covariates = obs_of("categorical_covariate_keys"), obs_of("continuous_covariate_keys")
    if not several:
        return CellTables(data.mod[of_counts], *covariates, *names)
    joined = join_modalities(data, several, layer, mask_layer, known)
    return CellTables(joined.adata, *covariates, None, JOINED_MASK if joined.has_mask else None, joined)


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
        Method to which another layer can be passed, for messages; see :func:`~sccountsdiff.data.counts.find_count_layers`.
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

    def summarise(self, labels: pd.Categorical | None = None, may_lack_genes: bool = False) -> CountSummary:
        """Check all of it in one pass that also gathers what a model starts from."""
        return summarise_counts(
            self.counts,
            self.mask,
            labels=labels,
            may_lack_genes=may_lack_genes,
            mask_name=matrix_name(self.mask_layer),
            **self._messages,
        )

    @cached_property  # of one call: the next one opens the counts anew
    def fingerprint(self) -> tuple[bytes, ...]:
        """Checksums by which a change of counts or mask as a whole is noticed."""
        return tuple(sample_checksum(matrix) for matrix in (self.counts, self.mask) if matrix is not None)

    def read(self, rows: np.ndarray) -> np.ndarray:
        """The counts of some cells as they stand in the data, checked; ``rows`` in increasing order."""
        block = read_block(self.counts, rows)
        check_block(block, rows, range(self.counts.shape[1]), **self._messages)
        return block.toarray() if is_sparse(block) else np.array(block)  # never a view of the data


def open_counts(
    adata: AnnData,
    layer: str | None,
    mask_layer: str | None,
    setup: str | None = None,
    argument: str | None = None,
    joined: JoinedCounts | None = None,
) -> CountMatrix:
    """Counts and mask of an AnnData; nothing is changed in ``adata``, and nothing is checked yet.

    Parameters
    ----------
    adata
        Data.
    layer, mask_layer
        Where the counts are, and where the mask of observed counts is.
    setup
        Method to which another layer can be passed, for messages; see :func:`~sccountsdiff.data.counts.find_count_layers`.
    argument
        Argument that named the layer of the counts, for messages; `None`: a model says what is read.
    joined
        Of several modalities: says which cells have them.
    """
    name = matrix_name(layer)
    counts = by_rows(as_matrix(get_matrix(adata, layer, argument, setup), name))
    if isinstance(counts, CSCDataset):
        warnings.warn(
            f"{name} is stored by columns (CSC) in a file, all of which has to be read for every block of cells: write "
            "it as CSR first, or load it into memory.",
            stacklevel=2,
        )
    mask = None if joined is None else joined.mask
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
        Position in the data of each of the model's genes, -1 for those that the data lacks, which are missing.
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
    def in_order(self) -> bool:
        """Whether the genes of the data are the model's, in its order."""
        return np.array_equal(self.columns, np.arange(self.counts.shape[1]))

    @cached_property
    def present(self) -> np.ndarray:
        """Which of the model's genes the data has."""
        return self.columns >= 0

    def select(self, block: np.ndarray) -> np.ndarray:
        """The model's genes of a block of the data, 0 for genes that it lacks."""
        if self.in_order:
            return block
        block = block[:, self.columns]  # a copy
        block[:, ~self.present] = 0
        return block

    def _shared(self, block: Block) -> Block:
        """The genes of a block that the model has, too."""
        return block if self.in_order else block[:, self.columns[self.present]]

    def read(self, rows: np.ndarray) -> tuple[np.ndarray, dict[str, Tensor]]:
        """Counts as they stand in the data, all genes, and the tensors for the model; ``rows`` in increasing order."""
        counts = self.matrix.read(rows)
        known = self.select(counts).astype(np.float32, order="C", copy=False)  # else sums differ in the last digit
        if not self.present.all():
            known[:, ~self.present] = np.nan  # of a selection, which is a copy
        tensors = {
            REGISTRY_KEYS.X_KEY: torch.from_numpy(known),
            REGISTRY_KEYS.CAT_COVS_KEY: torch.from_numpy(self.categories[rows]),
            REGISTRY_KEYS.CONT_COVS_KEY: torch.from_numpy(self.continuous[rows]),
        }
        if self.matrix.mask is not None:
            mask = read_block(self.matrix.mask, rows)
            check_mask_block(mask, rows, range(mask.shape[1]), name=matrix_name(self.matrix.mask_layer))
            tensors[OBSERVED_KEY] = torch.from_numpy(self.select(dense(mask)).astype(np.float32, order="C"))
        return counts, tensors

    def largest(self, rows: np.ndarray) -> float:
        """The largest count of these cells, of all genes of the data."""
        blocks = iter_some_rows(self.counts, rows)
        return max((float(np.nanmax(values_of(block), initial=0)) for _, block in blocks), default=0.0)

    def any_missing(self, rows: np.ndarray) -> bool:
        """Whether an entry of a gene that the model and the data have is missing in these cells."""
        if self.counts.dtype.kind == "f":
            for _, block in iter_some_rows(self.counts, rows):
                if np.isnan(values_of(self._shared(block))).any():
                    return True
        if self.matrix.mask is not None:
            for _, block in iter_some_rows(self.matrix.mask, rows):
                block = self._shared(block)
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
    size_factor_key: str | None = None,
    unseen_to_null: bool = False,
    rows: np.ndarray | None = None,
) -> CellSource:
    """Match genes and covariates with those that the model was trained on.

    Parameters
    ----------
    cells, matrix
        Data; its genes may stand in another order, there may be more of them, and some may be absent.
    genes
        Names of the model's genes.
    categories
        Categorical covariates with their categories, in the order of their codes.
    continuous_keys, size_factor_key
        Continuous covariates, and the one of them that is a size factor.
    unseen_to_null
        Give cells with unseen or unknown covariates, or without their columns, the null state instead of raising an
        error.
    rows
        The only cells that will be read, in increasing order; covariates of the others are not checked. Default: all.
    """
    adata, categories = cells.adata, categories or {}
    asked = slice(None) if rows is None else rows
    categorical_obs, continuous_obs = cells.categorical_obs.iloc[asked], cells.continuous_obs.iloc[asked]
    check_covariates(categorical_obs, list(categories), may_lack=unseen_to_null, advice=ADVICE)
    check_covariates(
        continuous_obs,
        continuous_keys,
        continuous=True,
        size_factor_key=size_factor_key,
        may_lack=unseen_to_null,
        advice=ADVICE,
    )
    codes = np.zeros((adata.n_obs, len(categories)), dtype=np.int64)
    codes[asked] = encode(categorical_obs, categories, unseen_to_null)
    values = np.zeros((adata.n_obs, len(continuous_keys)))
    values[asked] = continuous_values(continuous_obs, continuous_keys)
    return CellSource(matrix, match_genes(adata.var_names, genes), codes, values)


def match_genes(var_names: pd.Index, genes: Sequence[str] | np.ndarray) -> np.ndarray:
    """Position of each of ``genes`` in ``var_names``, -1 for those that are absent; an error if nearly all are."""
    if not var_names.is_unique:
        raise ValueError("adata.var_names are not unique: call adata.var_names_make_unique() first.")
    positions = var_names.get_indexer(pd.Index(genes))
    absent = np.asarray(genes)[positions < 0]
    if not len(absent):
        return positions
    what = f"adata lacks {len(absent)} of the {len(genes)} genes the model was trained on: {some_of(absent)}."
    if len(absent) > (1 - LEAST_SHARE_OF_GENES) * len(genes):
        raise ValueError(
            f"{what} Genes are matched by adata.var_names, which are {some_of(var_names)}; at least "
            f"{LEAST_SHARE_OF_GENES:.0%} of the model's have to be among them."
        )
    logger.info("%s They count as missing.", what)
    return positions
