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

FEWEST_BYTES = 32
"""Genes with small counts from which on these are multiplied as bytes; torch gets the product of one gene wrong."""


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
    >>> abs(mmd(cells, cells)) < 1e-12 < mmd(cells, cells + 1) < mmd(cells, cells + 2)
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
    small = _are_small(truth) & _are_small(imputed)
    small &= small.sum() >= FEWEST_BYTES and _bytes_are_fast(device)
    centre = np.where(small, 0, truth.mean(axis=0, dtype=np.float64))  # distances stay, and rounding errors shrink
    parts = torch.as_tensor(numbers.T, **precision).split(BLOCK)  # (cells, resamples)
    left, right, in_bytes = [], [], []
    for block in blocks(len(truth), BLOCK):
        cells = np.concatenate([truth[block], imputed[block]]) - centre
        norms = torch.as_tensor((cells**2).sum(axis=1, keepdims=True), **precision)
        others, ones = torch.as_tensor(cells[:, ~small], **precision), torch.ones_like(norms)
        # With these columns a single product of matrices makes whole squared distances: |x|^2 + |y|^2 - 2 xy.
        left.append(torch.cat([-2 * others, norms, ones], dim=1))
        right.append(torch.cat([others, ones, norms], dim=1))
        in_bytes.append(torch.as_tensor(cells[:, small].astype(np.int8), device=device))
    total = torch.zeros(len(numbers), dtype=torch.float64, device=device)
    for row in range(len(left)):
        for column in range(row + 1):  # kernels are symmetric
            squared = left[row] @ right[column].T
            if small.any():
                squared.add_(torch._int_mm(in_bytes[row], in_bytes[column].T), alpha=-2)
            (true, mixed), (other, imputed_ones) = (part.chunk(2, dim=1) for part in _kernels(squared, widths).chunk(2))
            kernels = true.add_(imputed_ones).sub_(mixed).sub_(other)
            sums = (parts[row] * (kernels @ parts[column])).sum(dim=0, dtype=torch.float64)
            total += sums if row == column else 2 * sums
    return total.clamp_min(0).cpu().numpy() / (numbers.sum(axis=1) ** 2 * len(widths))


def _are_small(counts: np.ndarray) -> np.ndarray:
    """Genes whose counts are whole numbers that fit into a byte."""
    return np.all(
        [((c % 1 == 0) & (abs(c) < 128)).all(axis=0) for c in (counts[b] for b in blocks(len(counts)))], axis=0
    )


def _bytes_are_fast(device: torch.device) -> bool:
    """Whether products of bytes, which are exact, take a fraction of the time of others."""
    return device.type == "cpu" and torch.backends.cpu.get_cpu_capability() == "AVX512" and hasattr(torch, "_int_mm")


def _kernels(squared: Tensor, widths: np.ndarray) -> Tensor:
    """Sum over widths of the Gaussian kernels of squared distances, which are overwritten."""
    squared.clamp_min_(0)
    total, narrower, last = torch.zeros_like(squared), squared, math.inf
    for width in sorted(map(float, widths), reverse=True):
        doublings = 2 * math.log2(last / width)
        if doublings in range(1, 9):  # half the width is the fourth power: far cheaper than an exponential of its own
            for _ in range(int(doublings)):
                narrower.square_()
        else:
            narrower = (squared * (-0.5 / width**2)).exp_()
        total += narrower
        last = width
    return total
