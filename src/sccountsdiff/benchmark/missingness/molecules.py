"""Molecules that are hidden, in place of entries."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from sccountsdiff.benchmark.matrices import DenseOrSparse, are_counts
from sccountsdiff.benchmark.missingness.base import register_missingness
from sccountsdiff.data.messages import values_of

SEEN_SHARE = 0.9
"""Share of the molecules that a method sees when it denoises, as in the Open Problems benchmark."""


@register_missingness("molecules")
@dataclass(frozen=True)
class Molecules:
    """Not entries but molecules are hidden: a tenth of those of each cell, at random.

    Methods do not fill in entries but denoise what is left, and are scored on the hidden molecules
    (``molecule_poisson``, ``molecule_mse``).

    Examples
    --------
    >>> import numpy as np
    >>> seen, held_out = Molecules()(np.full((100, 10), 20))
    >>> round(float(seen.mean())), round(float(held_out.mean()))
    (18, 2)
    """

    def __call__(self, counts: DenseOrSparse, *, seed: int = 0) -> tuple[DenseOrSparse, DenseOrSparse]:
        """The molecules that are seen and those that are hidden, see :func:`split_molecules`."""
        return split_molecules(counts, SEEN_SHARE, seed)


def split_molecules(counts: DenseOrSparse, share: float = 0.9, seed: int = 0) -> tuple[DenseOrSparse, DenseOrSparse]:
    """Split the molecules of each entry in two at random (binomial thinning).

    For counts that are Poisson, given their true expression, the two parts are independent: one can be denoised and scored
    on the other.

    Parameters
    ----------
    counts
        Integer counts (cells, genes), dense or sparse.
    share
        Probability of a molecule to be in the first part.
    seed
        Seed of the split.

    Returns
    -------
    Two matrices of the kind and type of ``counts`` that add up to it.

    Examples
    --------
    >>> import numpy as np
    >>> counts = np.array([[10, 0], [3, 100]])
    >>> seen, held_out = split_molecules(counts, share=0.9)
    >>> bool((seen + held_out == counts).all())
    True
    """
    if not 0 < share < 1:
        raise ValueError(f"share must be between 0 and 1, found {share}.")
    if sparse.issparse(counts):
        counts = counts.tocsr(copy=True)
        counts.sum_duplicates()
    if not are_counts(counts):
        raise ValueError("counts must be non-negative integers; molecules cannot be split otherwise.")
    values = values_of(counts)
    kept = np.random.default_rng(seed).binomial(values.astype(np.int64), share).astype(values.dtype)
    if not sparse.issparse(counts):
        return kept, values - kept
    seen, held_out = counts.copy(), counts.copy()
    seen.data, held_out.data = kept, values - kept
    for part in (seen, held_out):
        part.eliminate_zeros()
    return seen, held_out
