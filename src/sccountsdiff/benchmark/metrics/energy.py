"""Energy distance of the pooled hidden entries."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from sccountsdiff.benchmark.metrics.inputs import best_device, blocks, check_pair, check_sites
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
    check_pair(truth, imputed)
    check_sites(truth, sites)
    (values, shares), (other_values, other_shares) = (_distribution(cells, sites) for cells in (truth, imputed))
    values, order = torch.cat([values, other_values]).sort()
    difference = torch.cat([shares, -other_shares])[order].cumsum(0)[:-1]  # of the distribution functions
    return float((2 * (difference.square() * values.diff()).sum()).sqrt())


def _distribution(cells: np.ndarray, sites: np.ndarray) -> tuple[Tensor, Tensor]:
    """Values at the sites and their shares. Counts repeat: block by block only different ones are kept."""
    device = best_device()
    parts = (torch.as_tensor(cells[block][sites[block]], device=device) for block in blocks(len(cells)))
    values, numbers = zip(*(torch.unique(part, return_counts=True) for part in parts), strict=True)
    shares = torch.cat(numbers).double()
    return torch.cat(values).double(), shares / shares.sum()
