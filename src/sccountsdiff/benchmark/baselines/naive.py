"""Methods that learn nothing but averages."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy import sparse

from sccountsdiff.benchmark.baselines.base import Baseline, Cells, register_baseline
from sccountsdiff.benchmark.baselines.depth import PSEUDO_COUNT, depth_factor


@register_baseline("zero", denoises=True)
class Zero(Baseline):
    """Every hidden entry is 0; denoised counts are the observed ones.

    Examples
    --------
    >>> import numpy as np
    >>> from anndata import AnnData
    >>> cells = AnnData(np.array([[3.0, 5.0]]))
    >>> Zero().fit(cells).impute(cells, np.array([[True, False]]))
    array([[0., 5.]])
    """

    def _fit(self, cells: Cells, seed: int) -> None:
        pass

    def _impute(self, cells: Cells, sites: np.ndarray, n_samples: int, seed: int) -> np.ndarray:
        return cells.counts


@register_baseline("conditional_mean", denoises=True, uses_covariates=True, uses_mask=True)
class ConditionalMean(Baseline):
    """Mean of the gene over the training cells with the same covariates.

    Cells whose combination of covariates was not seen in training get the mean over all training cells. Entries that are
    not observed are left out of all means.

    Examples
    --------
    >>> import numpy as np
    >>> from anndata import AnnData
    >>> train = AnnData(np.array([[1.0, 2.0], [3.0, 4.0], [8.0, 9.0]]), obs={"type": ["a", "a", "b"]})
    >>> test = AnnData(np.array([[0.0, 0.0], [0.0, 0.0]]), obs={"type": ["a", "new"]})
    >>> ConditionalMean().fit(train, covariates="type").impute(test, np.ones((2, 2), dtype=bool))
    array([[2., 3.],
           [4., 5.]])
    """

    def _fit(self, cells: Cells, seed: int) -> None:
        combinations = _combinations(cells.covariates)
        self._rows = {combination: row for row, combination in enumerate(combinations.unique())}
        rows, columns = combinations.map(self._rows).to_numpy(), np.arange(len(cells))
        members = sparse.csr_matrix((np.ones(len(cells)), (rows, columns)))  # (combinations, cells)
        n_observed = members @ cells.observed
        overall = cells.gene_means()
        means = np.divide(members @ cells.counts, n_observed, out=overall + 0 * n_observed, where=n_observed > 0)
        self._means = np.vstack([means, overall])  # the mean of all cells comes last

    def _impute(self, cells: Cells, sites: np.ndarray, n_samples: int, seed: int) -> np.ndarray:
        return self._means[_combinations(cells.covariates).map(lambda c: self._rows.get(c, -1)).to_numpy()]

    def _denoise(self, cells: Cells, share: float, seed: int) -> np.ndarray:
        return share * self._impute(cells, ~cells.observed, 1, seed)  # the depth of the cell plays no part


@register_baseline("gene_mean", uses_covariates=False)
class GeneMean(ConditionalMean):
    """Mean of the gene over all training cells.

    Examples
    --------
    >>> import numpy as np
    >>> from anndata import AnnData
    >>> train = AnnData(np.array([[1.0, 2.0], [3.0, 4.0]]))
    >>> GeneMean().fit(train).impute(train, np.array([[True, False], [False, False]]))
    array([[2., 2.],
           [3., 4.]])
    """


@register_baseline("conditional_mean_scaled")
class ScaledConditionalMean(ConditionalMean):
    """Conditional mean times the depth of the cell.

    The depth is the observed total of the cell over what the conditional mean expects of its observed entries.

    Parameters
    ----------
    pseudo_count
        Expected counts that are added to both, so that near-empty cells get a depth near 1.

    Examples
    --------
    A cell with twice the expected count where it is observed has twice the expected count where it is not.

    >>> import numpy as np
    >>> from anndata import AnnData
    >>> train = AnnData(np.array([[1.0, 2.0], [3.0, 4.0]]), obs={"type": ["a", "a"]})
    >>> test = AnnData(np.array([[4.0, 0.0]]), obs={"type": ["a"]})
    >>> method = ScaledConditionalMean(pseudo_count=0).fit(train, covariates="type")
    >>> method.impute(test, np.array([[False, True]]))
    array([[4., 6.]])
    """

    pseudo_count: float = PSEUDO_COUNT

    def _impute(self, cells: Cells, sites: np.ndarray, n_samples: int, seed: int) -> np.ndarray:
        mean = super()._impute(cells, sites, n_samples, seed)
        return mean * depth_factor(cells.counts, cells.observed, mean, self.pseudo_count)

    def _denoise(self, cells: Cells, share: float, seed: int) -> np.ndarray:
        return Baseline._denoise(self, cells, share, seed)  # at the depth of the cell, unlike the mean itself


@register_baseline("gene_mean_scaled", uses_covariates=False)
class ScaledGeneMean(ScaledConditionalMean):
    """Mean of the gene over all training cells, times the depth of the cell.

    Settings are those of :class:`ScaledConditionalMean`.

    Examples
    --------
    >>> import numpy as np
    >>> from anndata import AnnData
    >>> train = AnnData(np.array([[1.0, 2.0], [3.0, 4.0]]))
    >>> ScaledGeneMean(pseudo_count=0).fit(train).impute(train, np.array([[False, True], [False, False]]))
    array([[1. , 1.5],
           [3. , 4. ]])
    """


def _combinations(covariates: pd.DataFrame) -> pd.Series:
    """One tuple per cell; the empty tuple if there are no covariates."""
    columns = [covariates[key] for key in covariates]
    return pd.Series(list(zip(*columns, strict=True)) if columns else [()] * len(covariates), dtype=object)
