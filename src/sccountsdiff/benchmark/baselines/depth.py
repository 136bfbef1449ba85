"""The sequencing depth of cells of which some entries are hidden."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

PSEUDO_COUNT = 10.0


def depth_factor(
    counts: np.ndarray, observed: np.ndarray, expected: np.ndarray, pseudo_count: float = PSEUDO_COUNT
) -> np.ndarray:
    """Observed total of each cell over what was expected of its observed entries.

    Parameters
    ----------
    counts
        Counts (cells, genes), 0 where hidden.
    observed
        Boolean (cells, genes).
    expected
        Expected counts of an average cell: (genes,) or (cells, genes).
    pseudo_count
        Added to both totals, so that a cell with nothing observed gets the factor 1.

    Returns
    -------
    Array of shape (cells, 1).

    Examples
    --------
    >>> import numpy as np
    >>> counts, observed = np.array([[4.0, 0.0], [0.0, 0.0]]), np.array([[True, False], [False, False]])
    >>> depth_factor(counts, observed, np.array([2.0, 5.0]), pseudo_count=0.5)
    array([[1.8],
           [1. ]])
    """
    options = {"axis": 1, "where": observed, "keepdims": True, "dtype": np.float64}
    total = np.sum(counts, **options) + pseudo_count
    expected_total = np.sum(np.broadcast_to(expected, counts.shape), **options) + pseudo_count
    return np.divide(total, expected_total, out=np.ones_like(total), where=expected_total > 0)


def batch_depth(counts: Tensor, observed: Tensor, expected: Tensor, pseudo_count: float = PSEUDO_COUNT) -> Tensor:
    """:func:`depth_factor` of tensors; (cells, 1).

    Examples
    --------
    >>> import torch
    >>> counts, observed = torch.tensor([[4.0, 7.0], [0.0, 0.0]]), torch.tensor([[True, False], [False, False]])
    >>> batch_depth(counts, observed, torch.tensor([2.0, 5.0]), pseudo_count=0.5).tolist()
    [[1.7999999523162842], [1.0]]
    """
    total, expected_total = (
        torch.where(observed, values, 0.0).sum(dim=1, keepdim=True) + pseudo_count for values in (counts, expected)
    )
    return torch.where(expected_total > 0, total / expected_total, 1.0)
