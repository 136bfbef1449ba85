"""Which counts are missing, and what a mask of observed counts may hold."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import scipy.sparse as sp
from torch import Tensor

from sccountsdiff.data.messages import Names, first_entry, some_of, values_of
from sccountsdiff.data.reading import Matrix, as_matrix, by_rows, dense, is_csc, iter_blocks, read_block

Entries = TypeVar("Entries", np.ndarray, Tensor)


def is_missing(counts: Entries, observed: Entries | None = None, expressed: Entries | None = None) -> Entries:
    """Which counts are missing: the one definition, of arrays and of tensors.

    Parameters
    ----------
    counts
        Counts, cells x genes; NaN is missing.
    observed
        A count where this is 0 is missing.
    expressed
        Genes that cells of the same type express: a zero of these is missing (``zeros="missing"``).

    Examples
    --------
    >>> import numpy as np
    >>> is_missing(np.array([np.nan, 2, 0, 0]), np.array([1, 0, 1, 1]), np.array([True, True, True, False])).tolist()
    [True, True, True, False]
    """
    missing = counts != counts  # NaN, whichever library the entries are of
    if observed is not None:
        missing |= observed == 0
    if expressed is not None:
        missing |= (counts == 0) & expressed
    return missing


def check_mask(
    mask: Matrix, shape: tuple[int, int], *, name: str, rows: np.ndarray | None = None, meaning: str = "observed"
) -> None:
    """Refuse a mask that is not a matrix of booleans (or of 0 and 1) with the shape of the counts.

    Parameters
    ----------
    mask
        Cells x genes, dense, sparse or backed.
    shape
        Shape of the counts.
    name
        What to call the mask in messages, e.g. ``"adata.layers['observed']"``.
    rows
        The only cells to look at, in increasing order; default: all.
    meaning
        What True says of an entry, for messages.

    Raises
    ------
    ValueError
        If the shapes differ, or an entry is neither 0 nor 1.
    """
    if hasattr(mask, "shape") and tuple(mask.shape) != tuple(shape):
        raise ValueError(f"{name} has shape {tuple(mask.shape)}, but the counts have shape {tuple(shape)}.")
    mask = as_matrix(mask, name)
    if mask.dtype.kind == "b":
        return
    if mask.dtype.kind not in "iuf":
        raise ValueError(f"{name} has dtype {mask.dtype}: it must be boolean (True = {meaning}), or hold only 0 and 1.")
    for in_rows, in_columns, block in iter_blocks(mask, rows):
        values = values_of(block)
        wrong = (values != 0) & (values != 1)
        if wrong.any():
            where, value = first_entry(block, wrong, in_rows, in_columns)
            raise ValueError(
                f"{name} holds {value} in {where}: it must be boolean (True = {meaning}), or hold only 0 and 1."
            )


def check_observed(
    matrix: Matrix, mask: Matrix | None, *, name: str, obs_names: Names = None, var_names: Names = None
) -> None:
    """Refuse counts in which a cell or a gene has no observed entry at all; observed zeros are fine.

    Parameters
    ----------
    matrix
        Counts, cells x genes; NaN is missing.
    mask
        True where a count was observed, as accepted by :func:`check_mask`; `None` if only NaN is missing.
    name
        What to call the counts in messages.
    obs_names, var_names
        Names of cells and genes for messages; positions are given without them.

    Raises
    ------
    ValueError
        If every entry of a cell or of a gene is NaN or masked out.
    """
    matrix = as_matrix(matrix, name)
    if mask is None and matrix.dtype.kind != "f":
        return
    if mask is not None:
        mask = as_matrix(mask, "mask")
        mask = mask.tocsc() if sp.issparse(mask) and is_csc(matrix) else by_rows(mask)  # slicing across is slow
    n_seen = {"cells": np.zeros(matrix.shape[0], dtype=np.int64), "genes": np.zeros(matrix.shape[1], dtype=np.int64)}
    for rows, columns, block in iter_blocks(matrix):
        in_rows, in_columns = slice(rows.start, rows.stop), slice(columns.start, columns.stop)
        if mask is None and not is_missing(values_of(block)).any():
            n_seen["cells"][in_rows] += len(columns)
            n_seen["genes"][in_columns] += len(rows)
            continue
        seen = ~is_missing(dense(block), None if mask is None else dense(read_block(mask, rows, columns)))
        n_seen["cells"][in_rows] += np.count_nonzero(seen, axis=1)
        n_seen["genes"][in_columns] += np.count_nonzero(seen, axis=0)

    complaints = []
    for (what, number), names in zip(n_seen.items(), (obs_names, var_names), strict=True):
        unseen = np.flatnonzero(number == 0)
        if unseen.size:
            shown = unseen if names is None else [repr(str(names[i])) for i in unseen]
            complaints.append(f"{unseen.size} of {number.size} {what} ({some_of(shown)})")
    if complaints:
        raise ValueError(
            f"{name} has no observed entry, all being NaN or masked out, for {' and '.join(complaints)}. "
            "Remove them before setting up the data."
        )
