"""Checks of counts, masks and covariates, made before any work starts.

Every entry is looked at, block by block, so that backed data never has to fit in memory.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pandas as pd
import scipy.sparse as sp

from sccountsdiff.data.reading import (
    Matrix,
    as_matrix,
    is_csc,
    iter_blocks,
    read_block,
    spread_slices,
)

if TYPE_CHECKING:
    from anndata import AnnData

Names: TypeAlias = "pd.Index | Sequence[str] | None"

MAX_COUNT = 2**53  # float64 holds every integer up to here
SAMPLE_ROWS = 1_000


def check_counts(
    matrix: Matrix,
    *,
    name: str,
    obs_names: Names = None,
    var_names: Names = None,
    layers_hint: Sequence[str] | Callable[[], Sequence[str]] | None = None,
) -> None:
    """Refuse a matrix that holds anything but counts; NaN stands for a missing count and is allowed.

    Parameters
    ----------
    matrix
        Cells x genes, in any form that :func:`iter_row_chunks` takes.
    name
        What to call the matrix in messages, e.g. ``"adata.layers['counts']"``.
    obs_names, var_names
        Names of cells and genes for messages; positions are given without them.
    layers_hint
        What :func:`find_count_layers` returned, or a function that returns it, called only when the check fails.

    Raises
    ------
    ValueError
        If there is no cell or no gene, or if an entry is infinite, negative, not a whole number or above 2**53.

    Examples
    --------
    >>> check_counts(adata.X, name="adata.X", layers_hint=lambda: find_count_layers(adata))  # doctest: +SKIP
    """
    matrix = as_matrix(matrix, name)
    for what, length in zip(("cells", "genes"), matrix.shape, strict=True):
        if length == 0:
            raise ValueError(f"{name} has no {what}: its shape is {matrix.shape}.")
    if matrix.dtype.kind not in "biuf":
        raise ValueError(
            f"{name} has dtype {matrix.dtype}, which cannot hold counts: convert it to integers or floats."
        )
    for row, column, block in iter_blocks(matrix):
        values = _values(block)
        valid = _is_count(values)
        if valid.all():
            continue
        problem, wrong = _first_problem(values, ~valid)
        where, value = _first_entry(block, wrong, row, column, obs_names, var_names)
        is_last = row + block.shape[0] == matrix.shape[0] and column + block.shape[1] == matrix.shape[1]
        number = f"{'' if is_last else 'at least '}{wrong.sum()} {problem} {'entry' if wrong.sum() == 1 else 'entries'}"
        hints = layers_hint() if callable(layers_hint) else layers_hint or ()
        raise ValueError(
            " ".join(
                [
                    f"{name} holds {number}; the first is {value} in {where}.",
                    *_advice(problem, values, wrong),
                    *(f"{hint}." for hint in hints if not hint.startswith(f"{name} ")),
                ]
            )
        )


def looks_like_counts(matrix: Matrix) -> bool:
    """Whether a sample of the matrix holds only non-negative whole numbers (or NaN), and not only zeros.

    At most 1,000 rows are read, in ten runs spread over the matrix; of a CSC matrix, columns with about as
    many entries. A boolean matrix is a mask, not counts.

    Examples
    --------
    >>> import numpy as np
    >>> looks_like_counts(np.array([[0, 3]])), looks_like_counts(np.array([[0, 1.1]]))
    (True, False)
    """
    try:
        matrix = as_matrix(matrix, "matrix")
    except ValueError:
        return False
    if matrix.dtype.kind not in "iuf" or 0 in matrix.shape:
        return False
    n_rows, n_columns = matrix.shape
    if is_csc(matrix):
        n_lines = min(max(SAMPLE_ROWS * n_columns // n_rows, 20), SAMPLE_ROWS)
        samples = ((slice(None), run) for run in spread_slices(n_columns, n_lines))
    else:
        samples = ((run, slice(None)) for run in spread_slices(n_rows, SAMPLE_ROWS))
    any_positive = False
    for rows, columns in samples:
        values = _values(read_block(matrix, rows, columns))
        if not _is_count(values).all():
            return False
        any_positive = any_positive or bool((values > 0).any())
    return any_positive


def find_count_layers(adata: AnnData) -> list[str]:
    """Find the places of an AnnData that look like counts, each with how to use it.

    Returns
    -------
    Phrases such as ``"adata.layers['counts'] looks like counts: pass layer='counts'"``, layers first, then ``X``, then
    ``raw``.
    """
    found = [
        f"adata.layers[{key!r}] looks like counts: pass layer={key!r}"
        for key, layer in adata.layers.items()
        if looks_like_counts(layer)
    ]
    if adata.X is not None and looks_like_counts(adata.X):
        found.append("adata.X looks like counts: pass layer=None")
    if adata.raw is not None and looks_like_counts(adata.raw.X):
        if adata.var_names.isin(adata.raw.var_names).all():
            key = "raw_counts" if "counts" in adata.layers else "counts"
            advice = f"set adata.layers[{key!r}] = adata.raw[:, adata.var_names].X and pass layer={key!r}"
        else:
            advice = "use adata.raw.to_adata() in place of adata"
        found.append(f"adata.raw.X looks like counts: {advice}")
    return found


def check_mask(mask: Matrix, shape: tuple[int, int], *, name: str) -> None:
    """Refuse a mask that is not a matrix of booleans (or of 0 and 1) with the shape of the counts.

    Parameters
    ----------
    mask
        Cells x genes, dense, sparse or backed; True where a count was observed.
    shape
        Shape of the counts.
    name
        What to call the mask in messages, e.g. ``"adata.layers['observed']"``.

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
        raise ValueError(f"{name} has dtype {mask.dtype}: a mask must be boolean (True = observed), or 0 and 1.")
    for row, column, block in iter_blocks(mask):
        values = _values(block)
        wrong = (values != 0) & (values != 1)
        if wrong.any():
            where, value = _first_entry(block, wrong, row, column, None, None)
            raise ValueError(
                f"{name} holds {value} in {where}: a mask must be boolean (True = observed), or hold only 0 and 1."
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
    may_be_nan = matrix.dtype.kind == "f"
    if mask is None and not may_be_nan:
        return
    if mask is not None:
        mask = as_matrix(mask, "mask")
        if sp.issparse(mask):
            mask = mask.tocsc() if is_csc(matrix) else mask.tocsr()  # slicing across the format is slow
    n_seen = {"cells": np.zeros(matrix.shape[0], dtype=np.int64), "genes": np.zeros(matrix.shape[1], dtype=np.int64)}
    for row, column, block in iter_blocks(matrix):
        rows, columns = slice(row, row + block.shape[0]), slice(column, column + block.shape[1])
        is_nan = np.isnan(_values(block)) if may_be_nan else None
        if mask is None and not is_nan.any():
            n_seen["cells"][rows] += block.shape[1]
            n_seen["genes"][columns] += block.shape[0]
            continue
        if mask is None:
            seen = np.ones(block.shape, dtype=bool)
        else:
            seen = read_block(mask, rows, columns)
            seen = (seen.toarray() if sp.issparse(seen) else seen) != 0
        if may_be_nan:
            seen[_locate(block, is_nan)] = False
        n_seen["cells"][rows] += np.count_nonzero(seen, axis=1)
        n_seen["genes"][columns] += np.count_nonzero(seen, axis=0)

    complaints = []
    for (what, number), names in zip(n_seen.items(), (obs_names, var_names), strict=True):
        unseen = np.flatnonzero(number == 0)
        if unseen.size:
            listed = ", ".join(repr(str(names[i])) if names is not None else str(i) for i in unseen[:5])
            more = ", ..." if unseen.size > 5 else ""
            complaints.append(f"{unseen.size} of {number.size} {what} ({listed}{more})")
    if complaints:
        raise ValueError(
            f"{name} has no observed entry, all being NaN or masked out, for {' and '.join(complaints)}. "
            "Remove them before setting up the data."
        )


def check_covariates(
    obs: pd.DataFrame, categorical_keys: Sequence[str] | None, continuous_keys: Sequence[str] | None
) -> None:
    """Refuse covariates that are not columns of `obs`, have missing values, or are continuous but not finite numbers.

    Raises
    ------
    KeyError
        If a key is not a column of `obs`.
    ValueError
        If keys are given as one string, a covariate has missing values, or a continuous one is not numeric and finite.

    Examples
    --------
    >>> import pandas as pd
    >>> check_covariates(pd.DataFrame({"donor": ["a", "b"], "age": [31.0, 47.0]}), ["donor"], ["age"])
    """
    arguments = {"categorical_covariate_keys": categorical_keys, "continuous_covariate_keys": continuous_keys}
    for argument, keys in arguments.items():
        if isinstance(keys, str):
            raise ValueError(f"{argument} must be a list of keys, found the string {keys!r}: pass [{keys!r}].")
    arguments = {argument: [] if keys is None else list(keys) for argument, keys in arguments.items()}
    for argument, keys in arguments.items():
        absent = [key for key in keys if key not in obs.columns]
        if absent:
            raise KeyError(
                f"{argument}: {', '.join(map(repr, absent))} not in adata.obs, which has {_listing(obs.columns)}."
                + "".join(_suggestion(key, obs.columns) for key in absent)
            )
    for argument, keys in arguments.items():
        for key in keys:
            n_missing = int(obs[key].isna().sum())
            if n_missing:
                raise ValueError(
                    f"adata.obs[{key!r}] ({argument}) is missing in {n_missing} of {len(obs)} cells: "
                    "fill it in or remove these cells."
                )
    for key in arguments["continuous_covariate_keys"]:
        column = obs[key]
        if not pd.api.types.is_numeric_dtype(column) or pd.api.types.is_complex_dtype(column):
            raise ValueError(
                f"adata.obs[{key!r}] (continuous_covariate_keys) is not numeric, its dtype is {column.dtype}: "
                "convert it with pandas.to_numeric, or pass it in categorical_covariate_keys."
            )
        n_infinite = int(np.isinf(column.to_numpy(dtype=np.float64)).sum())
        if n_infinite:
            raise ValueError(
                f"adata.obs[{key!r}] (continuous_covariate_keys) is infinite in {n_infinite} of {len(obs)} cells."
            )


def get_matrix(adata: AnnData, layer: str | None) -> Matrix:
    """Return ``adata.layers[layer]``, or ``adata.X`` if `layer` is `None`.

    Raises
    ------
    KeyError
        If there is no such layer.
    ValueError
        If `layer` is `None` and ``adata.X`` is empty.
    """
    if layer is not None:
        if layer not in adata.layers:
            raise KeyError(
                f"layer={layer!r} is not in adata.layers, which has {_listing(adata.layers)}."
                + _suggestion(layer, adata.layers)
            )
        return adata.layers[layer]
    if adata.X is None:
        raise ValueError(f"adata.X is None: pass layer=..., adata.layers has {_listing(adata.layers)}.")
    return adata.X


def _values(block: np.ndarray | sp.csr_matrix | sp.csc_matrix) -> np.ndarray:
    return block.data if sp.issparse(block) else block


def _locate(block: np.ndarray | sp.csr_matrix | sp.csc_matrix, flags: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and columns in the block of the values for which `flags` is True."""
    if not sp.issparse(block):
        return np.nonzero(flags)
    coo = block.tocoo()  # keeps the order of the values
    return coo.row[flags], coo.col[flags]


# What is wrong, and where


def _is_count(values: np.ndarray) -> np.ndarray:
    """Flag whole numbers from 0 to 2**53 and for NaN."""
    if values.dtype.kind == "b":
        return np.ones(values.shape, dtype=bool)
    valid = values >= 0
    valid &= values <= _max_count(values.dtype)
    if values.dtype.kind == "f":
        valid &= values == np.floor(values)
        if not valid.all():
            valid |= np.isnan(values)
    return valid


def _max_count(dtype: np.dtype) -> np.generic:
    """Return 2**53 or, if less, the largest finite number of the type."""
    largest = np.iinfo(dtype).max if dtype.kind in "iu" else float(np.finfo(dtype).max)
    return dtype.type(min(MAX_COUNT, largest))


def _first_problem(values: np.ndarray, wrong: np.ndarray) -> tuple[str, np.ndarray]:
    """Return the gravest problem among the wrong values, and which of them have it."""
    bad = values[wrong]
    problems = {
        "infinite": np.isinf(bad),
        "negative": bad < 0,
        "non-integer": bad != np.floor(bad),
        "too large": bad > _max_count(bad.dtype),
    }
    problem = next(problem for problem, found in problems.items() if found.any())
    flags = np.zeros_like(wrong)
    flags[wrong] = problems[problem]
    return problem, flags


def _first_entry(
    block: np.ndarray | sp.csr_matrix | sp.csc_matrix,
    flags: np.ndarray,
    row: int,
    column: int,
    obs_names: Names,
    var_names: Names,
) -> tuple[str, str]:
    """Say where the first flagged entry of a block is, by cell and then by gene, and its value."""
    rows, columns = _locate(block, flags)
    first = np.lexsort((columns, rows))[0]
    i, j = int(rows[first]) + row, int(columns[first]) + column
    cell = f"cell {i}" if obs_names is None else f"cell {str(obs_names[i])!r} (row {i})"
    gene = f"gene {j}" if var_names is None else f"gene {str(var_names[j])!r} (column {j})"
    return f"{cell}, {gene}", str(_values(block)[flags][first])


def _advice(problem: str, values: np.ndarray, wrong: np.ndarray) -> list[str]:
    if problem == "infinite":
        return ["Counts must be finite: mark missing entries as NaN."]
    if problem == "too large":
        return ["Counts must be at most 2**53, above which they are no longer exact."]
    advice = ["Counts must be non-negative whole numbers, or NaN where missing."]
    if problem == "negative" and (values != np.floor(values)).any():
        advice.append("This looks scaled or centred.")
    if problem == "non-integer":
        bad = values[wrong]
        if np.abs(bad - np.rint(bad)).max() < 1e-3:
            advice.append("All of these are within 0.001 of a whole number: if this is rounding error, use numpy.rint.")
        elif np.nanmax(values) < 30:
            advice.append("This looks log-normalised.")
    return advice


def _listing(keys: Any) -> str:
    return ", ".join(map(repr, keys)) or "none"


def _suggestion(key: Any, options: Any) -> str:
    close = difflib.get_close_matches(str(key), map(str, options), n=1)
    return f" Did you mean {close[0]!r} for {str(key)!r}?" if close else ""
