"""What counts are, and where in an AnnData they may be; checked before any work starts.

Every entry is looked at, block by block, so that backed data never has to fit in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from sccountsdiff.compat import layer_names
from sccountsdiff.data.messages import Names, first_entry, listing, matrix_name, suggestion, values_of
from sccountsdiff.data.reading import Block, Matrix, as_matrix, is_csc, iter_blocks, read_block, spread_ranges

if TYPE_CHECKING:
    from anndata import AnnData

MAX_COUNT = 2**53  # float64 holds every integer up to here
SAMPLE_ROWS = 1_000


def check_counts(
    matrix: Matrix,
    *,
    name: str,
    rows: np.ndarray | None = None,
    obs_names: Names = None,
    var_names: Names = None,
    hints: Callable[[], list[str]] = list,
) -> None:
    """Refuse a matrix that holds anything but counts; NaN stands for a missing count and is allowed.

    Parameters
    ----------
    matrix
        Cells x genes, in any form that :func:`iter_row_chunks` takes.
    name
        What to call the matrix in messages, e.g. ``"adata.layers['counts']"``.
    rows
        The only cells to look at, in increasing order; default: all.
    obs_names, var_names
        Names of cells and genes for messages; positions are given without them.
    hints
        Returns where counts may be instead, as :func:`find_count_layers` does; called only when the check fails.

    Raises
    ------
    ValueError
        If there is no cell or no gene, or if an entry is infinite, negative, not a whole number or above 2**53.

    Examples
    --------
    >>> check_counts(adata.X, name="adata.X", hints=lambda: find_count_layers(adata, "adata.X"))
    """
    matrix = as_matrix(matrix, name)
    check_form(matrix, name)
    last_row = matrix.shape[0] - 1 if rows is None else int(rows[-1])
    for in_rows, in_columns, block in iter_blocks(matrix, rows):
        is_last = in_rows[-1] == last_row and in_columns[-1] == matrix.shape[1] - 1
        check_block(
            block,
            in_rows,
            in_columns,
            name=name,
            obs_names=obs_names,
            var_names=var_names,
            hints=hints,
            is_last=is_last,
        )


def check_form(matrix: Matrix, name: str) -> None:
    """Refuse a matrix that is empty or of a type that cannot hold counts."""
    for what, length in zip(("cells", "genes"), matrix.shape, strict=True):
        if length == 0:
            raise ValueError(f"{name} has no {what}: its shape is {matrix.shape}.")
    if matrix.dtype.kind not in "biuf":
        raise ValueError(
            f"{name} has dtype {matrix.dtype}, which cannot hold counts: convert it to integers or floats."
        )


def check_block(
    block: Block,
    rows: range | np.ndarray,
    columns: range,
    *,
    name: str,
    obs_names: Names = None,
    var_names: Names = None,
    hints: Callable[[], list[str]] = list,
    is_last: bool = False,
) -> None:
    """Refuse a part of a matrix that holds anything but counts or NaN; see :func:`check_counts`.

    Parameters
    ----------
    block
        Part of the matrix.
    rows, columns
        Where it is in the matrix.
    name, obs_names, var_names, hints
        As in :func:`check_counts`.
    is_last
        Whether nothing comes after it, so that the number of wrong entries is known.
    """
    values = values_of(block)
    valid = _is_count(values)
    if valid.all():
        return
    problem, wrong = _first_problem(values, ~valid)
    where, value = first_entry(block, wrong, rows, columns, obs_names, var_names)
    number = f"{'' if is_last else 'at least '}{wrong.sum()} {problem} {'entry' if wrong.sum() == 1 else 'entries'}"
    advice = [*_advice(problem, values, wrong), *(f"{hint}." for hint in hints())]
    raise ValueError(" ".join([f"{name} holds {number}; the first is {value} in {where}.", *advice]))


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
        samples = [(range(n_rows), run) for run in spread_ranges(n_columns, n_lines)]
    else:
        samples = [(run, range(n_columns)) for run in spread_ranges(n_rows, SAMPLE_ROWS)]
    any_positive = False
    for rows, columns in samples:
        values = values_of(read_block(matrix, rows, columns))
        if not _is_count(values).all():
            return False
        any_positive = any_positive or bool((values > 0).any())
    return any_positive


def default_layer(adata: AnnData) -> str | None:
    """Where counts are if nobody says: in the layer ``counts`` if there is one, else in ``X``, which is `None`.

    Examples
    --------
    >>> print(default_layer(adata))
    None
    """
    return "counts" if "counts" in adata.layers else None


def find_count_layers(adata: AnnData, name: str, setup: str | None = None) -> list[str]:
    """Find the places of an AnnData that look like counts, each with how to use it.

    Parameters
    ----------
    adata
        Data.
    name
        What is read in vain, e.g. ``"adata.X"``; it is left out.
    setup
        Method to which another layer can be passed, as its argument ``layer``; ``""``: the one that was called. `None`:
        a model says what is read, so counts have to be put there.

    Returns
    -------
    Phrases such as ``"adata.layers['raw'] looks like counts: pass layer='raw' to CountsDiffImputer.setup_anndata"``,
    layers first, then ``X``, then ``raw``.

    Examples
    --------
    >>> adata.layers["raw"] = adata.X.copy()
    >>> find_count_layers(adata, "adata.X")
    ["adata.layers['raw'] looks like counts: the model reads adata.X, so set adata.X = adata.layers['raw']"]
    """

    def use(layer: str | None, place: str) -> str:
        if setup is None:
            return f"the model reads {name}, so set {name} = {place}"
        return f"pass layer={layer or 'X'!r}" + (f" to {setup}" if setup else "")

    found = {}
    for layer in (*layer_names(adata), None):
        matrix, place = adata.X if layer is None else adata.layers[layer], matrix_name(layer)
        if place != name and matrix is not None and looks_like_counts(matrix):
            found[place] = use(layer, place)
    if adata.raw is not None and looks_like_counts(adata.raw.X):
        place = "adata.raw[:, adata.var_names].X"
        key = "raw_counts" if "counts" in adata.layers else "counts"
        if not adata.var_names.isin(adata.raw.var_names).all():
            found["adata.raw.X"] = "use adata.raw.to_adata() in place of adata"
        elif setup is None:
            found["adata.raw.X"] = use(key, place)
        else:
            found["adata.raw.X"] = f"set adata.layers[{key!r}] = {place} and {use(key, place)}"
    return [f"{place} looks like counts: {advice}" for place, advice in found.items()]


def get_matrix(adata: AnnData, layer: str | None, argument: str | None = "layer", setup: str | None = "") -> Matrix:
    """Return ``adata.layers[layer]``, or ``adata.X`` if `layer` is `None`.

    Parameters
    ----------
    adata
        Data.
    layer
        Layer, or `None`.
    argument
        Argument that named the layer, for messages; `None`: a model says what is read.
    setup
        As in :func:`find_count_layers`, for messages.

    Raises
    ------
    KeyError
        If there is no such layer.
    ValueError
        If `layer` is `None` and ``adata.X`` is empty.
    """
    if layer is not None:
        if not isinstance(layer, str):
            raise TypeError(f"`{argument or 'layer'}` must be the name of a layer, not {layer!r}.")
        if layer not in adata.layers:
            asked = f"{layer!r}, which the model reads," if argument is None else f"{argument}={layer!r}"
            hints = find_count_layers(adata, matrix_name(layer), setup) if argument in (None, "layer") else []
            raise KeyError(
                f"{asked} is not in adata.layers, which has {listing(layer_names(adata))}."
                + suggestion(layer, layer_names(adata))
                + "".join(f" {hint}." for hint in hints)
            )
        return adata.layers[layer]
    if adata.X is None:
        advice = "the model reads the counts there" if argument is None else f"pass {argument}=..."
        raise ValueError(f"adata.X is None: {advice}, adata.layers has {listing(layer_names(adata))}.")
    return adata.X


def _is_count(values: np.ndarray) -> np.ndarray:
    """Which values are whole numbers from 0 to 2**53, or NaN."""
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
