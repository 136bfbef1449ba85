"""Collects the rows of a result, sparse if the counts are, in one place: never twice in memory."""

from __future__ import annotations

import math

import numpy as np
import scipy.sparse as sp


class Canvas:
    """Cells x genes, filled block by block from the top.

    Parameters
    ----------
    shape
        Cells and genes.
    dtype
        Of the result.
    is_sparse
        Give back CSR instead of a dense array.

    Examples
    --------
    >>> import numpy as np
    >>> canvas = Canvas((3, 2), np.float32, is_sparse=True)
    >>> canvas.add(np.array([[0, 1], [2, 0]]))
    >>> canvas.add(np.array([[3, 4]]))
    >>> canvas.finish().toarray().tolist()
    [[0.0, 1.0], [2.0, 0.0], [3.0, 4.0]]
    """

    def __init__(self, shape: tuple[int, int], dtype: np.dtype, is_sparse: bool):
        self.dtype = np.dtype(dtype)
        self._shape = shape
        self._n_done = 0
        self._dense = None if is_sparse else np.empty(shape, self.dtype)
        # The three arrays of a CSR matrix.
        self._values, self._genes = np.empty(0, self.dtype), np.empty(0, np.int32)
        self._ends = np.zeros(shape[0] + 1, np.int64)

    def add(self, block: np.ndarray) -> None:
        """Append the next rows."""
        rows = slice(self._n_done, self._n_done + len(block))
        if self._dense is not None:
            self._dense[rows] = block
        else:
            block = sp.csr_matrix(block.astype(self.dtype, copy=False))
            before, after = self._ends[rows.start], self._ends[rows.start] + block.nnz
            if after > len(self._values):
                # Blocks are much alike: make room for all the rest.
                self._resize(math.ceil(after / rows.stop * self._shape[0]))
            self._values[before:after], self._genes[before:after] = block.data, block.indices
            self._ends[rows.start + 1 : rows.stop + 1] = before + block.indptr[1:]
        self._n_done = rows.stop

    def finish(self, order: np.ndarray | None = None) -> np.ndarray | sp.csr_matrix:
        """The matrix, its rows as in ``order``."""
        matrix = self._dense
        if matrix is None:
            self._resize(self._ends[-1])
            matrix = sp.csr_matrix((self._values, self._genes, self._ends), shape=self._shape, copy=False)
        return matrix if order is None else matrix[order]

    def _resize(self, n_stored: int) -> None:
        # In place. Nobody else holds these arrays.
        self._values.resize(n_stored, refcheck=False)
        self._genes.resize(n_stored, refcheck=False)
