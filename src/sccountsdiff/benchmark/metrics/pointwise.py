"""Errors of single entries; most are averaged within each cell, then over cells.

Cells without a hidden entry are left out.
"""

from __future__ import annotations

import numpy as np

from sccountsdiff.benchmark.metrics.inputs import at_sites, blocks, is_constant, mean_at_sites, mean_over_cells
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


@register_metric("log_mse", direction="lower")
def log_mse(truth: np.ndarray, imputed: np.ndarray, sites: np.ndarray) -> float:
    """Mean squared error of the log counts, ``log(1 + x)``, over all sites.

    A few large counts do not decide it, as they do a squared error of counts. What scores best is not the mean of a count
    but something below it, as the mean of a logarithm is below the logarithm of the mean.

    Parameters
    ----------
    truth, imputed
        Counts (cells, genes).
    sites
        Boolean (cells, genes), ``True`` where the entry was hidden.

    Returns
    -------
    The error, 0 at best.

    Examples
    --------
    >>> import numpy as np
    >>> round(log_mse(np.array([[0, 2]]), np.array([[np.e - 1, 2]]), np.ones((1, 2), dtype=bool)), 6)
    0.5
    """
    x, guess = at_sites(truth, imputed, sites)
    parts = ((np.log1p(guess[b]) - np.log1p(x[b])) ** 2 for b in blocks(len(x), 1 << 20))
    return float(sum(part.sum(dtype=np.float64) for part in parts) / len(x))


@register_metric("ratio_of_sums", direction="one")
def ratio_of_sums(truth: np.ndarray, imputed: np.ndarray, sites: np.ndarray) -> float:
    """Sum of the imputed counts over the sum of the true ones, over all sites.

    Parameters
    ----------
    truth, imputed
        Counts (cells, genes).
    sites
        Boolean (cells, genes), ``True`` where the entry was hidden.

    Returns
    -------
    1 if as much is filled in as was hidden; NaN if nothing but zeros was hidden.

    Examples
    --------
    >>> import numpy as np
    >>> ratio_of_sums(np.array([[1, 3]]), np.array([[0, 2]]), np.ones((1, 2), dtype=bool))
    0.5
    """
    x, guess = at_sites(truth, imputed, sites)
    total = x.sum(dtype=np.float64)
    return float(guess.sum(dtype=np.float64) / total) if total else float("nan")


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
