"""Collects the rows of a result, sparse if the counts are, without a dense copy of the whole."""

from __future__ import annotations

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
    """

    def __init__(self, shape: tuple[int, int], dtype: np.dtype, is_sparse: bool):
        self.dtype = np.dtype(dtype)
        self._is_sparse = is_sparse
        self._blocks: list[sp.csr_matrix] = []
        self._dense = None if is_sparse else np.empty(shape, self.dtype)
        self._n_done = 0

    def add(self, block: np.ndarray) -> None:
        """Append the next rows."""
        if self._is_sparse:
            self._blocks.append(sp.csr_matrix(block.astype(self.dtype, copy=False)))
        else:
            self._dense[self._n_done : self._n_done + len(block)] = block
        self._n_done += len(block)

    def finish(self, order: np.ndarray | None = None) -> np.ndarray | sp.csr_matrix:
        """The matrix, its rows as in ``order``."""
        matrix = sp.vstack(self._blocks, format="csr") if self._is_sparse else self._dense
        self._blocks = []
        return matrix if order is None else matrix[order]
