"""Correlations within each cell, averaged over cells.

A cell whose hidden counts are all the same has no correlation for any method and is left out. Where only the imputed
values are all the same, the correlation counts as 0: they say nothing about the order of the genes, and a method does not
gain by giving constants where it is hard.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import rankdata

from sccountsdiff.benchmark.metrics.inputs import is_constant, mean_at_sites, mean_over_cells
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
    return mean_over_cells(_spearman_of_cells, truth, imputed, sites)


def _spearman_of_cells(truth: np.ndarray, imputed: np.ndarray, sites: np.ndarray) -> np.ndarray:
    # Ranks are those among the sites: all other entries come after them.
    ranks = (rankdata(np.where(sites, values, np.inf), axis=1) for values in (truth, imputed))
    return _pearson_of_cells(*ranks, sites)


def _pearson_of_cells(truth: np.ndarray, imputed: np.ndarray, sites: np.ndarray) -> np.ndarray:
    x = truth - mean_at_sites(truth, sites)[:, None]
    y = imputed - mean_at_sites(imputed, sites)[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        r = mean_at_sites(x * y, sites) / np.sqrt(mean_at_sites(x**2, sites) * mean_at_sites(y**2, sites))
    r[is_constant(imputed, sites)] = 0
    r[is_constant(truth, sites)] = np.nan
    return r
