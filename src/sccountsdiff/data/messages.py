"""What messages about data have in common: names, lists of them, and where in a matrix something is."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import scipy.sparse as sp

from sccountsdiff.data.reading import Block, is_sparse

Names: TypeAlias = "pd.Index | Sequence[str] | None"


def matrix_name(layer: str | None) -> str:
    """What to call a layer of an AnnData, or its X."""
    return "adata.X" if layer is None else f"adata.layers[{layer!r}]"


def listing(keys: Iterable[Any]) -> str:
    """All keys, quoted; "none" if there is none."""
    return ", ".join(map(repr, keys)) or "none"


def some_of(names: Collection[Any], at_most: int = 5) -> str:
    """The first names, with an ellipsis if there are more."""
    return ", ".join(map(str, list(names)[:at_most])) + (", ..." if len(names) > at_most else "")


def suggestion(key: Any, options: Iterable[Any]) -> str:
    """A sentence with the option that is spelt most like the key, if one is."""
    close = difflib.get_close_matches(str(key), map(str, options), n=1)
    return f" Did you mean {close[0]!r} for {str(key)!r}?" if close else ""


def values_of(block: Block) -> np.ndarray:
    """The entries of a block, of a sparse one those that are stored."""
    return block.data if is_sparse(block) else np.asarray(block)


def first_entry(
    block: Block,
    flags: np.ndarray,
    rows: range | np.ndarray,
    columns: range,
    obs_names: Names = None,
    var_names: Names = None,
) -> tuple[str, str]:
    """Say where the first flagged entry of a block is, by cell and then by gene, and its value.

    Parameters
    ----------
    block
        Part of a matrix.
    flags
        Which of :func:`values_of` the block are meant.
    rows, columns
        Where the rows and columns of the block are in the whole matrix.
    obs_names, var_names
        Names of cells and genes; positions are given without them.
    """
    in_rows, in_columns = np.nonzero(flags) if not is_sparse(block) else _stored(block, flags)
    first = np.lexsort((in_columns, in_rows))[0]
    i, j = int(rows[in_rows[first]]), columns[in_columns[first]]
    cell = f"cell {i}" if obs_names is None else f"cell {str(obs_names[i])!r} (row {i})"
    gene = f"gene {j}" if var_names is None else f"gene {str(var_names[j])!r} (column {j})"
    return f"{cell}, {gene}", str(values_of(block)[flags][first])


def _stored(block: sp.csr_matrix | sp.csc_matrix, flags: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    coo = block.tocoo()  # keeps the order of the values
    return coo.row[flags], coo.col[flags]
