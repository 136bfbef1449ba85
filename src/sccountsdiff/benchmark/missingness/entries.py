"""Single entries that are hidden: at random, by other genes, or by their own counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd

from sccountsdiff.benchmark.matrices import DenseOrSparse
from sccountsdiff.benchmark.missingness.base import Missingness, check_fractions, register_missingness
from sccountsdiff.checks import whole_number
from sccountsdiff.data.reading import dense


@register_missingness("mcar")
@dataclass(frozen=True)
class MCAR(Missingness):
    """Completely at random: each entry is hidden with the same probability.

    Parameters
    ----------
    rate
        The probability.

    Examples
    --------
    >>> import numpy as np
    >>> sites = MCAR(0.5)(np.ones((1000, 10)))
    >>> round(float(sites.mean()), 1)
    0.5
    """

    rate: float = 0.5

    def __post_init__(self) -> None:
        check_fractions("rate", self.rate)

    def _choose(self, counts: np.ndarray, valid: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return rng.random(counts.shape, dtype=np.float32) < self.rate


@register_missingness("mar")
@dataclass(frozen=True)
class MAR(Missingness):
    """At random, in blocks: groups of cells lose groups of genes.

    The first share of the cells loses the first share of the genes, and so on. Groups of cells are disjoint, groups of
    genes nested: a gene that is lost in a lightly hit group is lost in all harder hit ones. The defaults hide 10 % of
    all entries.

    Parameters
    ----------
    row_share
        Share of the cells in each group; their sum is at most 1.
    column_share
        Share of the genes that each group loses.

    Examples
    --------
    >>> import numpy as np
    >>> sites = MAR(row_share=0.5, column_share=0.5)(np.ones((4, 6)))
    >>> sorted(sites.sum(axis=1).tolist()), sorted(sites.sum(axis=0).tolist())
    ([0, 0, 3, 3], [0, 0, 0, 2, 2, 2])
    """

    row_share: float | Sequence[float] = (0.05, 0.2, 0.3)
    column_share: float | Sequence[float] = (0.4, 0.25, 0.1)

    def __post_init__(self) -> None:
        rows, columns = np.atleast_1d(self.row_share), np.atleast_1d(self.column_share)
        if rows.shape != columns.shape:
            raise ValueError(
                f"row_share and column_share must be as long as each other, found {len(rows)} and {len(columns)}."
            )
        check_fractions("row_share, and its sum,", *rows, rows.sum() - 1e-9)
        check_fractions("column_share", *columns)

    def _choose(self, counts: np.ndarray, valid: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        n_cells, n_genes = counts.shape
        ends = np.round(n_cells * np.cumsum(np.atleast_1d(self.row_share))).astype(int)
        widths = np.round(n_genes * np.atleast_1d(self.column_share)).astype(int)
        width_of_cell = np.repeat([*widths, 0], np.diff([0, *ends, n_cells]))
        place_of_gene = rng.permutation(n_genes)
        return place_of_gene < rng.permutation(width_of_cell)[:, None]


@dataclass(frozen=True)
class _MNAR(Missingness):
    rate: float = 0.25
    slack: float = 0.1
    window: int | None = None

    sign: ClassVar[int]  # by which counts are multiplied; the smallest products are hidden first

    def __post_init__(self) -> None:
        check_fractions("rate", self.rate)
        check_fractions("slack", self.slack)
        if self.window is not None:
            whole_number("window", self.window, least=0)

    def _choose(self, counts: np.ndarray, valid: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        sites = np.zeros(counts.shape, dtype=bool)
        for gene in range(counts.shape[1]):
            cells = rng.permutation(np.flatnonzero(valid[:, gene]))  # so that ties are broken at random
            n_hidden = int(np.floor(self.rate * len(cells)))
            n_more = int(np.ceil(self.slack * len(cells))) if self.window is None else self.window
            n_window = min(n_hidden + n_more, len(cells))
            order = np.argsort(self.sign * counts[cells, gene].astype(np.float64), kind="stable")
            window = cells[order[:n_window]]
            sites[rng.choice(window, n_hidden, replace=False), gene] = True
        return sites


@register_missingness("mnar_low")
@dataclass(frozen=True)
class MNARLow(_MNAR):
    """Not at random: in each gene, mostly low counts are hidden.

    In each gene, exactly ``floor(rate * n_valid)`` entries are drawn from a window of its lowest valid ones, in which ties
    are broken at random.

    Parameters
    ----------
    rate
        Share of the valid entries of each gene that are hidden.
    slack
        The window is larger than what is hidden by this share of the valid entries.
    window
        Or by this number of cells. The paper's code has 5,000, of 400,000 test cells.

    Examples
    --------
    >>> import numpy as np
    >>> counts = np.arange(8)[:, None]
    >>> MNARLow(rate=0.25, slack=0)(counts).ravel().tolist()
    [True, True, False, False, False, False, False, False]
    """

    sign: ClassVar[int] = 1


@register_missingness("mnar_high")
@dataclass(frozen=True)
class MNARHigh(_MNAR):
    """Not at random: in each gene, mostly high counts are hidden.

    In each gene, exactly ``floor(rate * n_valid)`` entries are drawn from a window of its highest valid ones, in which
    ties are broken at random.

    Parameters
    ----------
    rate
        Share of the valid entries of each gene that are hidden.
    slack
        The window is larger than what is hidden by this share of the valid entries.
    window
        Or by this number of cells. The paper's code has 5,000, of 400,000 test cells.

    Examples
    --------
    >>> import numpy as np
    >>> counts = np.arange(8)[:, None]
    >>> MNARHigh(rate=0.25, slack=0)(counts).ravel().tolist()
    [False, False, False, False, False, False, True, True]
    """

    sign: ClassVar[int] = -1


def valid_sites(counts: DenseOrSparse, labels: Sequence) -> np.ndarray:
    """Entries that count as observed (Algorithm 1 of scIDPMs), in a protocol in which all other zeros are missing.

    Observed are all positive counts, and the zeros of genes that are silent in all cells of the same type. A zero of a
    gene that other cells of the type express is taken for a failure to detect it, and is missing.

    Parameters
    ----------
    counts
        Counts (cells, genes).
    labels
        Type of each cell.

    Returns
    -------
    Boolean matrix (cells, genes), ``True`` = observed, to be given as ``valid`` to a pattern.

    Examples
    --------
    >>> import numpy as np
    >>> counts = np.array([[2, 0], [0, 0], [0, 5]])
    >>> valid_sites(counts, ["a", "a", "b"])
    array([[ True,  True],
           [False,  True],
           [ True,  True]])
    """
    expressed = dense(counts) > 0
    codes, _ = pd.factorize(np.asarray(labels), use_na_sentinel=False)
    if codes.shape != (len(expressed),):
        raise ValueError(f"labels must have one entry for each of {len(expressed)} cells, found shape {codes.shape}.")
    active = np.stack([expressed[codes == code].any(axis=0) for code in range(codes.max() + 1)])  # (types, genes)
    return expressed | ~active[codes]
