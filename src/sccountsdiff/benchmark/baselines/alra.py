"""ALRA: low-rank approximation of log counts, with the zeros of genes that are not expressed restored."""

from __future__ import annotations

import numpy as np
from sklearn.utils.extmath import randomized_svd

from sccountsdiff.benchmark.baselines.base import Cells, register_baseline
from sccountsdiff.benchmark.baselines.joint import JointBaseline

TARGET_DEPTH = 1e4
"""Counts per cell before the logarithm is taken, as in the original."""


def choose_rank(data: np.ndarray, n_values: int = 100, n_deviations: float = 6.0, seed: int = 0) -> int:
    """Number of singular values that stand out from the noise.

    The last fifth of the singular values are noise. The rank is the last place at which the gap to the next singular value
    is more than ``n_deviations`` standard deviations above the mean gap in the noise.

    Parameters
    ----------
    data
        Normalised log counts (cells, genes).
    n_values
        Singular values to look at; no more than cells or genes.
    n_deviations
        How far a gap must be above those in the noise.
    seed
        Seed of the randomised decomposition.

    Returns
    -------
    The rank; 1 if no gap stands out.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> signal = rng.normal(size=(200, 3)) @ rng.normal(size=(3, 60))
    >>> choose_rank(signal + 0.1 * rng.normal(size=(200, 60)))
    3
    """
    n_values = min(n_values, *data.shape)
    values = randomized_svd(data, n_values, n_iter=2, random_state=seed)[1]
    gaps = values[:-1] - values[1:]
    noise = gaps[max(int(0.8 * n_values) - 2, 0) :]
    if len(noise) < 2:
        return 1
    outstanding = np.flatnonzero(gaps > noise.mean() + n_deviations * noise.std(ddof=1))
    return int(outstanding[-1]) + 1 if len(outstanding) else 1


def alra_complete(data: np.ndarray, rank: int, quantile: float = 0.001, n_iter: int = 10, seed: int = 0) -> np.ndarray:
    """Low-rank approximation with its noise set to zero and its positive values brought to the scale of the data.

    A gene that a cell does not express comes out of the approximation as a small number on either side of zero. How small
    is seen from the negative ones: all values are zero that are not larger than the absolute value of a low quantile of the
    gene. Those that remain get the mean and the standard deviation of the positive data of the gene. Positive data that
    would be zero stay as they are.

    Parameters
    ----------
    data
        Normalised log counts (cells, genes).
    rank
        Rank of the approximation.
    quantile
        Quantile that is the threshold.
    n_iter
        Power iterations of the randomised decomposition.
    seed
        Seed of the randomised decomposition.

    Returns
    -------
    Matrix of the shape of ``data``, not negative.

    Examples
    --------
    >>> import numpy as np
    >>> block = np.kron(np.eye(2), np.ones((4, 3)))
    >>> bool(np.allclose(alra_complete(block, rank=2), block))
    True
    """
    left, values, right = randomized_svd(data, rank, n_iter=n_iter, random_state=seed)
    low_rank = (left * values) @ right
    rounding = np.finfo(low_rank.dtype).eps * values[0]  # all that is left of a silent gene
    low_rank[low_rank <= np.maximum(np.abs(np.quantile(low_rank, quantile, axis=0)), rounding)] = 0

    mean, deviation = _moments_of_positive(low_rank)
    target_mean, target_deviation = _moments_of_positive(data)
    ratio = np.divide(target_deviation, deviation, out=np.full_like(deviation, np.nan), where=deviation > 0)
    scaled = np.where(np.isfinite(ratio), (low_rank - mean) * ratio + target_mean, low_rank)
    scaled = np.where(low_rank > 0, np.maximum(scaled, 0), 0)
    return np.where((scaled == 0) & (data > 0), data, scaled)


def _moments_of_positive(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the positive values of each gene; NaN where there are too few for one."""
    positive = values > 0
    n = positive.sum(axis=0).astype(float)
    mean = np.divide(values.sum(axis=0, where=positive), n, out=np.full_like(n, np.nan), where=n > 0)
    squares = np.sum((values - mean) ** 2, axis=0, where=positive)
    return mean, np.sqrt(np.divide(squares, n - 1, out=np.full_like(n, np.nan), where=n > 1))


@register_baseline("alra", group="specialised", denoises=True)
class ALRA(JointBaseline):
    """ALRA (Linderman et al. 2022): low-rank approximation of log counts, thresholded gene by gene.

    Log counts of training and test cells, at 10,000 counts per cell, are approximated by a matrix of low rank
    (``choose_rank``), whose noise is set to zero (``alra_complete``). The logarithm is undone and the cell brought
    to its observed total.

    The method knows no missing entries: a hidden entry is a zero like any other, and the approximation may or may not
    complete it. The more of a cell is hidden, the lower are its answers.

    Differs from the original: ``pseudo_count`` in the totals; without it, they are those of the original. With fewer
    than 100 cells or genes the noise starts at 80 % of the singular values there are, and the rank is 1 where none stands
    out from the noise, where the original stops with an error.

    Parameters
    ----------
    rank
        Rank of the approximation; chosen from the data by default. The one that was used last is kept in ``best_rank``.
    quantile
        Quantile of a gene whose absolute value is the threshold.
    pseudo_count
        Added to observed and expected totals of a cell.

    Examples
    --------
    >>> import numpy as np
    >>> from anndata import AnnData
    >>> rng = np.random.default_rng(0)
    >>> cells = AnnData(rng.poisson(3, (40, 6)).astype("float32"))
    >>> ALRA(rank=2).fit(cells).impute(cells, rng.random(cells.shape) < 0.5).shape
    (40, 6)
    """

    rank: int | None = None
    quantile: float = 0.001

    def _fit(self, cells: Cells, seed: int) -> None:
        if self.rank is not None and not 1 <= self.rank <= cells.counts.shape[1]:
            raise ValueError(f"rank must be between 1 and the number of genes, found {self.rank}.")
        super()._fit(cells, seed)

    def _profiles(self, cells: Cells, depth: np.ndarray, seed: int) -> np.ndarray:
        scale = TARGET_DEPTH / max(self._mean.sum(), 1.0)
        data = np.log1p(cells.counts / depth * scale)
        self.best_rank = choose_rank(data, seed=seed) if self.rank is None else self.rank
        completed = alra_complete(data, self.best_rank, self.quantile, seed=seed)
        return np.expm1(completed[self.n_train :]) / scale
