"""Reading matrices by blocks, whatever they are stored in, so that backed data never has to fit in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import h5py
import numpy as np
import scipy.sparse as sp
from anndata.abc import CSCDataset, CSRDataset

Matrix: TypeAlias = (
    "np.ndarray | sp.csr_matrix | sp.csc_matrix | sp.csr_array | sp.csc_array | h5py.Dataset | CSRDataset | CSCDataset"
)

BLOCK_ENTRIES = 10_000_000  # entries of a block, as if it were dense


def iter_row_chunks(matrix: Matrix, n_rows: int | None = None) -> Iterator[tuple[int, np.ndarray | sp.csr_matrix]]:
    """Walk over the rows of a matrix in blocks of bounded size.

    Parameters
    ----------
    matrix
        NumPy array, SciPy sparse matrix or array, or a backed matrix (:class:`h5py.Dataset`,
        :class:`anndata.abc.CSRDataset`, :class:`anndata.abc.CSCDataset`). A CSC matrix in memory is converted to CSR
        once; a backed one is read anew for each block.
    n_rows
        Rows in a block. Default: as many as make ten million entries, at least one.

    Yields
    ------
    The index of the first row of the block, and the block: a NumPy array, or CSR with sorted indices and no duplicates.
    A block may share memory with `matrix`: copy it before changing it.

    Examples
    --------
    >>> import numpy as np
    >>> [(start, block.shape) for start, block in iter_row_chunks(np.ones((5, 2)), n_rows=2)]
    [(0, (2, 2)), (2, (2, 2)), (4, (1, 2))]
    """
    matrix = as_matrix(matrix, "matrix")
    if sp.issparse(matrix):
        matrix = matrix.tocsr()
    if n_rows is not None and n_rows < 1:
        raise ValueError(f"n_rows must be at least 1, found {n_rows}.")
    for rows in _slices(matrix.shape[0], n_rows or lines_per_block(matrix.shape[1])):
        block = read_block(matrix, rows, slice(None))
        yield rows.start, block.tocsr() if sp.issparse(block) else block


def as_matrix(matrix: Any, name: str) -> Matrix:
    """Return the matrix, as CSR if it has a rarer sparse format; raise if it cannot be read by slices."""
    if isinstance(matrix, np.ma.MaskedArray) and np.ma.is_masked(matrix):
        raise ValueError(f"{name} is a masked array: mark missing entries as NaN, e.g. with .filled(np.nan).")
    if not sp.issparse(matrix) and not isinstance(matrix, np.ndarray | h5py.Dataset | CSRDataset | CSCDataset):
        raise ValueError(
            f"{name} is a {type(matrix).__module__}.{type(matrix).__qualname__}: "
            "use a NumPy array, a SciPy CSR or CSC matrix, or data backed by an h5ad file."
        )
    if len(matrix.shape) != 2:
        raise ValueError(f"{name} must be a matrix of cells x genes, found shape {tuple(matrix.shape)}.")
    if sp.issparse(matrix) and matrix.format not in ("csr", "csc"):
        return matrix.tocsr()
    return matrix


def is_csc(matrix: Matrix) -> bool:
    """Whether the matrix is stored by columns."""
    return getattr(matrix, "format", None) == "csc"


def lines_per_block(length: int) -> int:
    """Rows or columns of the given length that make a block."""
    return max(1, BLOCK_ENTRIES // max(1, length))


def _slices(length: int, step: int) -> Iterator[slice]:
    return (slice(start, min(start + step, length)) for start in range(0, length, step))


def spread_slices(length: int, n_lines: int, n_runs: int = 10) -> list[slice]:
    """Return runs of consecutive positions, evenly spread over `length`, with `n_lines` positions in all or fewer."""
    if length <= n_lines:
        return [slice(0, length)]
    size = n_lines // n_runs
    return [slice(start, start + size) for start in np.linspace(0, length - size, n_runs).astype(int).tolist()]


def read_block(matrix: Matrix, rows: slice, columns: slice) -> np.ndarray | sp.csr_matrix | sp.csc_matrix:
    """Load a block; a sparse one has sorted indices and each entry stored once."""
    block = matrix[rows, columns]
    if not sp.issparse(block):
        return np.asarray(block)
    if not block.has_canonical_format:
        block.sum_duplicates()  # in place: a slice of a sparse matrix is a copy
    return block


def iter_blocks(matrix: Matrix) -> Iterator[tuple[int, int, np.ndarray | sp.csr_matrix | sp.csc_matrix]]:
    """Yield first row, first column and block, along the axis in which the matrix is stored."""
    if is_csc(matrix):
        for columns in _slices(matrix.shape[1], lines_per_block(matrix.shape[0])):
            yield 0, columns.start, read_block(matrix, slice(None), columns)
    else:
        for start, block in iter_row_chunks(matrix):
            yield start, 0, block


def read_rows(matrix: Matrix, rows: slice | np.ndarray) -> np.ndarray:
    """Load rows, in increasing order, as a dense array of the matrix's own dtype."""
    block = matrix[rows]
    return block.toarray() if sp.issparse(block) else np.asarray(block)
