"""Energy distance of the pooled hidden entries."""

from __future__ import annotations

import numpy as np
from scipy import stats

from sccountsdiff.benchmark.metrics.inputs import at_sites
from sccountsdiff.benchmark.metrics.registry import register_metric


@register_metric("energy_distance", direction="lower", group="distributional")
def energy_distance(truth: np.ndarray, imputed: np.ndarray, sites: np.ndarray) -> float:
    """Energy distance between all true and all imputed values at the sites, pooled over cells and genes.

    Parameters
    ----------
    truth, imputed
        Counts (cells, genes).
    sites
        Boolean (cells, genes), ``True`` where the entry was hidden.

    Returns
    -------
    The distance, 0 at best.

    Examples
    --------
    >>> import numpy as np
    >>> sites = np.ones((1, 2), dtype=bool)
    >>> energy_distance(np.array([[0, 1]]), np.array([[1, 0]]), sites)
    0.0
    """
    # Counts repeat: as values with weights they need far less memory.
    (true_values, true_weights), (values, weights) = (
        np.unique(part, return_counts=True) for part in at_sites(truth, imputed, sites)
    )
    return float(stats.energy_distance(true_values, values, true_weights, weights))
