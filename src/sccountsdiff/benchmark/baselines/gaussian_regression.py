"""Regression of hidden genes on observed ones, under a multivariate normal distribution of transformed counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pandas as pd
import torch

from sccountsdiff.benchmark.baselines.base import Baseline, register_baseline
from sccountsdiff.benchmark.baselines.cells import Cells, stack
from sccountsdiff.benchmark.baselines.covariate_codes import kinds
from sccountsdiff.benchmark.baselines.depth import PSEUDO_COUNT, depth_factor
from sccountsdiff.benchmark.baselines.naive import ConditionalMean
from sccountsdiff.benchmark.metrics.inputs import blocks
from sccountsdiff.checks import one_of, whole_number
from sccountsdiff.nn import factor_posterior, fit_factors
from sccountsdiff.nn.factors import PRIOR_CELLS


def conditional_moments(
    residuals: np.ndarray, observed: np.ndarray, loadings: np.ndarray, noise: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of each entry, were it hidden, given the observed entries of its cell.

    The same as from the covariance matrix of the genes, ``loadings @ loadings.T + diag(noise)``, at a fraction of the cost.

    Parameters
    ----------
    residuals, observed, loadings, noise
        As for :func:`~sccountsdiff.nn.factor_posterior`, but arrays.

    Returns
    -------
    Means and variances, both (cells, genes). Those of observed entries have no meaning.

    Examples
    --------
    >>> import numpy as np
    >>> observed = np.array([[True, False]])
    >>> mean, variance = conditional_moments(np.array([[3.0, 0.0]]), observed, np.ones((2, 1)), np.ones(2))
    >>> round(mean[0, 1].item(), 6), round(variance[0, 1].item(), 6)
    (1.5, 1.5)
    """
    factors, covariance = _posterior(residuals, observed, loadings, noise)
    squares = (loadings[:, :, None] * loadings[:, None]).reshape(len(loadings), -1)
    return factors @ loadings.T, covariance.reshape(len(covariance), -1) @ squares.T + noise


def _posterior(
    residuals: np.ndarray, observed: np.ndarray, loadings: np.ndarray, noise: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Means (cells, factors) and covariances (cells, factors, factors) of the factors."""
    tensors = [
        torch.from_numpy(np.asarray(array, dtype=np.float64)) for array in (residuals, observed, loadings, noise)
    ]
    factors, root = factor_posterior(*tensors)
    return factors.numpy(), torch.cholesky_inverse(root).numpy()


@register_baseline("gaussian_regression", group="specialised", draws=True, uses_covariates=True, uses_mask=True)
class GaussianRegression(Baseline):
    """Expectation given the observed genes, under a normal distribution of square roots (or logs) of counts.

    Counts are divided by the depth of their cell, which is the observed total over what cells with the same covariates hold
    in the same genes, and their square root taken. Means are those of the cells with the same covariates; what is left has a
    covariance of a few factors plus noise of each gene, fitted by expectation maximisation to the observed entries. Hidden
    entries are then regressed on all that is observed in the cell: no network, and no search for neighbours.

    The expected count is the square of the conditional mean plus the conditional variance, which is exact if roots are
    normal. For logs it is that of a lognormal; that has a long tail, and squared errors are larger, though ranks are a
    little better. Draws are rounded to integers at random, so that their mean is kept.

    The cost of training is rounds times cells times genes times the square of ``n_factors``, that of imputation the same for
    one round.

    Parameters
    ----------
    n_factors
        Number of factors; no more than training cells or genes.
    n_rounds
        Rounds of expectation maximisation.
    transform
        ``"sqrt"`` or ``"log"``, which is of one plus the count.
    pseudo_count
        Added to observed and expected totals of a cell.
    batch_size
        Cells at a time, which bounds the memory.

    Examples
    --------
    >>> import numpy as np
    >>> from anndata import AnnData
    >>> rng = np.random.default_rng(0)
    >>> profiles = rng.gamma(1.0, 8.0, (2, 40))  # two types of cells
    >>> cells = AnnData(rng.poisson(profiles[rng.integers(2, size=300)]).astype("float32"))
    >>> train, test, sites = cells[:200], cells[200:], rng.random((100, 40)) < 0.5
    >>> answer = GaussianRegression(n_factors=2).fit(train).impute(test, sites)
    >>> error, error_of_mean = (np.abs(x - test.X)[sites].mean() for x in (answer, train.X.mean(axis=0)))
    >>> bool(error < 0.6 * error_of_mean)
    True
    """

    n_factors: int = 20
    n_rounds: int = 20
    transform: Literal["sqrt", "log"] = "sqrt"
    pseudo_count: float = PSEUDO_COUNT
    batch_size: int = 1024

    def _fit(self, cells: Cells, seed: int) -> None:
        for setting in ("n_factors", "n_rounds", "batch_size"):
            whole_number(setting, getattr(self, setting))
        one_of("transform", self.transform, ("sqrt", "log"))
        self._count_means = _shrunk_means(cells)
        values, _ = self._values(cells)
        self._largest = values.max(axis=0)
        self._value_means = _shrunk_means(Cells(values, cells.observed, cells.covariates))
        residuals = np.where(cells.observed, values - _means_of(self._value_means, cells), 0)
        observed = None if cells.observed.all() else torch.from_numpy(cells.observed)
        residuals = torch.from_numpy(residuals.astype(np.float64))
        fitted = fit_factors(residuals, observed, self.n_factors, self.n_rounds, batch_size=self.batch_size, seed=seed)
        self._loadings, self._noise = (tensor.numpy() for tensor in fitted)

    def _impute(self, cells: Cells, sites: np.ndarray, n_samples: int, seed: int) -> np.ndarray:
        rng = np.random.default_rng(seed)
        answer = np.empty((n_samples, *cells.counts.shape), dtype=cells.counts.dtype)
        for rows in blocks(len(cells), self.batch_size):
            answer[:, rows] = self._expect(cells[rows]) if n_samples == 1 else self._draw(cells[rows], n_samples, rng)
        return answer[0] if n_samples == 1 else answer

    def _expect(self, cells: Cells) -> np.ndarray:
        """Expected counts (cells, genes)."""
        residuals, mean, depth = self._centred(cells)
        deviation, variance = conditional_moments(residuals, cells.observed, self._loadings, self._noise)
        mean = self._bounded(mean + deviation)
        if self.transform == "sqrt":
            return (mean**2 + variance) * depth
        return np.expm1(mean + variance / 2) * depth

    def _draw(self, cells: Cells, n_samples: int, rng: np.random.Generator) -> np.ndarray:
        """Counts (draws, cells, genes)."""
        residuals, mean, depth = self._centred(cells)
        factors, covariance = _posterior(residuals, cells.observed, self._loadings, self._noise)
        mean = self._bounded(mean + factors @ self._loadings.T)
        of_factors = rng.standard_normal((n_samples, *factors.shape, 1))
        of_genes = rng.standard_normal((n_samples, *mean.shape)) * np.sqrt(self._noise)
        values = mean + (np.linalg.cholesky(covariance) @ of_factors)[..., 0] @ self._loadings.T + of_genes
        counts = values**2 if self.transform == "sqrt" else np.expm1(values.clip(0))
        return np.floor(counts * depth + rng.random(counts.shape))

    def _values(self, cells: Cells) -> tuple[np.ndarray, np.ndarray]:
        """Transformed counts at the depth of an average cell with these covariates, and that depth."""
        expected = _means_of(self._count_means, cells)
        depth = depth_factor(cells.counts, cells.observed, expected, self.pseudo_count)
        depth = np.where(depth > 0, depth, 1)  # an empty cell stays as it is
        return (np.sqrt if self.transform == "sqrt" else np.log1p)(cells.counts / depth), depth

    def _centred(self, cells: Cells) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Residuals, 0 where not observed, the means that were subtracted, and depths."""
        values, depth = self._values(cells)
        mean = _means_of(self._value_means, cells)
        return np.where(cells.observed, values - mean, 0), mean, depth

    def _bounded(self, values: np.ndarray) -> np.ndarray:
        """Within what training cells had: regressions extrapolate, and a large log is an explosion of the count."""
        return values.clip(0, self._largest)


@register_baseline("gaussian_regression_draw", draws=False)
class GaussianRegressionDraw(GaussianRegression):
    """One draw of the law of ``gaussian_regression`` instead of its expectation, to be compared with those of generative methods.

    Settings are those of :class:`~sccountsdiff.benchmark.baselines.GaussianRegression`.

    Examples
    --------
    >>> GaussianRegressionDraw().n_factors
    20
    """

    def _impute(self, cells: Cells, sites: np.ndarray, n_samples: int, seed: int) -> np.ndarray:
        return super()._impute(cells, sites, 2, seed)[0]


def _shrunk_means(cells: Cells) -> ConditionalMean:
    """Means of cells with the same categorical covariates, drawn to the mean of all by a few cells that have exactly that."""
    covariates, overall = _categorical(cells), cells.gene_means()
    added = pd.concat([covariates.drop_duplicates()] * PRIOR_CELLS)
    prior = Cells(np.tile(overall, (len(added), 1)), np.ones((len(added), len(overall)), dtype=bool), added)
    means = ConditionalMean()
    means._fit(stack(replace(cells, covariates=covariates), prior), seed=0)
    return means


def _means_of(means: ConditionalMean, cells: Cells) -> np.ndarray:
    return means._impute(replace(cells, covariates=_categorical(cells)), cells.observed, 1, seed=0)


def _categorical(cells: Cells) -> pd.DataFrame:
    return cells.covariates[kinds(cells.covariates)[0]]
