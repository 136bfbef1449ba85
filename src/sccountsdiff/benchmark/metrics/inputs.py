"""Checks of arguments and walks over cells that metrics share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch

CHUNK = 2048


def best_device() -> torch.device:
    """A GPU that computes in double precision, or the CPU.

    Examples
    --------
    >>> best_device().type in ("cpu", "cuda")
    True
    """
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def blocks(n: int, size: int = CHUNK) -> Iterator[slice]:
    """Slices that cover ``range(n)``.

    Examples
    --------
    >>> list(blocks(5, 3))
    [slice(0, 3, None), slice(3, 5, None)]
    """
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


def check_pair(truth: np.ndarray, imputed: np.ndarray) -> None:
    """Two finite matrices of the same shape, or a clear error.

    Examples
    --------
    >>> import numpy as np
    >>> check_pair(np.zeros((2, 3)), np.zeros((2, 4)))
    Traceback (most recent call last):
    ...
    ValueError: truth and imputed must be matrices of the same shape, found (2, 3) and (2, 4).
    """
    if np.ndim(truth) != 2 or np.shape(truth) != np.shape(imputed):
        raise ValueError(
            f"truth and imputed must be matrices of the same shape, found {np.shape(truth)} and {np.shape(imputed)}."
        )
    if 0 in np.shape(truth):
        raise ValueError(f"truth is empty, found shape {np.shape(truth)}.")
    for name, values in (("truth", truth), ("imputed", imputed)):
        if not np.isfinite(values).all():
            raise ValueError(f"{name} has NaN or infinite entries; metrics need complete matrices.")


def check_sites(truth: np.ndarray, sites: np.ndarray) -> None:
    """A boolean matrix of the shape of ``truth`` with at least one ``True``, or a clear error.

    Examples
    --------
    >>> import numpy as np
    >>> check_sites(np.zeros((2, 3)), np.zeros((2, 3), dtype=bool))
    Traceback (most recent call last):
    ...
    ValueError: sites is False everywhere: there is nothing to compare.
    """
    if np.asarray(sites).dtype != bool or np.shape(sites) != np.shape(truth):
        raise ValueError(
            f"sites must be a boolean matrix of the shape of truth, {np.shape(truth)}, "
            f"found {np.asarray(sites).dtype} of shape {np.shape(sites)}."
        )
    if not np.any(sites):
        raise ValueError("sites is False everywhere: there is nothing to compare.")


def at_sites(truth: np.ndarray, imputed: np.ndarray, sites: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Checked ``truth[sites]`` and ``imputed[sites]``.

    Examples
    --------
    >>> import numpy as np
    >>> at_sites(np.array([[1, 2]]), np.array([[3, 4]]), np.array([[False, True]]))
    (array([2]), array([4]))
    """
    check_pair(truth, imputed)
    check_sites(truth, sites)
    return truth[sites], imputed[sites]


def draws_at_sites(truth: np.ndarray, draws: np.ndarray, sites: np.ndarray, least: int = 1) -> tuple:
    """Checked ``truth[sites]`` and draws (n_draws, n_sites).

    Examples
    --------
    >>> import numpy as np
    >>> truth, sites = np.array([[1, 2], [3, 4]]), np.array([[True, False], [False, True]])
    >>> draws_at_sites(truth, np.array([[5, 6], [7, 8]]), sites)[0]
    array([1, 4])
    """
    check_sites(truth, sites)
    draws = np.asarray(draws)
    n_sites = np.count_nonzero(sites)
    if draws.ndim != 2 or draws.shape[1] != n_sites or draws.shape[0] < least:
        raise ValueError(
            f"draws must have shape (n_draws, {n_sites}): one row per draw, at least {least}, with the values at the "
            f"sites in row-major order, as in full_draws[:, sites]; found {draws.shape}."
        )
    return np.asarray(truth)[sites], draws


def mean_over_cells(
    statistic: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray],
    truth: np.ndarray,
    imputed: np.ndarray,
    sites: np.ndarray,
) -> float:
    """Average a statistic of each cell over the cells where it is defined (not NaN).

    Parameters
    ----------
    statistic
        Takes blocks of cells, ``truth``, ``imputed`` as float64 and ``sites``, and gives one number per cell.
    truth, imputed, sites
        Matrices (cells, genes).

    Returns
    -------
    The mean; NaN if it is defined in no cell.

    Examples
    --------
    >>> import numpy as np
    >>> truth, sites = np.array([[1, 2], [3, 4]]), np.array([[True, True], [False, False]])
    >>> mean_over_cells(lambda t, p, s: mean_at_sites(p - t, s), truth, truth + 1, sites)
    1.0
    """
    check_pair(truth, imputed)
    check_sites(truth, sites)
    as_float = partial(np.asarray, dtype=np.float64)
    parts = ((as_float(truth[b]), as_float(imputed[b]), np.asarray(sites[b])) for b in blocks(len(truth)))
    values = np.concatenate([statistic(*part) for part in parts])
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if defined.size else float("nan")


def mean_at_sites(values: np.ndarray, sites: np.ndarray) -> np.ndarray:
    """Mean of each row over its sites; NaN for rows without any.

    Examples
    --------
    >>> import numpy as np
    >>> mean_at_sites(np.array([[1.0, 3.0], [5.0, 7.0]]), np.array([[True, True], [False, False]]))
    array([ 2., nan])
    """
    with np.errstate(invalid="ignore"):
        return values.sum(axis=1, where=sites) / sites.sum(axis=1)


def is_constant(values: np.ndarray, sites: np.ndarray) -> np.ndarray:
    """Whether all values of a row at its sites are the same.

    Examples
    --------
    >>> import numpy as np
    >>> is_constant(np.array([[1.0, 1.0, 2.0]]), np.array([[True, True, False]]))
    array([ True])
    """
    return values.max(axis=1, where=sites, initial=-np.inf) <= values.min(axis=1, where=sites, initial=np.inf)
