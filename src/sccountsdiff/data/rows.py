"""Which cells are asked for, and the blocks in which they are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
import pandas as pd
from anndata import AnnData

Indices: TypeAlias = "Sequence[int] | Sequence[str] | Sequence[bool] | np.ndarray | slice"
"""Cells by position, by name, as a slice, or as a boolean for each cell."""


def row_blocks(rows: np.ndarray, batch_size: int) -> Iterator[tuple[int, np.ndarray]]:
    """Sorted rows by the block of ``batch_size`` cells of the data that they stand in.

    A block has the same number, and so the same random numbers, whichever other blocks are asked for.
    """
    rows = np.unique(rows)
    numbers, starts = np.unique(rows // batch_size, return_index=True)
    for number, block in zip(numbers, np.split(rows, starts[1:]), strict=True):
        yield int(number), block


def unique_rows(indices: Indices | None, data: AnnData) -> tuple[np.ndarray, np.ndarray | None]:
    """Sorted rows to compute, and where each of the ``indices`` is found among them (``None``: in this order)."""
    if indices is None:
        return np.arange(data.n_obs), None
    positions = _positions(indices, data)
    if len(positions) == 0:
        raise ValueError("`indices` names no cell.")
    rows, order = np.unique(positions, return_inverse=True)
    return rows, None if np.array_equal(rows, positions) else order


def _positions(indices: Indices, data: AnnData) -> np.ndarray:
    """Position of each cell that is asked for, counted from the first."""
    n_cells = data.n_obs
    if isinstance(indices, slice):
        return np.arange(n_cells)[indices]
    asked = np.asarray(indices)
    if asked.ndim == 1 and asked.size == 0:
        return asked.astype(np.int64)
    if asked.ndim == 1 and asked.dtype == bool:
        if len(asked) != n_cells:
            raise ValueError(f"Boolean `indices` must have one value for each of the {n_cells} cells.")
        return np.flatnonzero(asked)
    if asked.ndim == 1 and asked.dtype.kind in "iu":
        if asked.min() < -n_cells or asked.max() >= n_cells:
            raise IndexError(f"`indices` must be positions among the {n_cells} cells.")
        return asked.astype(np.int64) % n_cells
    if asked.ndim == 1 and pd.api.types.infer_dtype(asked) == "string":
        if not data.obs_names.is_unique:
            raise ValueError("adata.obs_names are not unique: pass positions as `indices`, not names.")
        positions = data.obs_names.get_indexer(asked)
        if (positions < 0).any():
            raise KeyError(f"`indices` names cell {str(asked[positions < 0][0])!r}, which is not in adata.obs_names.")
        return positions
    found = f"{asked.dtype} of shape {asked.shape}" if isinstance(indices, np.ndarray) else repr(indices)
    raise ValueError(
        "`indices` must be a list (or one-dimensional array) of whole numbers, of names in adata.obs_names or of a "
        f"boolean for each cell, or a slice; found {found}."
    )
