"""From a raw data set to training, validation and test cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd
from anndata import AnnData
from scipy import sparse

from sccountsdiff.checks import one_of, whole_number
from sccountsdiff.data.counts import get_matrix

Ranking = Literal["cv", "pearson_residuals", "variance"]


def filter_genes(adata: AnnData, min_cells: int, *, layer: str | None = None) -> AnnData:
    """Genes found in at least ``min_cells`` cells.

    Parameters
    ----------
    adata
        Cells with raw counts; not changed.
    min_cells
        Number of cells in which a gene must have a count.
    layer
        Layer with the counts; ``X`` by default.

    Returns
    -------
    A copy with these genes.

    Examples
    --------
    >>> import numpy as np
    >>> from anndata import AnnData
    >>> filter_genes(AnnData(np.array([[1.0, 0.0], [2.0, 3.0]])), min_cells=2).shape
    (2, 1)
    """
    n_cells = np.asarray((sparse.csr_matrix(get_matrix(adata, layer)) > 0).sum(axis=0)).ravel()
    if not np.any(n_cells >= min_cells):
        raise ValueError(f"No gene is found in min_cells={min_cells} cells; the commonest is found in {n_cells.max()}.")
    return adata[:, n_cells >= min_cells].copy()


def top_genes(adata: AnnData, n: int, by: Ranking = "cv", *, layer: str | None = None) -> AnnData:
    """The ``n`` most variable genes, in their original order.

    Parameters
    ----------
    adata
        Cells with raw counts; not changed. Filter rare genes first: their coefficient of variation is always high.
    n
        Number of genes; all of them if there are fewer. Genes without any count come last.
    by
        ``"cv"``, standard deviation over mean of the raw counts; ``"variance"`` of the raw counts; or
        ``"pearson_residuals"``, the variance of the residuals of a negative binomial that knows the depth of the cell.
    layer
        Layer with the counts; ``X`` by default.

    Returns
    -------
    A copy with these genes.

    Examples
    --------
    >>> import numpy as np
    >>> from anndata import AnnData
    >>> adata = AnnData(np.array([[5.0, 0.0, 1.0], [6.0, 8.0, 1.0]]))
    >>> top_genes(adata, 1, by="cv").var_names.tolist()
    ['1']
    """
    n = whole_number("n", n)
    scores = {"cv": _cv, "variance": _variance, "pearson_residuals": _residual_variance}
    one_of("by", by, tuple(scores))
    score = scores[by](sparse.csr_matrix(get_matrix(adata, layer)))
    best = np.argsort(-score, kind="stable")[:n]
    return adata[:, np.sort(best)].copy()


def split_cells(
    cells: AnnData | int,
    shares: Sequence[float] = (0.8, 0.1, 0.1),
    *,
    seed: int = 0,
    stratify: Sequence | str | None = None,
) -> tuple[np.ndarray, ...]:
    """Split cells at random.

    Parameters
    ----------
    cells
        The cells, or their number.
    shares
        Share of the cells in each part; they add up to 1.
    seed
        Seed of the split.
    stratify
        One label per cell, or a column of ``obs``: each label is then split in these shares.

    Returns
    -------
    Sorted positions of the cells of each part.

    Examples
    --------
    >>> train, validation, test = split_cells(10, seed=1)
    >>> len(train), len(validation), len(test)
    (8, 1, 1)
    """
    shares = np.asarray(shares, dtype=np.float64)
    if shares.ndim != 1 or np.any(shares < 0) or not np.isclose(shares.sum(), 1):
        raise ValueError(f"shares must be non-negative and add up to 1, found {shares.tolist()}.")
    n = cells.n_obs if isinstance(cells, AnnData) else int(cells)
    if isinstance(stratify, str):
        if not isinstance(cells, AnnData) or stratify not in cells.obs:
            raise KeyError(f"stratify={stratify!r} is not a column of obs; give a column or one label per cell.")
        stratify = cells.obs[stratify]
    codes = np.zeros(n, dtype=int) if stratify is None else pd.factorize(np.asarray(stratify), use_na_sentinel=False)[0]
    if codes.shape != (n,):
        raise ValueError(f"stratify must have one label for each of {n} cells, found {len(codes)}.")

    rng = np.random.default_rng(seed)
    order = rng.permutation(n)
    order = order[np.argsort(codes[order], kind="stable")]  # one stratum after the other, random within each
    sizes = np.bincount(codes)
    place = np.arange(n) - (np.cumsum(sizes) - sizes)[codes[order]]  # within the stratum
    # A random offset per stratum: the cells that do not divide evenly go to any part, not always to the first.
    offset = rng.random(codes.max() + 1)[codes[order]] if stratify is not None else 0.5
    part = np.searchsorted(np.cumsum(shares)[:-1], (place + offset) / sizes[codes[order]], side="right")
    return tuple(np.sort(order[part == i]) for i in range(len(shares)))


def split_test(
    cells: AnnData, share: float, *, seed: int = 0, testable: str | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Split cells at random into training cells and test cells.

    Parameters
    ----------
    cells
        The cells.
    share
        Share of the cells that are test cells.
    seed
        Seed of the split.
    testable
        Column of ``obs``, true for the cells that may be test cells; any may be by default.

    Returns
    -------
    Sorted positions of the training cells and of the test cells.

    Examples
    --------
    >>> import numpy as np
    >>> from anndata import AnnData
    >>> cells = AnnData(np.ones((6, 1)), obs={"new": [False, False, False, True, True, True]})
    >>> train, test = split_test(cells, 0.5, testable="new")
    >>> test.tolist()
    [3, 4, 5]
    """
    allowed = np.ones(cells.n_obs, dtype=bool) if testable is None else cells.obs[testable].to_numpy(dtype=bool)
    share_of_allowed = share * cells.n_obs / max(allowed.sum(), 1)
    if share_of_allowed > 1:
        raise ValueError(
            f"Of {cells.n_obs} cells, {share:.0%} are to be test cells, but only {allowed.sum()} are {testable!r}; "
            "take a smaller share."
        )
    chosen = split_cells(int(allowed.sum()), (1 - share_of_allowed, share_of_allowed), seed=seed)[1]
    is_test = np.zeros(cells.n_obs, dtype=bool)
    is_test[np.flatnonzero(allowed)[chosen]] = True
    return np.flatnonzero(~is_test), np.flatnonzero(is_test)


def encode_labels(adata: AnnData, keys: Sequence[str] | str) -> AnnData:
    """Number the values of columns of ``obs`` once, before cells are split, so that all parts share the numbers.

    Categorical columns do not serve for this: parts of an AnnData drop the categories that they do not use, and their
    codes change.

    Parameters
    ----------
    adata
        Cells; not changed.
    keys
        Columns of ``obs``.

    Returns
    -------
    A copy with, for each key, a column ``obs[key + "_code"]`` and the names ``uns["label_codes"][key]`` of the codes.

    Examples
    --------
    >>> import numpy as np
    >>> from anndata import AnnData
    >>> cells = encode_labels(AnnData(np.ones((3, 1)), obs={"type": ["b", "a", "b"]}), "type")
    >>> cells[[0, 2]].obs["type_code"].tolist(), cells.uns["label_codes"]["type"].tolist()
    ([1, 1], ['a', 'b'])
    """
    adata = adata.copy()
    for key in [keys] if isinstance(keys, str) else keys:
        if key not in adata.obs:
            raise KeyError(f"keys: {key!r} is not a column of obs; found {list(adata.obs.columns)}.")
        names, codes = np.unique(adata.obs[key].astype(str).to_numpy(dtype=str), return_inverse=True)
        adata.obs[key + "_code"] = codes
        adata.uns.setdefault("label_codes", {})[key] = names
    return adata


def _mean(counts: sparse.csr_matrix) -> np.ndarray:
    return np.asarray(counts.astype(np.float64).mean(axis=0)).ravel()


def _variance(counts: sparse.csr_matrix) -> np.ndarray:
    return _mean(counts.astype(np.float64).power(2)) - _mean(counts) ** 2


def _cv(counts: sparse.csr_matrix) -> np.ndarray:
    return coefficient_of_variation(_mean(counts), _mean(counts.astype(np.float64).power(2)))


def coefficient_of_variation(mean: np.ndarray, mean_square: np.ndarray) -> np.ndarray:
    """Standard deviation over mean of each gene, from the means of its counts and of their squares.

    Parameters
    ----------
    mean
        Mean count of each gene.
    mean_square
        Mean of its squared counts.

    Returns
    -------
    A number for each gene, -1 for those without counts.

    Examples
    --------
    >>> coefficient_of_variation(np.array([1.0, 0.0]), np.array([2.0, 0.0])).tolist()
    [1.0, -1.0]
    """
    variance = np.maximum(mean_square - mean**2, 0)
    return np.divide(np.sqrt(variance), mean, out=np.full_like(mean, -1), where=mean > 0)


def _residual_variance(counts: sparse.csr_matrix) -> np.ndarray:
    from scanpy.experimental.pp import highly_variable_genes

    adata = AnnData(counts)
    table = highly_variable_genes(adata, flavor="pearson_residuals", n_top_genes=counts.shape[1], inplace=False)
    return table["residual_variances"].fillna(-1).to_numpy()
