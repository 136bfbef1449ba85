"""Reading matrices by blocks, whatever they are stored in, so that backed data never has to fit in memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, TypeAlias, TypeGuard

import h5py
import numpy as np
import scipy.sparse as sp
from anndata.abc import CSCDataset, CSRDataset

Matrix: TypeAlias = (
    "np.ndarray | sp.csr_matrix | sp.csc_matrix | sp.csr_array | sp.csc_array | h5py.Dataset | CSRDataset | CSCDataset"
    " | BlockMask | DaskMatrix"
)

Block: TypeAlias = "np.ndarray | sp.csr_matrix | sp.csc_matrix"
"""Part of a matrix, in memory."""

SparseMatrix: TypeAlias = Any
"""A sparse matrix or array of SciPy, which has no types."""

BLOCK_ENTRIES = 10_000_000  # entries of a block, as if it were dense


class BlockMask:
    """Cells x genes of which each cell has whole groups of genes or not: read like a matrix, without being one in memory.

    Parameters
    ----------
    present
        Which groups each cell has, boolean ``(cells, groups)``.
    groups
        Number of the group of each gene.

    Examples
    --------
    >>> import numpy as np
    >>> mask = BlockMask(np.array([[True, False], [True, True]]), np.array([0, 0, 1]))
    >>> mask.shape, mask[0:1].tolist()
    ((2, 3), [[True, True, False]])
    """

    dtype = np.dtype(bool)

    def __init__(self, present: np.ndarray, groups: np.ndarray):
        self.present, self.groups = present, groups
        self.shape = (len(present), len(groups))

    def __getitem__(self, places: Any) -> np.ndarray:
        rows, columns = places if isinstance(places, tuple) else (places, slice(None))
        return self.present[rows][:, self.groups[columns]]


class DaskMatrix:
    """Cells x genes of a Dask array, of which blocks are computed when they are read.

    Parameters
    ----------
    array
        A :class:`dask.array.Array`, of dense or of sparse chunks.

    Examples
    --------
    >>> import numpy as np
    >>> import dask.array as da
    >>> DaskMatrix(da.ones((4, 3), chunks=(2, 3)))[1:3].tolist()
    [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
    """

    def __init__(self, array: Any):
        self.array = array
        self.shape, self.dtype = array.shape, array.dtype

    @property
    def is_sparse(self) -> bool:
        """Whether its chunks are sparse."""
        return sp.issparse(self.array._meta)

    def __getitem__(self, places: Any) -> Any:
        return self.array[places].compute()


def is_sparse(matrix: Any) -> TypeGuard[SparseMatrix]:
    """Whether a matrix is a sparse one in memory."""
    return sp.issparse(matrix)


def compute_here(worker: int = 0) -> None:
    """Let Dask compute in this thread: a process that was forked has none of the threads that Dask had started."""
    if (dask := sys.modules.get("dask")) is not None:
        dask.config.set(scheduler="synchronous")


def as_matrix(matrix: Any, name: str) -> Matrix:
    """Return the matrix, as CSR if it has a rarer sparse format; raise if it cannot be read by slices."""
    if isinstance(matrix, np.ma.MaskedArray):
        raise ValueError(f"{name} is a masked array: mark missing entries as NaN, e.g. with .filled(np.nan).")
    if type(matrix).__module__.startswith("dask.") and hasattr(matrix, "compute"):  # without importing it
        matrix = DaskMatrix(matrix)
    if not is_sparse(matrix) and not isinstance(
        matrix, np.ndarray | h5py.Dataset | CSRDataset | CSCDataset | BlockMask | DaskMatrix
    ):
        raise ValueError(
            f"{name} is a {type(matrix).__module__}.{type(matrix).__qualname__}: "
            "use a NumPy array, a SciPy CSR or CSC matrix, a Dask array of these, or data backed by an h5ad file."
        )
    if len(matrix.shape) != 2:
        raise ValueError(f"{name} must be a matrix of cells x genes, found shape {tuple(matrix.shape)}.")
    if is_sparse(matrix) and matrix.format not in ("csr", "csc"):
        return matrix.tocsr()
    if is_sparse(matrix):
        _check_positions(matrix, name)
    return matrix


def _check_positions(matrix: SparseMatrix, name: str) -> None:
    """Refuse entries that are not within the matrix, as of a damaged file: SciPy would write beyond its own memory."""
    starts, n_lines = matrix.indptr, matrix.shape[is_csc(matrix)]
    is_whole = len(starts) == n_lines + 1 and starts[0] == 0 and (starts[1:] >= starts[:-1]).all()
    is_whole = is_whole and starts[-1] <= min(len(matrix.indices), len(matrix.data))
    positions = matrix.indices[: starts[-1]]
    if (
        not is_whole
        or len(positions)
        and not 0 <= positions.min() <= positions.max() < matrix.shape[not is_csc(matrix)]
    ):
        raise ValueError(
            f"{name} is damaged: it has entries that are not within its {tuple(matrix.shape)} cells x genes."
        )


def reads_sparse(matrix: Matrix) -> bool:
    """Whether blocks of the matrix are sparse."""
    of_dask = isinstance(matrix, DaskMatrix) and matrix.is_sparse
    return sp.issparse(matrix) or isinstance(matrix, CSRDataset | CSCDataset) or of_dask


def is_csc(matrix: Matrix) -> bool:
    """Whether the matrix is stored by columns."""
    return getattr(matrix, "format", None) == "csc"


def by_rows(matrix: Matrix) -> Matrix:
    """The matrix, as CSR if it is sparse and in memory: rows of others are expensive to read, block after block."""
    return matrix.tocsr() if is_sparse(matrix) else matrix


def dense(block: Block) -> np.ndarray:
    """The block as an array."""
    return block.toarray() if is_sparse(block) else np.asarray(block)


def lines_per_block(length: int) -> int:
    """Rows or columns of the given length that make a block."""
    return max(1, BLOCK_ENTRIES // max(1, length))


def _ranges(length: int, step: int) -> Iterator[range]:
    return (range(start, min(start + step, length)) for start in range(0, length, step))


def spread_ranges(length: int, n_lines: int, n_runs: int = 10) -> list[range]:
    """Return runs of consecutive positions, evenly spread over `length`, with `n_lines` positions in all or fewer."""
    if length <= n_lines:
        return [range(length)]
    size = n_lines // n_runs
    return [range(start, start + size) for start in np.linspace(0, length - size, n_runs).astype(int).tolist()]


def read_block(matrix: Matrix, rows: range | np.ndarray, columns: range | None = None) -> Block:
    """Load increasing rows, of all columns or some; a sparse block has sorted indices and each entry stored once."""
    block = matrix[_as_slice(rows), slice(None) if columns is None else _as_slice(columns)]
    if not is_sparse(block):
        return np.asarray(block)
    if not is_sparse(matrix):
        _check_positions(block, "The matrix in the file")
    if not block.has_canonical_format:
        block.sum_duplicates()  # in place: a slice of a sparse matrix is a copy
    return block


def iter_some_rows(matrix: Matrix, rows: np.ndarray) -> Iterator[tuple[np.ndarray, Block]]:
    """Yield positions and blocks of the given rows, which are in increasing order; no others are read."""
    for part in _ranges(len(rows), lines_per_block(matrix.shape[1])):
        some = rows[part.start : part.stop]
        yield some, read_block(matrix, some)


def iter_blocks(matrix: Matrix, rows: np.ndarray | None = None) -> Iterator[tuple[range | np.ndarray, range, Block]]:
    """Yield positions of rows and columns, and the block, along the axis in which the matrix is stored.

    With ``rows``, in increasing order, these alone are read.
    """
    n_rows, n_columns = matrix.shape
    rows = np.arange(n_rows) if rows is None else rows
    if is_csc(matrix) and len(rows) == n_rows:
        for columns in _ranges(n_columns, lines_per_block(n_rows)):
            yield range(n_rows), columns, read_block(matrix, range(n_rows), columns)
    else:
        for some, block in iter_some_rows(matrix, rows):
            yield some, range(n_columns), block


def read_rows(matrix: Matrix, rows: range | np.ndarray) -> np.ndarray:
    """Load rows, in increasing order, as a dense array of the matrix's own dtype that shares no memory with it."""
    block = matrix[_as_slice(rows)]
    if not is_sparse(block):
        return np.array(block)
    if not is_sparse(matrix):
        _check_positions(block, "The matrix in the file")
    return block.toarray()


def _as_slice(positions: range | np.ndarray) -> slice | np.ndarray:
    """Increasing positions without a gap as a slice: files are read in about half the time."""
    if len(positions) and positions[-1] - positions[0] + 1 == len(positions):
        return slice(int(positions[0]), int(positions[-1]) + 1)
    return np.asarray(positions)
