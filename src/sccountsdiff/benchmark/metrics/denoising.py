"""Scores of denoised cells: a method sees one part of the molecules of each cell and predicts the other, hidden one.

The prediction comes first, the truth second.
"""

from __future__ import annotations

import numpy as np

from sccountsdiff.benchmark.matrices import DenseOrSparse, log_normalised
from sccountsdiff.benchmark.metrics.inputs import blocks
from sccountsdiff.benchmark.metrics.likelihood import FLOOR
from sccountsdiff.benchmark.metrics.registry import register_metric
from sccountsdiff.data.messages import values_of
from sccountsdiff.data.reading import dense


@register_metric("molecule_mse", direction="lower", group="denoising")
def molecule_mse(denoised: DenseOrSparse, held_out: DenseOrSparse) -> float:
    """Mean squared error of the log counts per ten thousand, over all cells and genes.

    A common score of denoising, to be read with care: the log of a sparse count is on average far below the log of its
    mean, so that the true means are not what scores best. :func:`molecule_poisson` has no such fault.

    Parameters
    ----------
    denoised
        Expected counts from the molecules that were seen (cells, genes); the scale of a cell does not matter.
    held_out
        Counts of the hidden molecules.

    Returns
    -------
    The error, 0 at best.

    Examples
    --------
    >>> import numpy as np
    >>> held_out = np.array([[1, 3]])
    >>> molecule_mse(9 * held_out, held_out)
    0.0
    """
    _check_split(denoised, held_out)
    total = 0.0
    for b in blocks(denoised.shape[0]):
        guess, truth = (log_normalised(dense(matrix[b]), np.float64) for matrix in (denoised, held_out))
        total += np.sum((guess - truth) ** 2)
    return float(total / np.prod(denoised.shape))


@register_metric("molecule_poisson", direction="lower", group="denoising")
def molecule_poisson(
    denoised: DenseOrSparse, held_out: DenseOrSparse, *, share: float = 0.9, floor: float = FLOOR
) -> float:
    """Poisson loss ``mu - x log(mu)`` of the held-out counts, over all cells and genes.

    Parameters
    ----------
    denoised
        Expected counts of the molecules that were seen (cells, genes), at their own depth.
    held_out
        Counts ``x`` of the hidden molecules.
    share
        Share of the molecules that was seen: ``mu`` is ``denoised * (1 - share) / share``.
    floor
        Means below it are raised to it.

    Returns
    -------
    The mean loss; lower is better, and it may be negative.

    Examples
    --------
    >>> import numpy as np
    >>> round(molecule_poisson(np.array([[9.0, 27.0]]), np.array([[0, 3]])), 3)
    0.352
    """
    _check_split(denoised, held_out)
    if not 0 < share < 1:
        raise ValueError(f"share must be between 0 and 1, found {share}.")
    total = 0.0
    for b in blocks(denoised.shape[0]):
        mu = np.maximum(dense(denoised[b]).astype(np.float64) * ((1 - share) / share), floor)
        total += np.sum(mu - dense(held_out[b]) * np.log(mu))
    return float(total / np.prod(denoised.shape))


def _check_split(denoised: DenseOrSparse, held_out: DenseOrSparse) -> None:
    if len(denoised.shape) != 2 or denoised.shape != held_out.shape:
        raise ValueError(
            f"denoised and held_out must be matrices of the same shape, found {denoised.shape} and {held_out.shape}."
        )
    for name, matrix in (("denoised", denoised), ("held_out", held_out)):
        values = values_of(matrix)
        if not np.isfinite(values).all() or (values.size and values.min() < 0):
            raise ValueError(f"{name} has negative, NaN or infinite entries; expected counts are needed.")
