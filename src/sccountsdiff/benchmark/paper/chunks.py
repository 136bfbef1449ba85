"""Counts of a large file read in chunks of cells: genes are chosen in one pass, and their counts kept in a second."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from sccountsdiff.benchmark.preprocessing import coefficient_of_variation
from sccountsdiff.files import check_can_write, set_aside, write_text

CHUNK = 20_000
"""Cells that are read at a time."""

PARTS = ("data", "indices", "indptr")


def chunks_of(matrix: Any, rows: np.ndarray) -> Iterator[sparse.csr_matrix]:
    """The rows of a matrix, not yet read, in chunks and in their order; ``rows`` are sorted.

    Examples
    --------
    >>> import numpy as np
    >>> [chunk.toarray().tolist() for chunk in chunks_of(np.eye(3), np.array([0, 2]))]
    [[[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]]
    """
    for start in range(0, matrix.shape[0], CHUNK):
        wanted = rows[np.searchsorted(rows, start) : np.searchsorted(rows, start + CHUNK)]
        if len(wanted):  # a slice of a file is read far faster than rows one by one
            part = sparse.csr_matrix(matrix[wanted[0] : wanted[-1] + 1], dtype=np.float32)
            yield part[wanted - wanted[0]] if len(wanted) < part.shape[0] else part


def choose_genes(matrix: Any, rows: np.ndarray, n_genes: int, min_cells: int) -> tuple[np.ndarray, int]:
    """The genes that vary most, of those found in enough cells, in their order; and how many counts they have.

    Examples
    --------
    >>> import numpy as np
    >>> counts = np.array([[9, 0, 1], [0, 0, 1], [1, 5, 1]])
    >>> choose_genes(counts, np.arange(3), n_genes=1, min_cells=2)
    (array([0]), 2)
    """
    found = np.zeros(matrix.shape[1], dtype=np.int64)
    total, squares = np.zeros((2, matrix.shape[1]))
    for chunk in chunks_of(matrix, rows):
        chunk.eliminate_zeros()
        found += np.bincount(chunk.indices, minlength=len(found))
        total += np.bincount(chunk.indices, chunk.data, len(found))
        squares += np.bincount(chunk.indices, chunk.data.astype(np.float64) ** 2, len(found))
    common = np.flatnonzero(found >= min_cells)
    if not len(common):
        raise ValueError(f"No gene is found in min_cells={min_cells} cells; the commonest is found in {found.max()}.")
    score = coefficient_of_variation(total[common] / len(rows), squares[common] / len(rows))
    chosen = np.sort(common[np.argsort(-score, kind="stable")[:n_genes]])
    return chosen, int(found[chosen].sum())


def read_chosen(
    matrix: Any, rows: np.ndarray, n_genes: int, min_cells: int, folder: Path | None = None, source: Any = None
) -> tuple[sparse.csr_matrix, np.ndarray]:
    """Counts of the chosen genes, memory-mapped if there is a folder for them, and which genes these are.

    Parameters
    ----------
    matrix
        Counts (cells, genes), not yet read.
    rows
        Cells to read, sorted.
    n_genes, min_cells
        As in :func:`choose_genes`.
    folder
        Where the counts are kept, and found again if ``source`` is the same. Default: in memory.
    source
        What says that the counts are the same, such as name, size and date of the file.

    Examples
    --------
    >>> import numpy as np
    >>> counts, genes = read_chosen(np.array([[9, 0, 1], [0, 0, 1], [1, 5, 1]]), np.arange(3), n_genes=2, min_cells=2)
    >>> counts.toarray().tolist(), genes.tolist()
    ([[9.0, 1.0], [0.0, 1.0], [1.0, 1.0]], [0, 2])
    """
    asked = {"source": source, "n_cells": len(rows), "n_genes": n_genes, "min_cells": min_cells}
    note = None if folder is None else Path(folder) / "counts.json"
    kept = None if note is None else _kept(note, asked)
    if kept is not None:
        return kept
    genes, n_counts = choose_genes(matrix, rows, n_genes, min_cells)
    index = np.int32 if max(n_counts, len(genes)) < np.iinfo(np.int32).max else np.int64
    shapes = {"data": (n_counts, np.float32), "indices": (n_counts, index), "indptr": (len(rows) + 1, index)}
    if note is not None:
        note.parent.mkdir(parents=True, exist_ok=True)
        note.unlink(missing_ok=True)  # without it, what is there is not taken for whole
        # A disk that fills up while a file is mapped ends the process without a word.
        check_can_write(note, sum(size * np.dtype(kind).itemsize for size, kind in shapes.values()))
    made = {
        name: np.zeros(size, dtype=kind)
        if note is None
        else np.lib.format.open_memmap(note.with_name(f"{name}.npy"), mode="w+", dtype=kind, shape=(size,))
        for name, (size, kind) in shapes.items()
    }
    cell = count = 0
    for chunk in chunks_of(matrix, rows):
        part = sparse.csr_matrix(chunk[:, genes])
        part.eliminate_zeros()
        part.sort_indices()
        made["data"][count : count + part.nnz] = part.data
        made["indices"][count : count + part.nnz] = part.indices
        made["indptr"][cell + 1 : cell + 1 + part.shape[0]] = count + part.indptr[1:]
        cell, count = cell + part.shape[0], count + part.nnz
    shape = (len(rows), len(genes))
    if note is not None:
        for part in made.values():
            part.flush()
        write_text(note, json.dumps({**asked, "shape": shape, "genes": genes.tolist()}))
    return sparse.csr_matrix(tuple(made[name] for name in PARTS), shape=shape, copy=False), genes


def _kept(note: Path, asked: dict) -> tuple[sparse.csr_matrix, np.ndarray] | None:
    """What an earlier call has written for the same question; what is damaged is set aside."""
    if not note.is_file():
        return None
    try:
        kept = json.loads(note.read_text())
        if {name: kept.get(name) for name in asked} != json.loads(json.dumps(asked)):
            return None
        parts = [np.load(note.with_name(f"{part}.npy"), mmap_mode="r") for part in PARTS]
        return sparse.csr_matrix(tuple(parts), shape=tuple(kept["shape"]), copy=False), np.asarray(kept["genes"])
    except (AttributeError, EOFError, KeyError, OSError, RecursionError, TypeError, ValueError) as error:
        set_aside(note, error)
        return None
