"""Which counts are missing, and what a mask of observed counts may hold."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from torch import Tensor

from sccountsdiff.data.messages import first_entry, values_of
from sccountsdiff.data.reading import Block, Matrix, as_matrix, iter_blocks

OBSERVED_KEY = "observed"
"""Key under which scvi-tools registers the mask layer (True = observed)."""

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
    mask = check_mask_form(mask, shape, name=name, meaning=meaning)
    if mask.dtype.kind != "b":
        for in_rows, in_columns, block in iter_blocks(mask, rows):
            check_mask_block(block, in_rows, in_columns, name=name, meaning=meaning)


def check_mask_form(mask: Matrix, shape: tuple[int, int], *, name: str, meaning: str = "observed") -> Matrix:
    """The mask as a matrix; refuses another shape or a type that is neither boolean nor a number."""
    if hasattr(mask, "shape") and tuple(mask.shape) != tuple(shape):
        raise ValueError(f"{name} has shape {tuple(mask.shape)}, but the counts have shape {tuple(shape)}.")
    mask = as_matrix(mask, name)
    if mask.dtype.kind not in "biuf":
        raise ValueError(f"{name} has dtype {mask.dtype}: it must be boolean (True = {meaning}), or hold only 0 and 1.")
    return mask


def check_mask_block(
    block: Block, rows: range | np.ndarray, columns: range, *, name: str, meaning: str = "observed"
) -> None:
    """Refuse a part of a mask that holds anything but 0 and 1."""
    values = values_of(block)
    wrong = (values != 0) & (values != 1)
    if wrong.any():
        where, value = first_entry(block, wrong, rows, columns)
        raise ValueError(
            f"{name} holds {value} in {where}: it must be boolean (True = {meaning}), or hold only 0 and 1."
        )
