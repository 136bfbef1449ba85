"""One pass over the counts: every entry is checked, and what a model starts from is added up on the way."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
import scipy.sparse as sp

from sccountsdiff.data.counts import check_block, check_form
from sccountsdiff.data.messages import Names, some_of, values_of
from sccountsdiff.data.missing import check_mask_block, check_mask_form, is_missing
from sccountsdiff.data.reading import (
    Block,
    Matrix,
    as_matrix,
    by_rows,
    dense,
    is_csc,
    is_sparse,
    iter_blocks,
    read_block,
)

N_SAMPLED_LINES = 20
"""Cells (or genes, where these are stored one by one) by which counts are recognised."""


@dataclass(frozen=True, eq=False)
class CountSummary:
    """What one pass over the counts tells.

    Attributes
    ----------
    total
        Sum of the observed counts of each gene.
    largest
        Largest observed count of each gene.
    n_observed, n_positive
        Observed counts, and how many of them are above 0, ``(labels, genes)``.
    labels
        Names of the labels; one without a name if none were given.
    has_missing
        Whether a count is missing.
    """

    total: np.ndarray
    largest: np.ndarray
    n_observed: np.ndarray
    n_positive: np.ndarray
    labels: pd.Index
    has_missing: bool

    def expressed(self, labels: np.ndarray) -> np.ndarray:
        """Which genes have a count in any cell of each of these labels, ``(labels, genes)`` (scIDPMs, Algorithm 1)."""
        positive = pd.DataFrame(self.n_positive > 0, index=self.labels)
        return positive.reindex(labels, fill_value=False).to_numpy(dtype=bool)

    def gene_means(self, zeros_missing: bool = False) -> np.ndarray:
        """Mean of the observed counts of each gene; a gene without any counts as half a molecule.

        With ``zeros_missing``, zeros of genes that the cell's label expresses are missing.
        """
        n = np.where(self.n_positive > 0, self.n_positive, self.n_observed) if zeros_missing else self.n_observed
        return np.maximum(self.total, 0.5) / np.maximum(n.sum(0), 1)


def summarise_counts(
    counts: Matrix,
    mask: Matrix | None = None,
    *,
    labels: pd.Categorical | None = None,
    may_lack_genes: bool = False,
    name: str = "adata.X",
    mask_name: str = "mask",
    obs_names: Names = None,
    var_names: Names = None,
    hints: Callable[[], list[str]] = list,
) -> CountSummary:
    """Check counts and mask, and add up what a model starts from; each is read once.

    Parameters
    ----------
    counts
        Cells x genes, in any form that :func:`~sccountsdiff.data.reading.iter_blocks` takes; NaN is missing.
    mask
        True = observed; ``None``: only NaN is missing.
    labels
        Label of each cell; numbers of counts are then kept apart for each label.
    may_lack_genes
        Whether genes may be without an observed entry, as in data that a model was not made from.
    name, mask_name, obs_names, var_names, hints
        For messages, see :func:`~sccountsdiff.data.counts.check_counts`.

    Raises
    ------
    ValueError
        If an entry is no count, the mask no mask, or a cell or a gene has no observed entry at all.

    Examples
    --------
    >>> import numpy as np
    >>> summary = summarise_counts(np.array([[0, 3, np.nan], [2, 5, 4]]))
    >>> summary.gene_means().tolist(), summary.has_missing
    ([1.0, 4.0, 4.0], True)
    """
    counts = as_matrix(counts, name)
    check_form(counts, name)
    n_cells, n_genes = counts.shape
    labelled = pd.Categorical([""] * n_cells) if labels is None else labels
    n_labels = len(labelled.categories)
    if mask is not None:
        mask = check_mask_form(mask, counts.shape, name=mask_name)
        mask = mask.tocsc() if is_sparse(mask) and is_csc(counts) else by_rows(mask)  # slicing across is slow
    total, largest = np.zeros(n_genes), np.zeros(n_genes)
    n_observed, n_positive = np.zeros((n_labels, n_genes), np.int64), np.zeros((n_labels, n_genes), np.int64)
    n_of_cell = np.zeros(n_cells, np.int64)
    for rows, columns, block in iter_blocks(counts):
        is_last = rows[-1] == n_cells - 1 and columns[-1] == n_genes - 1
        check_block(
            block, rows, columns, name=name, obs_names=obs_names, var_names=var_names, hints=hints, is_last=is_last
        )
        in_rows, in_columns = slice(rows[0], rows[-1] + 1), slice(columns.start, columns.stop)
        observed = None
        if mask is not None:
            mask_block = read_block(mask, rows, columns)
            check_mask_block(mask_block, rows, columns, name=mask_name)
            observed = ~is_missing(dense(block), dense(mask_block))
        elif is_missing(values_of(block)).any():
            observed = ~is_missing(dense(block))
        if observed is not None:
            block = np.where(observed, dense(block), 0)
        total[in_columns] += np.ones(len(rows)) @ block  # in double precision, which block.sum is not
        largest[in_columns] = np.maximum(largest[in_columns], np.ravel(dense(block.max(axis=0))))
        n_of_cell[in_rows] += len(columns) if observed is None else np.count_nonzero(observed, axis=1)
        members = _members(labelled.codes[in_rows], n_labels)
        n_positive[:, in_columns] += _as_integers(members @ (block > 0))
        n_observed[:, in_columns] += (
            _as_integers(members.sum(1))[:, None] if observed is None else _as_integers(members @ observed)
        )
    n_of_gene = np.ones(n_genes) if may_lack_genes else n_observed.sum(0)
    _check_observed(n_of_cell, n_of_gene, name, obs_names, var_names)
    has_missing = bool(n_of_cell.sum() < n_cells * n_genes)
    return CountSummary(total, largest, n_observed, n_positive, labelled.categories, has_missing)


def sample_checksum(matrix: Matrix) -> bytes:
    """A few lines of a matrix, spread over all of it, as a checksum: tells whether it was changed as a whole.

    Examples
    --------
    >>> import numpy as np
    >>> counts = np.arange(12.0).reshape(4, 3)
    >>> before = sample_checksum(counts)
    >>> sample_checksum(counts) == before, sample_checksum(np.log1p(counts)) == before
    (True, False)
    """
    stored_by_genes = is_csc(matrix)
    length = matrix.shape[1 if stored_by_genes else 0]
    lines = np.unique(np.linspace(0, length - 1, N_SAMPLED_LINES).astype(int))
    checksum = hashlib.blake2b(f"{matrix.shape} {matrix.dtype}".encode(), digest_size=16)
    for line in lines:
        line = range(line, line + 1)
        block = read_block(matrix, range(matrix.shape[0]), line) if stored_by_genes else read_block(matrix, line)
        checksum.update(np.ascontiguousarray(dense(block)).tobytes())
    return checksum.digest()


def whole_checksum(matrix: Matrix) -> bytes:
    """All of a matrix as a checksum: tells whether any entry was changed.

    Examples
    --------
    >>> import numpy as np
    >>> counts = np.arange(12.0).reshape(4, 3)
    >>> before = whole_checksum(counts)
    >>> counts[2, 1] += 1
    >>> whole_checksum(counts) == before
    False
    """
    checksum = hashlib.blake2b(f"{matrix.shape} {matrix.dtype}".encode(), digest_size=16)
    for _, _, block in iter_blocks(matrix):
        parts = (block.indptr, block.indices, block.data) if is_sparse(block) else (block,)
        for part in parts:
            checksum.update(part.tobytes())
    return checksum.digest()


def _members(codes: np.ndarray, n_labels: int) -> sp.csr_array:
    """Which of the cells have each label, ``(labels, cells)``."""
    return sp.csr_array((np.ones(len(codes)), (codes, np.arange(len(codes)))), shape=(n_labels, len(codes)))


def _as_integers(numbers: Block) -> np.ndarray:
    return np.rint(dense(numbers)).astype(np.int64)


def _check_observed(
    n_of_cell: np.ndarray, n_of_gene: np.ndarray, name: str, obs_names: Names, var_names: Names
) -> None:
    """Refuse counts in which a cell or a gene has no observed entry at all; observed zeros are fine."""
    complaints = []
    for what, number, names in (("cells", n_of_cell, obs_names), ("genes", n_of_gene, var_names)):
        nothing = np.flatnonzero(number == 0)
        if nothing.size:
            shown = nothing.tolist() if names is None else [repr(str(names[i])) for i in nothing.tolist()]
            complaints.append(f"{nothing.size} of {number.size} {what} ({some_of(shown)})")
    if complaints:
        raise ValueError(
            f"{name} has no observed entry, all being NaN or masked out, for {' and '.join(complaints)}. "
            "Remove them before setting up the data."
        )
