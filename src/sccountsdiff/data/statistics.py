"""Numbers about the training data that the network starts from, gathered block by block."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from sccountsdiff.data.missing import is_missing
from sccountsdiff.data.reading import Matrix, dense, iter_row_chunks, read_rows


def gene_means(
    matrix: Matrix,
    mask: Matrix | None = None,
    labels: np.ndarray | None = None,
    expressed: np.ndarray | None = None,
) -> np.ndarray:
    """Mean of the counts that are there, gene by gene; a gene that was never seen counts as half a molecule.

    Parameters
    ----------
    matrix
        Counts; NaN means missing.
    mask
        True = observed.
    labels, expressed
        Code of each cell and the genes each label expresses: zeros of those are missing (``zeros="missing"``).
    """
    total = np.zeros(matrix.shape[1])
    present = np.zeros(matrix.shape[1])
    for start, block in iter_row_chunks(matrix):
        rows = range(start, start + block.shape[0])
        if mask is None and expressed is None and sp.issparse(block) and not is_missing(block.data).any():
            total += np.ones(len(rows)) @ block  # in double precision, which block.sum is not
            present += len(rows)
            continue
        counts = dense(block)
        there = ~is_missing(
            counts,
            None if mask is None else read_rows(mask, rows),
            None if expressed is None else expressed[labels[rows.start : rows.stop]],
        )
        total += np.where(there, counts, 0).sum(0, dtype=np.float64)
        present += there.sum(0)
    return np.maximum(total, 0.5) / np.maximum(present, 1)


def expressed_genes(matrix: Matrix, labels: np.ndarray, n_labels: int, mask: Matrix | None = None) -> np.ndarray:
    """Which genes have a count in any cell of each label, ``(labels, genes)`` (scIDPMs, Algorithm 1)."""
    expressed = np.zeros((n_labels, matrix.shape[1]), dtype=bool)
    for start, block in iter_row_chunks(matrix):
        rows = range(start, start + block.shape[0])
        if mask is not None or not sp.issparse(block):
            block = dense(block) > 0
            if mask is not None:
                block &= read_rows(mask, rows) != 0
        positive = sp.csr_matrix(block > 0, dtype=np.float64)
        member = sp.csr_matrix(
            (np.ones(len(rows)), (labels[rows.start : rows.stop], np.arange(len(rows)))), shape=(n_labels, len(rows))
        )
        expressed |= (member @ positive).toarray() > 0
    return expressed
