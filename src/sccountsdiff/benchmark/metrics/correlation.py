"""Correlations within each cell, averaged over cells.

A cell whose hidden counts are all the same has no correlation for any method and is left out. Where only the imputed
values are all the same, the correlation counts as 0: they say nothing about the order of the genes, and a method does not
gain by giving constants where it is hard.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import rankdata

from sccountsdiff.benchmark.metrics.inputs import is_constant, masked_mean, mean_over_cells
from sccountsdiff.benchmark.metrics.registry import register_metric


@register_metric("pearson", direction="higher")
def pearson(truth: np.ndarray, imputed: np.ndarray, sites: np.ndarray) -> float:
    """Pearson correlation over the hidden genes of each cell, averaged over cells.

    Parameters
    ----------
    truth, imputed
        Counts (cells, genes).
    sites
        Boolean (cells, genes), ``True`` where the entry was hidden.

    Returns
    -------
    Between -1 and 1.

    Examples
    --------
    >>> import numpy as np
    >>> truth, sites = np.array([[1.0, 2.0, 3.0]]), np.ones((1, 3), dtype=bool)
    >>> round(pearson(truth, 10 * truth, sites), 6), pearson(truth, 0 * truth, sites)
    (1.0, 0.0)
    """
    return mean_over_cells(_pearson_of_cells, truth, imputed, sites)


@register_metric("spearman", direction="higher")
def spearman(truth: np.ndarray, imputed: np.ndarray, sites: np.ndarray) -> float:
    """Spearman correlation over the hidden genes of each cell, averaged over cells; ties get their average rank.

    Parameters
    ----------
    truth, imputed
        Counts (cells, genes).
    sites
        Boolean (cells, genes), ``True`` where the entry was hidden.

    Returns
    -------
    Between -1 and 1.

    Examples
    --------
    >>> import numpy as np
    >>> truth, sites = np.array([[1.0, 2.0, 9.0]]), np.ones((1, 3), dtype=bool)
    >>> round(spearman(truth, truth**3, sites), 6)
    1.0
    """
    return mean_over_cells(lambda t, p, m: _pearson_of_cells(_ranks(t, m), _ranks(p, m), m), truth, imputed, sites)


def _ranks(values: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Ranks among the entries of the mask: all others are put behind them."""
    return rankdata(np.where(mask, values, np.inf), axis=1)


def _pearson_of_cells(truth: np.ndarray, imputed: np.ndarray, sites: np.ndarray) -> np.ndarray:
    x = truth - masked_mean(truth, sites)[:, None]
    y = imputed - masked_mean(imputed, sites)[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        r = masked_mean(x * y, sites) / np.sqrt(masked_mean(x**2, sites) * masked_mean(y**2, sites))
    r[is_constant(imputed, sites)] = 0
    r[is_constant(truth, sites)] = np.nan
    return r
