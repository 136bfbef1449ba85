"""Continuous ranked probability score of draws."""

from __future__ import annotations

import numpy as np

from sccountsdiff.benchmark.metrics.inputs import blocks, draws_at_sites
from sccountsdiff.benchmark.metrics.registry import register_metric


@register_metric("crps", direction="lower", group="calibration")
def crps(truth: np.ndarray, draws: np.ndarray, sites: np.ndarray) -> float:
    """Continuous ranked probability score, averaged over the sites: the mean absolute error of a whole distribution.

    ``mean |draw - truth| - mean |draw - other draw| / 2``, over pairs of different draws, so that few draws are not at a
    disadvantage against many.

    Parameters
    ----------
    truth
        Counts (cells, genes).
    draws
        Draws at the sites, (n_draws, n_sites), in row-major order: ``full_draws[:, sites]``. Two at least.
    sites
        Boolean (cells, genes), ``True`` where the entry was hidden.

    Returns
    -------
    The mean score in counts; lower is better, 0 at best.

    Examples
    --------
    >>> import numpy as np
    >>> crps(np.array([[3]]), np.array([[3], [3]]), np.array([[True]]))
    0.0
    >>> crps(np.array([[3]]), np.array([[2], [5]]), np.array([[True]]))
    0.0
    >>> crps(np.array([[9]]), np.array([[2], [5]]), np.array([[True]]))
    4.0
    """
    x, draws = draws_at_sites(truth, draws, sites, least=2)
    n = len(draws)
    # The sum of |a - b| over all pairs is a weighted sum of the sorted values.
    weights = (2 * np.arange(1, n + 1) - n - 1) / (n * (n - 1))
    total = 0.0
    for b in blocks(len(x), max(1, (1 << 24) // n)):
        values = np.sort(draws[:, b], axis=0).astype(np.float64)
        total += np.abs(values - x[b]).mean(axis=0).sum() - (weights @ values).sum()
    return float(total / len(x))
