"""Sliced Wasserstein distance of whole cells."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from sccountsdiff.benchmark.metrics.inputs import best_device, blocks, check_pair
from sccountsdiff.benchmark.metrics.registry import register_metric

AT_A_TIME = 2**24
"""Projections that are held at a time: 128 MB of each matrix."""


@register_metric("sliced_wasserstein", direction="lower", group="distributional")
def sliced_wasserstein(truth: np.ndarray, imputed: np.ndarray, *, n_projections: int = 1000, seed: int = 0) -> float:
    """Sliced Wasserstein-2 distance between the true cells and the cells with their hidden entries filled in.

    Both are projected onto random directions; on each, the distance of the two empirical distributions is the root mean
    squared difference of the sorted values.

    Parameters
    ----------
    truth, imputed
        Counts (cells, genes), the same number of cells.
    n_projections
        Number of directions.
    seed
        Seed of the directions.

    Returns
    -------
    The distance, 0 at best.

    Examples
    --------
    In one dimension all directions are alike:

    >>> import numpy as np
    >>> cells = np.arange(5.0)[:, None]
    >>> round(sliced_wasserstein(cells, cells[::-1] + 2), 6)
    2.0
    """
    check_pair(truth, imputed)
    rng = np.random.default_rng(seed)
    directions = rng.standard_normal((n_projections, truth.shape[1]))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    towards = torch.as_tensor(directions, device=best_device())
    total = 0.0
    for block in blocks(n_projections, max(AT_A_TIME // len(truth), 1)):
        true_places, places = (_sorted_projections(cells, towards[block]) for cells in (truth, imputed))
        total += float((true_places - places).square().sum())
    return float(np.sqrt(total / (n_projections * len(truth))))


def _sorted_projections(cells: np.ndarray, directions: Tensor) -> Tensor:
    """Shape (directions, cells), each row sorted."""
    parts = (
        torch.as_tensor(np.asarray(cells[b], np.float64), device=directions.device) for b in blocks(len(cells), 8192)
    )
    return torch.cat([directions @ part.T for part in parts], dim=1).sort(dim=1).values
