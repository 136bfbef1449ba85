"""kNN-smoothing: counts of similar cells added up, in steps of powers of two."""

from __future__ import annotations

import numpy as np
from scipy import sparse
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors

from sccountsdiff.benchmark.baselines.base import Cells, register_baseline
from sccountsdiff.benchmark.baselines.joint import JointBaseline
from sccountsdiff.checks import whole_number


def aggregation(
    counts: np.ndarray, depth: np.ndarray, n_neighbors: int = 32, n_pca: int = 10, dither: float = 0.03, seed: int = 0
) -> sparse.csr_matrix:
    """Which cells are added up to smooth each cell.

    Neighbours of noisy cells are hard to find, those of smoothed cells are easier. So each cell is first smoothed with its
    nearest cell, then, by distances between smoothed cells, with four cells, eight, and so on. Distances are Euclidean in
    the principal components of counts at the median depth after the Freeman-Tukey transform, which makes the variance of
    Poisson counts constant.

    Parameters
    ----------
    counts
        Counts (cells, genes).
    depth
        Depth of each cell, such as its total (cells, 1).
    n_neighbors
        Number of cells that are added up in the last step, the cell itself among them.
    n_pca
        Number of principal components.
    dither
        Noise that is added to principal components, as a share of their range, so that cells that were smoothed to the
        same counts do not stay together for ever.
    seed
        Seed of the noise and the randomised principal components.

    Returns
    -------
    Sparse matrix of zeros and ones, (cells, cells); its product with the counts are the smoothed counts.

    Examples
    --------
    >>> import numpy as np
    >>> counts = np.array([[9.0, 1.0], [8.0, 0.0], [0.0, 9.0], [1.0, 8.0]])
    >>> aggregation(counts, counts.sum(axis=1, keepdims=True), n_neighbors=2).toarray()
    array([[1., 1., 0., 0.],
           [1., 1., 0., 0.],
           [0., 0., 1., 1.],
           [0., 0., 1., 1.]])
    """
    n_cells = len(counts)
    n_neighbors = min(n_neighbors, n_cells)
    rng = np.random.default_rng(seed)
    members = sparse.identity(n_cells, format="csr")
    n_members = 1
    while n_members < n_neighbors:
        n_members = min(2 * n_members, n_neighbors)
        smooth_depth = members @ depth
        smooth = members @ counts * (np.median(smooth_depth) / smooth_depth)
        stable = np.sqrt(smooth) + np.sqrt(smooth + 1)
        pca = PCA(min(n_pca, *counts.shape), svd_solver="randomized", random_state=seed)
        with np.errstate(invalid="ignore"):  # cells that are all the same have no variance to explain
            scores = pca.fit_transform(stable)
        scores += dither * np.ptp(scores, axis=0) * rng.uniform(-0.5, 0.5, scores.shape)
        members = NearestNeighbors(n_neighbors=n_members).fit(scores).kneighbors_graph(scores)
    return members


@register_baseline("knn_smoothing", group="specialised", denoises=True)
class KNNSmoothing(JointBaseline):
    """kNN-smoothing (Wagner et al. 2017, version 2): counts of the nearest cells added up, in steps of powers of two.

    Raw counts of each test cell and its nearest training and test cells are added up (``aggregation``), divided by the
    depth of these cells, and brought to the observed total of the cell.

    The method knows no missing entries: hidden ones are zeros, in distances and in sums.

    Differs from the original: ``pseudo_count`` in the totals; without it, they are those of the original. Sums of cells
    are returned at the depth of one cell.

    Parameters
    ----------
    n_neighbors
        Number of cells that are added up, the cell itself among them.
    n_pca
        Number of principal components in which neighbours are sought.
    dither
        Noise on principal components, as a share of their range.
    pseudo_count
        Added to observed and expected totals of a cell.

    Examples
    --------
    >>> import numpy as np
    >>> from anndata import AnnData
    >>> rng = np.random.default_rng(0)
    >>> cells = AnnData(rng.poisson(3, (40, 6)).astype("float32"))
    >>> KNNSmoothing(n_neighbors=8).fit(cells).impute(cells, rng.random(cells.shape) < 0.5).shape
    (40, 6)
    """

    n_neighbors: int = 32
    n_pca: int = 10
    dither: float = 0.03

    def _fit(self, cells: Cells, seed: int) -> None:
        whole_number("n_neighbors", self.n_neighbors)
        super()._fit(cells, seed)

    def _profiles(self, cells: Cells, depth: np.ndarray, seed: int) -> np.ndarray:
        members = aggregation(cells.counts, depth, self.n_neighbors, self.n_pca, self.dither, seed)
        members = members[self.n_train :]
        return (members @ cells.counts) / (members @ depth)
