"""Errors of single entries, averaged within each cell, then over cells.

Cells without a hidden entry are left out.
"""

from __future__ import annotations

import numpy as np

from sccountsdiff.benchmark.metrics.inputs import is_constant, mean_at_sites, mean_over_cells
from sccountsdiff.benchmark.metrics.registry import register_metric


@register_metric("rmse", direction="lower")
def rmse(truth: np.ndarray, imputed: np.ndarray, sites: np.ndarray) -> float:
    """Root mean squared error of each cell, averaged over cells.

    Parameters
    ----------
    truth, imputed
        Counts (cells, genes).
    sites
        Boolean (cells, genes), ``True`` where the entry was hidden.

    Returns
    -------
    The error in counts, 0 at best.

    Examples
    --------
    >>> import numpy as np
    >>> sites = np.ones((2, 2), dtype=bool)
    >>> rmse(np.array([[1, 2], [3, 4]]), np.array([[1, 2], [5, 6]]), sites)
    1.0
    """
    return mean_over_cells(lambda t, p, s: np.sqrt(mean_at_sites((p - t) ** 2, s)), truth, imputed, sites)


@register_metric("mae", direction="lower")
def mae(truth: np.ndarray, imputed: np.ndarray, sites: np.ndarray) -> float:
    """Mean absolute error of each cell, averaged over cells.

    Parameters
    ----------
    truth, imputed
        Counts (cells, genes).
    sites
        Boolean (cells, genes), ``True`` where the entry was hidden.

    Returns
    -------
    The error in counts, 0 at best.

    Examples
    --------
    >>> import numpy as np
    >>> mae(np.array([[1, 2]]), np.array([[0, 5]]), np.ones((1, 2), dtype=bool))
    2.0
    """
    return mean_over_cells(lambda t, p, s: mean_at_sites(np.abs(p - t), s), truth, imputed, sites)


@register_metric("bias", direction="zero")
def bias(truth: np.ndarray, imputed: np.ndarray, sites: np.ndarray) -> float:
    """Mean of imputed minus true in each cell, averaged over cells.

    Parameters
    ----------
    truth, imputed
        Counts (cells, genes).
    sites
        Boolean (cells, genes), ``True`` where the entry was hidden.

    Returns
    -------
    In counts; above 0 if too much is filled in.

    Examples
    --------
    >>> import numpy as np
    >>> bias(np.array([[1, 2]]), np.array([[0, 5]]), np.ones((1, 2), dtype=bool))
    1.0
    """
    return mean_over_cells(lambda t, p, s: mean_at_sites(p - t, s), truth, imputed, sites)


@register_metric("r2", direction="higher")
def r2(truth: np.ndarray, imputed: np.ndarray, sites: np.ndarray) -> float:
    """Share of the variance of the truth that is explained in each cell, averaged over cells.

    One minus the squared error over the variance of the *truth* among the hidden entries of the cell. Cells whose hidden
    counts are all the same have none and are left out.

    Parameters
    ----------
    truth, imputed
        Counts (cells, genes).
    sites
        Boolean (cells, genes), ``True`` where the entry was hidden.

    Returns
    -------
    1 at best; below 0 if worse than the mean of the hidden counts of the cell.

    Examples
    --------
    >>> import numpy as np
    >>> truth, sites = np.array([[1.0, 2.0, 3.0]]), np.ones((1, 3), dtype=bool)
    >>> r2(truth, truth, sites), r2(truth, np.full((1, 3), 2.0), sites)
    (1.0, 0.0)
    """
    return mean_over_cells(_r2_of_cells, truth, imputed, sites)


def _r2_of_cells(truth: np.ndarray, imputed: np.ndarray, sites: np.ndarray) -> np.ndarray:
    variance = mean_at_sites((truth - mean_at_sites(truth, sites)[:, None]) ** 2, sites)
    variance[is_constant(truth, sites)] = np.nan
    return 1 - mean_at_sites((imputed - truth) ** 2, sites) / variance
