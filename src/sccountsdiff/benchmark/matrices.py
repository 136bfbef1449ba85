"""Matrices of counts, dense or sparse, in memory."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from scipy import sparse

from sccountsdiff.data.messages import values_of

DenseOrSparse: TypeAlias = np.ndarray | sparse.spmatrix | sparse.sparray


def are_counts(matrix: DenseOrSparse) -> bool:
    """Whether all values are whole numbers of at least 0.

    Examples
    --------
    >>> are_counts(np.array([0.0, 2.0])), are_counts(np.array([0.5])), are_counts(np.array([np.inf]))
    (True, False, False)
    """
    values = values_of(matrix)
    return bool(np.all(np.isfinite(values) & (values >= 0) & (values == np.round(values))))


def log_normalised(counts: DenseOrSparse, dtype: type = np.float32) -> Any:
    """Log of one plus counts per ten thousand, sparse if the counts are.

    Parameters
    ----------
    counts
        Counts (cells, genes), dense or sparse.
    dtype
        Type of the result.

    Returns
    -------
    A matrix of the same shape.

    Examples
    --------
    >>> import numpy as np
    >>> np.expm1(log_normalised(np.array([[1, 3], [0, 0]]))).round().tolist()
    [[2500.0, 7500.0], [0.0, 0.0]]
    """
    if not sparse.issparse(counts):
        counts = np.asarray(counts, dtype=dtype)
        totals = counts.sum(axis=1, keepdims=True)
        return np.log1p(counts * (dtype(1e4) / np.where(totals > 0, totals, 1)))
    counts = sparse.csr_matrix(counts, dtype=dtype)
    totals = np.asarray(counts.sum(axis=1)).ravel()
    return sparse.csr_matrix(sparse.diags(1e4 / np.where(totals > 0, totals, 1)) @ counts, dtype=dtype).log1p()
