"""Regression of hidden genes on observed ones, under a multivariate normal distribution of transformed counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pandas as pd
from sklearn.utils.extmath import randomized_svd

from sccountsdiff.benchmark.baselines.base import Baseline, register_baseline
from sccountsdiff.benchmark.baselines.cells import Cells, stack
from sccountsdiff.benchmark.baselines.covariate_codes import kinds
from sccountsdiff.benchmark.baselines.depth import PSEUDO_COUNT, depth_factor
from sccountsdiff.benchmark.baselines.naive import ConditionalMean
from sccountsdiff.benchmark.metrics.inputs import blocks
from sccountsdiff.checks import one_of, whole_number

PRIOR_CELLS = 5
"""Cells without any signal that are added to the data, so that what few cells say is not taken at face value."""

NOISE_FLOOR = 0.01
"""Share of the variance of a gene that is noise at least."""


def factor_posterior(
    residuals: np.ndarray, observed: np.ndarray, loadings: np.ndarray, noise: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Means and covariances of the factors of each cell, given its observed entries.

    Genes are ``loadings @ factors`` plus independent noise, and factors are standard normal. One system of equations of the
    size of the factors is solved for each cell, whichever genes are observed in it.

    Parameters
    ----------
    residuals
        Values minus their means (cells, genes), 0 where not observed.
    observed
        Boolean (cells, genes).
    loadings
        Loadings (genes, factors).
    noise
        Variance of the noise (genes,).

    Returns
    -------
    Means (cells, factors) and covariances (cells, factors, factors).

    Examples
    --------
    One factor in two genes with as much noise; the second is seen in one of the cells.

    >>> import numpy as np
    >>> observed = np.array([[True, False], [True, True]])
    >>> residuals = np.array([[3.0, 0.0], [3.0, 3.0]])
    >>> mean, covariance = factor_posterior(residuals, observed, np.ones((2, 1)), np.ones(2))
    >>> mean.ravel().tolist(), covariance.ravel().round(2).tolist()
    ([1.5, 2.0], [0.5, 0.33])
    """
    n_factors = loadings.shape[1]
    precision = ((observed / noise) @ _squares(loadings)).reshape(-1, n_factors, n_factors) + np.eye(n_factors)
    covariance = np.linalg.inv(precision)
    return np.einsum("ckl,cl->ck", covariance, (residuals / noise) @ loadings), covariance


def conditional_moments(
    residuals: np.ndarray, observed: np.ndarray, loadings: np.ndarray, noise: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of each entry, were it hidden, given the observed entries of its cell.

    The same as from the covariance matrix of the genes, ``loadings @ loadings.T + diag(noise)``, at a fraction of the cost.

    Parameters
    ----------
    residuals, observed, loadings, noise
        As for :func:`factor_posterior`.

    Returns
    -------
    Means and variances, both (cells, genes). Those of observed entries have no meaning.

    Examples
    --------
    >>> import numpy as np
    >>> observed = np.array([[True, False]])
    >>> mean, variance = conditional_moments(np.array([[3.0, 0.0]]), observed, np.ones((2, 1)), np.ones(2))
    >>> mean[0, 1].item(), variance[0, 1].item()
    (1.5, 1.5)
    """
    factors, covariance = factor_posterior(residuals, observed, loadings, noise)
    variance = covariance.reshape(len(covariance), -1) @ _squares(loadings).T + noise
    return factors @ loadings.T, variance


def fit_factors(
    residuals: np.ndarray,
    observed: np.ndarray,
    n_factors: int,
    n_rounds: int = 20,
    prior_cells: float = PRIOR_CELLS,
    batch_size: int = 1024,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Factor analysis of incomplete data: expectation maximisation that starts from principal components.

    Parameters
    ----------
    residuals
        Values minus their means (cells, genes), 0 where not observed.
    observed
        Boolean (cells, genes).
    n_factors
        Number of factors; no more than cells or genes.
    n_rounds
        Rounds of expectation maximisation.
    prior_cells
        Loadings are shrunk as by this many cells in which factors have no effect.
    batch_size
        Cells at a time, which bounds the memory.
    seed
        Seed of the randomised principal components.

    Returns
    -------
    Loadings (genes, factors) and the variance of the noise (genes,).

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> values = rng.normal(size=(2000, 1)) @ np.array([[2.0, 1.0, -1.0]]) + rng.normal(size=(2000, 3))
    >>> loadings, noise = fit_factors(values, np.ones(values.shape, dtype=bool), n_factors=1, n_rounds=50)
    >>> (loadings @ loadings.T + np.diag(noise)).round()
    array([[ 5.,  2., -2.],
           [ 2.,  2., -1.],
           [-2., -1.,  2.]])
    """
    n_cells, n_genes = residuals.shape
    n_factors = min(n_factors, n_cells, n_genes)
    n_observed = observed.sum(axis=0).clip(1)
    total = np.sum(residuals**2, axis=0)
    floor = NOISE_FLOOR * total / n_observed + 1e-9  # a silent gene has no variance at all
    _, values, components = randomized_svd(residuals, n_factors, random_state=seed)
    loadings = components.T * values / np.sqrt(n_cells)
    noise = np.maximum(total / n_observed - np.sum(loadings**2, axis=1), floor)

    for _ in range(n_rounds):
        spread = np.zeros(n_factors**2)  # second moments of the factors, over all cells
        second = np.zeros((n_genes, n_factors**2))  # the same over the cells in which the gene is observed
        cross = np.zeros((n_genes, n_factors))  # of the gene and the factors
        for rows in blocks(n_cells, batch_size):
            factors, covariance = factor_posterior(residuals[rows], observed[rows], loadings, noise)
            moments = _squares(factors) + covariance.reshape(len(factors), -1)
            spread += moments.sum(axis=0)
            second += observed[rows].T.astype(float) @ moments
            cross += residuals[rows].T @ factors
        second = second.reshape(n_genes, n_factors, n_factors) + prior_cells * np.eye(n_factors)
        loadings = np.linalg.solve(second, cross[..., None])[..., 0]
        noise = np.maximum((total - np.sum(loadings * cross, axis=1)) / n_observed, floor)
        # Factors have to be standard normal. Scaling them in each round, rather than waiting until they are, takes fewer
        # rounds (parameter expansion), and the prior does not shrink what all genes share.
        loadings = loadings @ np.linalg.cholesky(spread.reshape(n_factors, n_factors) / n_cells)
    return loadings, noise


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
        self._loadings, self._noise = fit_factors(
            residuals, cells.observed, self.n_factors, self.n_rounds, batch_size=self.batch_size, seed=seed
        )

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
        factors, covariance = factor_posterior(residuals, cells.observed, self._loadings, self._noise)
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
    """One draw of :class:`GaussianRegression` instead of the expectation, to be compared with those of generative methods.

    Settings are those of :class:`GaussianRegression`.

    Examples
    --------
    >>> GaussianRegressionDraw().n_factors
    20
    """

    def _impute(self, cells: Cells, sites: np.ndarray, n_samples: int, seed: int) -> np.ndarray:
        return super()._impute(cells, sites, 2, seed)[0]


def _squares(vectors: np.ndarray) -> np.ndarray:
    """Products of all pairs of entries of each row, (rows, columns * columns)."""
    return (vectors[:, :, None] * vectors[:, None]).reshape(len(vectors), -1)


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
