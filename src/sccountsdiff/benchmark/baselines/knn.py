"""Mean of the nearest training cells."""

from __future__ import annotations

import numpy as np
from sklearn.metrics.pairwise import nan_euclidean_distances

from sccountsdiff.benchmark.baselines.base import Baseline, Cells, register_baseline
from sccountsdiff.benchmark.baselines.depth import PSEUDO_COUNT, depth_factor
from sccountsdiff.checks import whole_number


@register_baseline("knn_mean", denoises=True)
class KNNMean(Baseline):
    """Mean of the nearest training cells, times the depth of the cell.

    Counts are divided by the depth of their cell; neighbours are the training cells nearest in Euclidean distance of the
    log counts over the genes observed in the cell. Their mean is brought to the observed total of the cell. A cell with
    nothing observed gets the mean of all training cells.

    Parameters
    ----------
    n_neighbors
        Training cells to average; all of them if there are fewer.
    pseudo_count
        Expected counts of an average cell that are added to each total, so that near-empty cells get a depth near 1.
    batch_size
        Cells whose distances are held in memory at a time.

    Examples
    --------
    >>> import numpy as np
    >>> from anndata import AnnData
    >>> train = AnnData(np.array([[8.0, 1.0, 7.0], [8.0, 1.0, 7.0], [1.0, 8.0, 3.0], [1.0, 8.0, 3.0]]))
    >>> test = AnnData(np.array([[9.0, 0.0, 0.0]]))
    >>> sites = np.array([[False, False, True]])
    >>> KNNMean(n_neighbors=2, pseudo_count=0).fit(train).impute(test, sites)
    array([[9., 0., 7.]])
    """

    n_neighbors: int = 30
    pseudo_count: float = PSEUDO_COUNT
    batch_size: int = 512

    def _fit(self, cells: Cells, seed: int) -> None:
        whole_number("n_neighbors", self.n_neighbors)
        self._mean = cells.gene_means()
        self._profiles = self._at_mean_depth(cells.counts, cells.observed)
        self._features = np.log1p(self._profiles)

    def _impute(self, cells: Cells, sites: np.ndarray, n_samples: int, seed: int) -> np.ndarray:
        counts, observed = cells.counts, cells.observed
        features = np.where(observed, np.log1p(self._at_mean_depth(counts, observed)), np.float32(np.nan))
        answer = np.broadcast_to(self._mean, counts.shape).copy()
        n_neighbors = min(self.n_neighbors, len(self._profiles))
        observed_cells = np.flatnonzero(observed.any(axis=1))
        for start in range(0, len(observed_cells), self.batch_size):
            batch = observed_cells[start : start + self.batch_size]
            distances = nan_euclidean_distances(features[batch], self._features, squared=True)
            nearest = np.argpartition(distances, n_neighbors - 1, axis=1)[:, :n_neighbors]
            answer[batch] = self._profiles[nearest].mean(axis=1)
        return answer * depth_factor(counts, observed, answer, self.pseudo_count)

    def _at_mean_depth(self, counts: np.ndarray, observed: np.ndarray) -> np.ndarray:
        depth = depth_factor(counts, observed, self._mean, self.pseudo_count).astype(counts.dtype)
        return counts / np.where(depth > 0, depth, 1)
