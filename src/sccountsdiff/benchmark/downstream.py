"""What imputed cells are good for: cell types by a classifier, clusters, marker genes.

Counts are scaled to 10,000 per cell and transformed by log(1 + x) for all three.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from anndata import AnnData

from sccountsdiff.benchmark.matrices import DenseOrSparse, log_normalised
from sccountsdiff.benchmark.metrics.inputs import best_device
from sccountsdiff.benchmark.metrics.registry import register_input, register_metric
from sccountsdiff.benchmark.optional import optional_import
from sccountsdiff.benchmark.quiet import quiet
from sccountsdiff.checks import whole_number

if TYPE_CHECKING:
    from sccountsdiff.benchmark.scoring import Split

__all__ = ["CellTypeClassifier", "accuracy", "macro_f1", "leiden_clusters", "cluster_ari"]
__all__ += ["log_normalised", "marker_recovery", "markers_of_types"]


class CellTypeClassifier:
    """Gradient-boosted trees that tell the type of a cell from its counts.

    Parameters
    ----------
    n_trees, max_depth
        Number of boosting rounds and depth of each tree; the paper's by default.
    seed
        Seed of the training.
    device
        Where trees are grown, ``"cpu"`` or ``"cuda"``. Default: a GPU if there is one; on the CPU all cores are used.

    Examples
    --------
    >>> import numpy as np
    >>> counts = np.array([[9, 1], [8, 2], [1, 7], [2, 9]] * 5)
    >>> CellTypeClassifier(n_trees=5).fit(counts, ["a", "a", "b", "b"] * 5).predict(np.array([[5, 0], [0, 5]])).tolist()
    ['a', 'b']
    """

    def __init__(self, n_trees: int = 100, max_depth: int = 6, seed: int = 0, device: str | None = None) -> None:
        xgboost = optional_import("xgboost", "The cell-type classifier")
        place = {"device": device or best_device().type, "n_jobs": -1, "tree_method": "hist"}
        self._trees = xgboost.XGBClassifier(n_estimators=n_trees, max_depth=max_depth, random_state=seed, **place)

    def fit(self, counts: DenseOrSparse, labels: Sequence) -> CellTypeClassifier:
        """Learn from complete cells and their types; returns the classifier itself."""
        self._types, codes = np.unique(np.asarray(labels, dtype=str), return_inverse=True)
        if len(codes) != counts.shape[0]:
            raise ValueError(f"labels must have one entry for each of {counts.shape[0]} cells, found {len(codes)}.")
        if len(self._types) > 1:
            self._trees.fit(log_normalised(counts), codes)
        return self

    def predict(self, counts: DenseOrSparse) -> np.ndarray:
        """The most probable type of each cell."""
        if len(self._types) == 1:
            return np.repeat(self._types, counts.shape[0])
        return self._types[self._trees.predict(log_normalised(counts))]


def _classifier(split: Split) -> CellTypeClassifier:
    """Trained on the training cells."""
    return CellTypeClassifier(seed=split.seed).fit(split.train.X, split.train.obs[split.label].astype(str))


@register_input("predicted_labels", needs_labels=True, needs_training=True, packages=("xgboost",), judges_truth=True)
def _predicted_labels(split: Split, imputed: np.ndarray) -> np.ndarray:
    return split.once(_classifier).predict(imputed)


@register_metric("accuracy", direction="higher", group="downstream")
def accuracy(labels: np.ndarray, predicted_labels: np.ndarray) -> float:
    """Share of the imputed cells whose type a classifier of true cells gets right.

    Parameters
    ----------
    labels, predicted_labels
        True and predicted type of each cell.

    Returns
    -------
    The share, between 0 and 1.

    Examples
    --------
    >>> import numpy as np
    >>> accuracy(np.array(["a", "b"]), np.array(["a", "a"]))
    0.5
    """
    return float(np.mean(np.asarray(labels) == np.asarray(predicted_labels)))


@register_metric("macro_f1", direction="higher", group="downstream")
def macro_f1(labels: np.ndarray, predicted_labels: np.ndarray) -> float:
    """F1 score of each type that is there or predicted, averaged over types, rare ones as much as common ones.

    Parameters
    ----------
    labels, predicted_labels
        True and predicted type of each cell.

    Returns
    -------
    The mean score, between 0 and 1.

    Examples
    --------
    >>> import numpy as np
    >>> macro_f1(np.array(["a", "a", "b"]), np.array(["a", "a", "a"]))
    0.4
    """
    from sklearn.metrics import f1_score

    return float(f1_score(labels, predicted_labels, average="macro", zero_division=0))


@register_metric("cluster_ari", direction="higher", group="downstream")
def cluster_ari(labels: np.ndarray, clusters: np.ndarray) -> float:
    """Adjusted Rand index of clusters of the imputed cells against their types.

    Parameters
    ----------
    labels
        Type of each cell.
    clusters
        Cluster of each cell, see :func:`leiden_clusters`.

    Returns
    -------
    1 for perfect agreement, about 0 for clusters by chance.

    Examples
    --------
    >>> import numpy as np
    >>> cluster_ari(np.array(["a", "a", "b", "b"]), np.array([1, 1, 0, 0]))
    1.0
    """
    from sklearn.metrics import adjusted_rand_score

    return float(adjusted_rand_score(labels, clusters))


@register_metric("marker_recovery", direction="higher", group="downstream")
def marker_recovery(truth: np.ndarray, imputed: np.ndarray, labels: np.ndarray, *, n_markers: int = 20) -> float:
    """Share of the marker genes of the true cells that are marker genes of the imputed ones, averaged over types.

    Parameters
    ----------
    truth, imputed
        Counts (cells, genes).
    labels
        Type of each cell. Types with a single cell are left out.
    n_markers
        Markers per type, at most half of the genes: those with the highest t statistic against all other cells.

    Returns
    -------
    The share, between 0 and 1; not a number if there are no two types to tell apart.

    Examples
    --------
    >>> import numpy as np
    >>> truth = np.random.default_rng(0).poisson(np.repeat([[9, 1, 1, 1], [1, 9, 1, 1]], 20, axis=0))
    >>> labels = np.repeat(["a", "b"], 20)
    >>> marker_recovery(truth, truth, labels), marker_recovery(truth, truth[:, ::-1], labels, n_markers=1)
    (1.0, 0.0)
    """
    true_markers, markers = (markers_of_types(counts, labels, n_markers=n_markers) for counts in (truth, imputed))
    shares = [len(true_markers[name] & markers[name]) / len(true_markers[name]) for name in true_markers]
    return float(np.mean(shares)) if shares else float("nan")


def markers_of_types(counts: DenseOrSparse, labels: Sequence, *, n_markers: int = 20) -> dict[str, set[int]]:
    """Columns of the marker genes of each type with two or more cells.

    Parameters
    ----------
    counts
        Counts (cells, genes).
    labels
        Type of each cell.
    n_markers
        Markers per type, at most half of the genes.

    Returns
    -------
    Positions of the markers by type.

    Examples
    --------
    >>> import numpy as np
    >>> counts = np.random.default_rng(0).poisson(np.repeat([[9, 1, 1], [1, 1, 9]], 20, axis=0))
    >>> markers_of_types(counts, np.repeat(["a", "b"], 20), n_markers=1)
    {'a': {0}, 'b': {2}}
    """
    import scanpy as sc

    n_markers = whole_number("n_markers", n_markers)
    labels = pd.Series(np.asarray(labels, dtype=str))
    sizes = labels.value_counts().sort_index()
    types = sizes.index[sizes > 1].tolist()
    if not types or len(sizes) < 2:
        return {}
    cells = AnnData(log_normalised(counts))
    cells.obs["type"] = pd.Categorical(labels)
    n_markers = max(1, min(n_markers, cells.n_vars // 2))
    with quiet(), np.errstate(all="ignore"):
        sc.tl.rank_genes_groups(cells, "type", groups=types, method="t-test", n_genes=n_markers)
    ranked = cells.uns["rank_genes_groups"]["names"]
    return {name: {int(gene) for gene in ranked[name]} for name in types}


def leiden_clusters(
    counts: DenseOrSparse, *, resolution: float = 1.0, n_neighbors: int = 15, seed: int = 0
) -> np.ndarray:
    """Leiden clusters of cells: principal components of the log counts, nearest neighbours, communities.

    Parameters
    ----------
    counts
        Counts (cells, genes).
    resolution
        Higher values give more clusters.
    n_neighbors
        Neighbours of each cell in the graph.
    seed
        Seed of components, graph and clusters.

    Returns
    -------
    Number of the cluster of each cell.

    Examples
    --------
    >>> import numpy as np
    >>> counts = np.random.default_rng(0).poisson(np.repeat([[30, 1, 5, 5], [1, 30, 5, 5]], 20, axis=0))
    >>> clusters = leiden_clusters(counts, resolution=0.1)
    >>> set(clusters[:20]) & set(clusters[20:])  # no cluster has cells of both kinds
    set()
    """
    import scanpy as sc

    optional_import("leidenalg", "Clustering")
    optional_import("igraph", "Clustering")
    cells = AnnData(log_normalised(counts))
    with quiet():
        sc.pp.pca(cells, n_comps=max(1, min(50, cells.n_obs - 1, cells.n_vars - 1)), random_state=seed)
        sc.pp.neighbors(cells, n_neighbors=min(n_neighbors, cells.n_obs - 1), method="gauss", random_state=seed)
        options = {"flavor": "igraph", "n_iterations": 2, "directed": False}
        sc.tl.leiden(cells, resolution=resolution, random_state=seed, **options)
    return cells.obs["leiden"].astype(int).to_numpy()


@register_input("clusters", packages=("leidenalg", "igraph"), judges_truth=True)
def _clusters(split: Split, imputed: np.ndarray) -> np.ndarray:
    return leiden_clusters(imputed, seed=split.seed)
