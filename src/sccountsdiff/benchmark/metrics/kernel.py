"""Maximum mean discrepancy of whole cells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sccountsdiff.benchmark.metrics.inputs import best_device, blocks, check_pair
from sccountsdiff.benchmark.metrics.registry import register_metric

BLOCK = 256
"""Cells whose distances are taken at a time: so few that their kernels stay in the cache of a CPU."""

DOUBLE_UP_TO = 4096
"""With more cells than this, kernels are computed in single precision; their sums are in double precision always."""


def mmd_of_resamples(truth: np.ndarray, imputed: np.ndarray, *, numbers: np.ndarray, **options: Any) -> np.ndarray:
    """``mmd`` of several resamples of the cells at the cost of one: kernels are computed once.

    The kernels are those of all cells, for every resample.

    Parameters
    ----------
    truth, imputed
        Counts (cells, genes).
    numbers
        How many times each cell is in each resample, (resamples, cells).
    **options
        ``scales`` and ``seed`` of ``mmd``.

    Returns
    -------
    The discrepancy of each resample.

    Examples
    --------
    >>> import numpy as np
    >>> cells = np.random.default_rng(0).poisson(3, (50, 4))
    >>> values = mmd_of_resamples(cells, cells + 1, numbers=np.stack([np.ones(50), np.arange(50) % 2]))
    >>> bool(np.isclose(values[0], mmd(cells, cells + 1)))
    True
    """
    check_pair(truth, imputed)
    if np.ndim(numbers) != 2 or np.shape(numbers)[1] != len(truth):
        raise ValueError(f"numbers must have shape (resamples, {len(truth)}), found {np.shape(numbers)}.")
    return _discrepancies(truth, imputed, _widths(truth, **options), np.asarray(numbers, dtype=np.float64))


@register_metric("mmd", direction="lower", group="distributional", quadratic=True, of_resamples=mmd_of_resamples)
def mmd(
    truth: np.ndarray,
    imputed: np.ndarray,
    *,
    scales: Sequence[float] = (0.25, 0.5, 1, 2, 4),
    max_cells: int | None = None,
    seed: int = 0,
) -> float:
    """Squared maximum mean discrepancy between true and imputed cells, averaged over Gaussian kernels.

    The kernels are ``exp(-d**2 / (2 (scale * median)**2))``; the median distance is taken between true cells only (at most
    2,000 of them), so that all methods meet the same kernels. The estimate is the one that is never negative and is 0 for
    identical cells (a V-statistic). A GPU is used if there is one.

    Parameters
    ----------
    truth, imputed
        Counts (cells, genes).
    scales
        Kernel widths, as multiples of the median distance.
    max_cells
        Compare at most so many cells, the same of both, chosen at random. The time grows with the square of their
        number.
    seed
        Seed of the choice of cells.

    Returns
    -------
    The discrepancy, 0 at best.

    Examples
    --------
    >>> import numpy as np
    >>> cells = np.random.default_rng(0).poisson(3, (50, 4))
    >>> mmd(cells, cells) == 0 < mmd(cells, cells + 1) < mmd(cells, cells + 2)
    True
    """
    check_pair(truth, imputed)
    rng = np.random.default_rng(seed)
    if max_cells is not None and len(truth) > max_cells:
        cells = np.sort(rng.choice(len(truth), max_cells, replace=False))
        truth, imputed = truth[cells], imputed[cells]
    widths = _widths(truth, scales, rng)
    return float(_discrepancies(truth, imputed, widths, np.ones((1, len(truth))))[0])


def median_distance(cells: np.ndarray) -> float:
    """Median Euclidean distance between pairs of different cells, or 1 if more than half of the pairs are the same.

    Examples
    --------
    >>> import numpy as np
    >>> median_distance(np.array([[0.0], [1.0], [5.0]]))
    4.0
    """
    cells = np.asarray(cells, dtype=np.float64)
    norms = (cells**2).sum(axis=1)
    squared = np.maximum(norms[:, None] + norms - 2 * cells @ cells.T, 0)
    pairs = squared[np.triu_indices(len(cells), k=1)]
    return float(np.sqrt(np.median(pairs))) if pairs.size and np.median(pairs) > 0 else 1.0


def _widths(
    truth: np.ndarray, scales: Sequence[float] = (0.25, 0.5, 1, 2, 4), seed: int | np.random.Generator = 0
) -> np.ndarray:
    """Widths of the kernels, from the distances of some true cells."""
    sample = np.random.default_rng(seed).choice(len(truth), min(len(truth), 2000), replace=False)
    return median_distance(truth[np.sort(sample)]) * np.asarray(scales, dtype=np.float64)


def _discrepancies(truth: np.ndarray, imputed: np.ndarray, widths: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Of each resample: the mean over pairs of cells of what the kernels of true, imputed and mixed pairs add up to."""
    device = best_device()
    precision = {"dtype": torch.float64 if len(truth) <= DOUBLE_UP_TO else torch.float32, "device": device}
    centre = 0 if _exact(truth) and _exact(imputed) else truth.mean(axis=0, dtype=np.float64)
    x, y = (torch.as_tensor(np.asarray(cells - centre), **precision) for cells in (truth, imputed))
    weights = torch.as_tensor(numbers.T, **precision)  # (cells, resamples)
    both = [torch.cat([x[block], y[block]]) for block in blocks(len(truth), BLOCK)]
    del x, y
    parts = weights.split(BLOCK)
    total = torch.zeros(len(numbers), dtype=torch.float64, device=device)
    for row, of_rows in enumerate(both):
        for column, of_columns in enumerate(both[: row + 1]):  # kernels are symmetric
            (true, mixed), (other, imputed_ones) = (
                part.chunk(2, dim=1) for part in _kernels(of_rows, of_columns, widths).chunk(2)
            )
            kernels = true + imputed_ones - mixed - other
            sums = (parts[row] * (kernels @ parts[column])).sum(dim=0, dtype=torch.float64)
            total += sums if row == column else 2 * sums
    return total.clamp_min(0).cpu().numpy() / (numbers.sum(axis=1) ** 2 * len(widths))


def _exact(counts: np.ndarray) -> bool:
    """Whether squared distances are whole numbers that single precision holds as they are."""
    whole = all(bool((counts[rows] % 1 == 0).all()) for rows in blocks(len(counts)))
    return (
        whole
        and max(float((counts[rows].astype(np.float64) ** 2).sum(1).max()) for rows in blocks(len(counts))) < 2**22
    )


def _kernels(x: Tensor, y: Tensor, widths: np.ndarray) -> Tensor:
    """Sum over widths of the Gaussian kernels of all pairs."""
    norms = (x**2).sum(1)[:, None] + (y**2).sum(1)
    squared = torch.addmm(norms, x, y.T, alpha=-2).clamp_min_(0)
    total, narrower, last = torch.zeros_like(squared), squared, math.inf
    for width in sorted(map(float, widths), reverse=True):
        doublings = 2 * math.log2(last / width) if math.isfinite(last) else math.inf
        if doublings in range(
            1, 9
        ):  # a kernel of half the width is the fourth power: far cheaper than its own exponential
            for _ in range(int(doublings)):
                narrower.square_()
        else:
            narrower = (squared * (-0.5 / width**2)).exp_()
        total += narrower
        last = width
    return total
