"""MAGIC: diffusion of counts over a graph of similar cells."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy import sparse
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors

from sccountsdiff.benchmark.baselines.base import Cells, register_baseline
from sccountsdiff.benchmark.baselines.joint import JointBaseline
from sccountsdiff.checks import whole_number


def diffusion_operator(
    data: np.ndarray,
    n_neighbors: int = 5,
    max_neighbors: int | None = None,
    decay: float = 1.0,
    n_pca: int = 100,
    threshold: float = 1e-4,
    seed: int = 0,
) -> sparse.csr_matrix:
    """Markov matrix of a random walk between similar cells.

    The affinity of a cell to another one at distance ``d`` is ``exp(-(d / b)^decay)``, where ``b`` is the distance to its
    ``n_neighbors``-th neighbour: wide in sparse regions, narrow in dense ones. It is then averaged with the affinity of the
    other to the one.

    Parameters
    ----------
    data
        Normalised and transformed counts (cells, genes).
    n_neighbors
        The neighbour that sets the bandwidth.
    max_neighbors
        Neighbours that a cell has affinity to at most; by default three times ``n_neighbors``.
    decay
        How fast affinities decay.
    n_pca
        Principal components in which distances are measured; with no more cells or genes than that, distances are
        measured in ``data`` itself.
    threshold
        Affinities below are taken for zero.
    seed
        Seed of the randomised principal components.

    Returns
    -------
    Sparse matrix (cells, cells); its rows sum to 1.

    Examples
    --------
    >>> import numpy as np
    >>> diffusion_operator(np.array([[0.0], [1.0], [3.0]]), n_neighbors=1).toarray().round(2)
    array([[0.66, 0.24, 0.09],
           [0.23, 0.62, 0.16],
           [0.1 , 0.18, 0.72]])
    """
    whole_number("n_neighbors", n_neighbors)
    if min(data.shape) > n_pca:
        data = PCA(n_pca, svd_solver="randomized", random_state=seed).fit(data).transform(data)
    n_cells = len(data)
    # A cell is the first of its own neighbours.
    n_searched = 1 + max(n_neighbors, 3 * n_neighbors if max_neighbors is None else max_neighbors)
    distances, neighbours = NearestNeighbors(n_neighbors=min(n_searched, n_cells)).fit(data).kneighbors(data)
    bandwidth = distances[:, [min(n_neighbors, n_cells - 1)]]
    bandwidth = np.maximum(bandwidth, np.finfo(float).eps)  # cells with many copies
    affinity = np.exp(-((distances / bandwidth) ** decay))
    affinity[affinity < threshold] = 0
    starts = np.arange(n_cells + 1) * distances.shape[1]
    kernel = sparse.csr_matrix((affinity.ravel(), neighbours.ravel(), starts), shape=(n_cells, n_cells))
    kernel = kernel + kernel.T
    return sparse.csr_matrix(kernel.multiply(1 / kernel.sum(axis=1)))


def magic_smooth(data: np.ndarray, n_neighbors: int = 5, t: int = 3, **kwargs) -> np.ndarray:
    """Each cell as its average over random walks of ``t`` steps that start from it.

    Parameters
    ----------
    data
        Normalised and transformed counts (cells, genes).
    n_neighbors
        The neighbour that sets the bandwidth of the kernel.
    t
        Number of steps.
    **kwargs
        Further arguments of :func:`diffusion_operator`.

    Returns
    -------
    Matrix of the shape of ``data``.

    Examples
    --------
    >>> import numpy as np
    >>> magic_smooth(np.array([[0.0], [1.0], [3.0]]), n_neighbors=1, t=100).round(2)
    array([[1.28],
           [1.28],
           [1.28]])
    """
    operator = diffusion_operator(data, n_neighbors, **kwargs)
    for _ in range(t):
        data = operator @ data
    return data


@register_baseline("magic", group="specialised", denoises=True)
class MAGIC(JointBaseline):
    """MAGIC (van Dijk et al. 2018): counts diffused over a graph of similar cells.

    Counts are divided by the total of their cell, and their square roots averaged over random walks on a graph of training
    and test cells (``magic_smooth``). Squares of the averages are brought to the observed total of the cell. The
    smoothing agrees with the package ``magic-impute`` 3.0.0.

    The method knows no missing entries: hidden ones are zeros, in distances and in averages. How far one has to average
    to get rid of them depends on the data, so ``n_neighbors`` is chosen on held-out cells: half of the entries of a tenth
    of the training cells are hidden, and the number is taken with which their square roots come back with the least
    squared error.

    Differs from the original: ``pseudo_count`` in the totals; without it, they are those of the original. Answers are brought
    to the observed total of the cell. The number of neighbours is chosen by error, where the authors of CountsDiff
    compared distributions (scFID) for the same purpose. The number of steps is the default of the package and not chosen
    from the data.

    Parameters
    ----------
    n_neighbors
        The neighbour that sets the bandwidth of the kernel; by default the best of ``candidates``. The choice is kept in
        ``best_n_neighbors``.
    candidates
        Numbers of neighbours to choose from.
    t
        Number of steps of the random walk.
    decay
        How fast affinities decay with distance.
    n_pca
        Number of principal components in which neighbours are sought.
    pseudo_count
        Added to observed and expected totals of a cell.

    Examples
    --------
    >>> import numpy as np
    >>> from anndata import AnnData
    >>> rng = np.random.default_rng(0)
    >>> cells = AnnData(rng.poisson(3, (40, 6)).astype("float32"))
    >>> method = MAGIC().fit(cells)
    >>> method.best_n_neighbors in method.candidates
    True
    >>> method.impute(cells, rng.random(cells.shape) < 0.5).shape
    (40, 6)
    """

    n_neighbors: int | None = None
    candidates: tuple[int, ...] = (5, 10, 20, 40, 80)
    t: int = 3
    decay: float = 1.0
    n_pca: int = 100

    def _fit(self, cells: Cells, seed: int) -> None:
        numbers = self.candidates if self.n_neighbors is None else (self.n_neighbors,)
        if not numbers or min(numbers) < 1:
            raise ValueError(f"n_neighbors, or candidates for it, must be at least 1, found {numbers}.")
        super()._fit(cells, seed)
        self.best_n_neighbors = self._choose(cells, seed) if self.n_neighbors is None else self.n_neighbors

    def _profiles(self, cells: Cells, depth: np.ndarray, seed: int) -> np.ndarray:
        roots = np.sqrt(cells.counts / depth)
        smooth = magic_smooth(roots, self.best_n_neighbors, self.t, decay=self.decay, n_pca=self.n_pca, seed=seed)
        return smooth[self.n_train :] ** 2

    def _choose(self, cells: Cells, seed: int) -> int:
        """The candidate with the least error on held-out cells, from graphs as they will be used."""
        if len(cells) < 2:
            return self.candidates[0]
        rng = np.random.default_rng(seed)
        order = rng.permutation(len(cells))
        n_held_out = max(1, len(cells) // 10)
        held_out, used = cells[order[:n_held_out]], cells[order[n_held_out:]]
        hidden = rng.random(held_out.counts.shape) < 0.5
        partial = Cells(np.where(hidden, 0, held_out.counts), ~hidden, held_out.covariates)
        errors = []
        for n_neighbors in self.candidates:
            method = replace(self, n_neighbors=n_neighbors)
            method._fit(used, seed)
            answer = method._impute(partial, hidden, 1, seed)
            errors.append(np.mean((np.sqrt(answer) - np.sqrt(held_out.counts)) ** 2, where=hidden))
        return self.candidates[int(np.argmin(errors))]
