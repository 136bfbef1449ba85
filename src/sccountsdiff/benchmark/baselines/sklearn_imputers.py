"""The general imputers of scikit-learn, on log counts."""

from __future__ import annotations

import warnings
from typing import Literal

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer

from sccountsdiff.benchmark.baselines.base import Cells, register_baseline
from sccountsdiff.benchmark.baselines.joint import JointBaseline


@register_baseline("sklearn_iterative", group="specialised", uses_mask=True)
class SklearnIterative(JointBaseline):
    """IterativeImputer of scikit-learn on log counts: each gene regressed on others, in turns.

    Counts are divided by the depth of their cell and their logarithm taken. Entries that are not observed start from the
    mean of their gene; in each round they are predicted, gene by gene, from a Bayesian ridge regression on other genes
    (the chained equations of van Buuren and Groothuis-Oudshoorn 2011), fitted to all training and test cells in which the
    gene is observed. At the end the logarithm is undone, which turns the mean of the log into something below the mean count.

    The cost is one regression for each gene and round, and grows with genes times rounds times cells times the square of
    ``n_nearest_features``: all genes as predictors are feasible for some 100 genes, not for 500.

    Differs from the original: the transform, and answers scaled to the observed depth of the cell. Training and test cells
    are completed together, since an imputer that was fitted to complete cells is content after a single round. Rounds are
    5, not 10, and predictors are bounded, to save time. Answers are bounded too: a linear extrapolation of the logarithm is
    an explosion of the count.

    Parameters
    ----------
    n_nearest_features
        Genes that predict another gene, drawn anew in each round with probabilities proportional to their correlation with
        it; ``None`` for all.
    max_iter
        Number of rounds at most.
    pseudo_count
        Added to observed and expected totals of a cell.

    Examples
    --------
    >>> import numpy as np
    >>> from anndata import AnnData
    >>> rng = np.random.default_rng(0)
    >>> cells = AnnData(rng.poisson(3, (40, 6)).astype("float32"))
    >>> SklearnIterative(max_iter=2).fit(cells).impute(cells, rng.random(cells.shape) < 0.5).shape
    (40, 6)
    """

    n_nearest_features: int | None = 30
    max_iter: int = 5

    def _profiles(self, cells: Cells, depth: np.ndarray, seed: int) -> np.ndarray:
        data = _log_with_gaps(cells, depth)
        imputer = IterativeImputer(
            n_nearest_features=self.n_nearest_features,
            max_iter=self.max_iter,
            min_value=0,
            max_value=np.nanmax(data, axis=0) + np.log(2),  # some room above what was seen, and never none
            random_state=seed,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the number of rounds is bounded on purpose
            return np.expm1(imputer.fit_transform(data)[self.n_train :])


@register_baseline("sklearn_knn", group="specialised", uses_mask=True)
class SklearnKNN(JointBaseline):
    """KNNImputer of scikit-learn on log counts: the mean of the nearest training cells in which the gene is observed.

    Counts are divided by the depth of their cell and their logarithm taken (Troyanskaya et al. 2001 did so for microarrays).
    Cells are compared by the genes that are observed in both. The mean of the log is undone, which gives something below the
    mean count.

    The cost is a comparison of all test with all training cells, and a search through the training cells for each gene.

    Differs from the original: the transform, answers scaled to the observed depth of the cell, and 15 neighbours instead
    of 5.

    Parameters
    ----------
    n_neighbors
        Number of training cells that are averaged.
    weights
        ``"uniform"``, or ``"distance"`` for closer cells to weigh more.
    pseudo_count
        Added to observed and expected totals of a cell.

    Examples
    --------
    >>> import numpy as np
    >>> from anndata import AnnData
    >>> rng = np.random.default_rng(0)
    >>> cells = AnnData(rng.poisson(3, (40, 6)).astype("float32"))
    >>> SklearnKNN().fit(cells).impute(cells, rng.random(cells.shape) < 0.5).shape
    (40, 6)
    """

    n_neighbors: int = 15
    weights: Literal["uniform", "distance"] = "uniform"

    def _profiles(self, cells: Cells, depth: np.ndarray, seed: int) -> np.ndarray:
        data = _log_with_gaps(cells, depth)
        imputer = KNNImputer(n_neighbors=self.n_neighbors, weights=self.weights)
        return np.expm1(imputer.fit(data[: self.n_train]).transform(data[self.n_train :]))


def _log_with_gaps(cells: Cells, depth: np.ndarray) -> np.ndarray:
    """Log counts at the depth of an average cell, NaN where they are not observed."""
    return np.where(cells.observed, np.log1p(cells.counts / depth), np.nan)
