"""Which entries are hidden: seeded patterns that return a boolean matrix of sites, ``True`` = hidden.

A pattern is a small frozen object; called with counts, and optionally with the entries that may be hidden at all and with
groups of cells and of genes, it returns the sites. The same seed gives the same sites.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import pandas as pd
from scipy import sparse

from sccountsdiff.benchmark.matrices import DenseOrSparse, are_counts
from sccountsdiff.checks import one_of, whole_number
from sccountsdiff.data.messages import values_of
from sccountsdiff.data.reading import dense
from sccountsdiff.registry import Registry


class Missingness(ABC):
    """A pattern of hidden entries.

    Attributes
    ----------
    uses_groups
        Whether it looks at groups of cells or genes, which results then depend on.
    colon
        The setting that is given after a colon, as in ``"mcar:0.3"``, and what makes it from text.

    Examples
    --------
    >>> import numpy as np
    >>> counts = np.ones((4, 3))
    >>> sites = MCAR(rate=0.5)(counts, valid=counts > 0, seed=1)
    >>> sites.shape, sites.dtype
    ((4, 3), dtype('bool'))
    """

    uses_groups: ClassVar[bool] = False
    colon: ClassVar[tuple[str, Callable[[str], Any]]] = ("rate", float)

    def __call__(
        self,
        counts: DenseOrSparse,
        *,
        valid: np.ndarray | None = None,
        cell_groups: Sequence | None = None,
        gene_groups: Sequence | None = None,
        seed: int = 0,
    ) -> np.ndarray:
        """Sites to hide.

        Parameters
        ----------
        counts
            Counts (cells, genes).
        valid
            Boolean (cells, genes): the entries that may be hidden, see :func:`valid_sites`. All by default.
        cell_groups
            Batch of each cell, for patterns that differ between batches.
        gene_groups
            Modality of each gene, for patterns of modalities.
        seed
            Seed of the choice.

        Returns
        -------
        Boolean matrix (cells, genes), ``True`` = hidden.
        """
        counts = dense(counts)
        if counts.ndim != 2:
            raise ValueError(f"counts must be a matrix (cells, genes), found shape {counts.shape}.")
        if valid is None:
            valid = np.ones(counts.shape, dtype=bool)
        elif np.shape(valid) != counts.shape or np.asarray(valid).dtype != bool:
            raise ValueError(
                f"valid must be a boolean matrix of the shape of counts, {counts.shape}, "
                f"found {np.asarray(valid).dtype} of shape {np.shape(valid)}."
            )
        groups = {}
        if self.uses_groups:
            groups["cell_groups"] = _checked_groups("cell_groups", cell_groups, counts.shape[0])
            groups["gene_groups"] = _checked_groups("gene_groups", gene_groups, counts.shape[1])
        return self._choose(counts, np.asarray(valid), np.random.default_rng(seed), **groups) & valid

    def check(self, gene_groups: Sequence | None) -> None:  # noqa: B027  most patterns have nothing to refuse
        """Refuse genes that the pattern cannot be made for, before any work is done."""

    @abstractmethod
    def _choose(
        self, counts: np.ndarray, valid: np.ndarray, rng: np.random.Generator, **groups: np.ndarray | None
    ) -> np.ndarray:
        """Boolean matrix of sites, or what can be broadcast to one; those that are not valid are dropped afterwards.

        Groups, ``cell_groups`` and ``gene_groups``, are given to a pattern with ``uses_groups`` only.
        """


MISSINGNESS: Registry[Callable[..., Missingness | Molecules]] = Registry("missingness pattern")


def register_missingness(name: str) -> Callable:
    """Decorator that makes a class of patterns known under a name.

    Parameters
    ----------
    name
        Name for ``missingness=`` and for :func:`get_missingness`.

    Returns
    -------
    A decorator that returns the class or function as it is.

    Examples
    --------
    >>> @register_missingness("first_gene")
    ... class FirstGene(Missingness):
    ...     def _choose(self, counts, valid, rng):
    ...         return np.arange(counts.shape[1]) == 0
    >>> get_missingness("first_gene")()(np.ones((2, 2))).tolist()
    [[True, False], [True, False]]
    """
    return MISSINGNESS.register(name)


def get_missingness(name: str) -> Callable[..., Missingness | Molecules]:
    """The class of patterns registered under a name.

    Parameters
    ----------
    name
        A registered name.

    Returns
    -------
    What makes the pattern from its settings, such as the class :class:`MCAR`.

    Examples
    --------
    >>> get_missingness("mnar_low")(rate=0.25)
    MNARLow(rate=0.25, slack=0.1, window=None)
    """
    return MISSINGNESS.get(name)


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
        _check_fractions("rate", self.rate)

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
        _check_fractions("row_share, and its sum,", *rows, rows.sum() - 1e-9)
        _check_fractions("column_share", *columns)

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
        _check_fractions("rate", self.rate)
        _check_fractions("slack", self.slack)
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


PanelChoice = Literal["random", "correlation"]


@register_missingness("panel")
@dataclass(frozen=True)
class Panel(Missingness):
    """Whole genes are hidden, as if cells had been measured with a panel that lacks them.

    Methods learn from complete training cells and predict genes of which they see no count in the test cells. If batches
    are known, each has a panel of its own.

    Parameters
    ----------
    rate
        Share of the genes that are hidden.
    by
        ``"random"``: any genes. ``"correlation"``: genes that go together. A gene is chosen at random and hidden with those
        whose log counts are most correlated with its own in the given cells, then another, and so on: what is left says
        less about what is hidden.
    group_size
        Genes that are hidden together, if by correlation.

    Examples
    --------
    >>> import numpy as np
    >>> sites = Panel(0.25)(np.ones((3, 8)), cell_groups=["a", "a", "b"])
    >>> sites.sum(axis=1).tolist(), bool((sites[0] == sites[1]).all())
    ([2, 2, 2], True)
    """

    rate: float = 0.5
    by: PanelChoice = "random"
    group_size: int = 25

    uses_groups: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_fractions("rate", self.rate)
        one_of("by", self.by, get_args(PanelChoice))
        whole_number("group_size", self.group_size)

    def _choose(
        self, counts: np.ndarray, valid: np.ndarray, rng: np.random.Generator, **groups: np.ndarray | None
    ) -> np.ndarray:
        batches = groups["cell_groups"]
        codes = np.zeros(len(counts), dtype=int) if batches is None else np.unique(batches, return_inverse=True)[1]
        likeness = _gene_correlations(counts) if self.by == "correlation" else None
        panels = [self._panel(counts.shape[1], likeness, rng) for _ in range(codes.max() + 1)]
        return np.stack(panels)[codes]

    def _panel(self, n_genes: int, likeness: np.ndarray | None, rng: np.random.Generator) -> np.ndarray:
        """Boolean vector of the genes that are hidden."""
        n_hidden, order = round(self.rate * n_genes), rng.permutation(n_genes)
        is_hidden = np.zeros(n_genes, dtype=bool)
        if likeness is None:
            is_hidden[order[:n_hidden]] = True
            return is_hidden
        for gene in order:
            n_left = n_hidden - is_hidden.sum()
            if n_left <= 0:
                break
            if is_hidden[gene]:
                continue
            closeness = np.where(is_hidden, -np.inf, likeness[gene])
            closeness[gene] = np.inf
            is_hidden[np.argsort(-closeness, kind="stable")[: min(self.group_size, n_left)]] = True
        return is_hidden


@register_missingness("panel_correlated")
@dataclass(frozen=True)
class CorrelatedPanel(Panel):
    """:class:`~sccountsdiff.benchmark.missingness.Panel` of genes that go together: ``by="correlation"`` is the default.

    Examples
    --------
    Two pairs of genes that rise and fall together; one of the pairs is hidden.

    >>> import numpy as np
    >>> rise, fall = np.array([0, 1, 5]), np.array([4, 1, 0])
    >>> sites = CorrelatedPanel(group_size=2)(np.column_stack([rise, fall, rise, fall]))
    >>> sites[0].tolist() in ([True, False, True, False], [False, True, False, True])
    True
    """

    by: PanelChoice = "correlation"


@register_missingness("modality")
@dataclass(frozen=True)
class Modality(Missingness):
    """All genes of one modality are hidden: it is predicted from the others.

    Parameters
    ----------
    name
        The modality. May be left out if there are two: it is then the one that comes second among the genes.

    Examples
    --------
    >>> import numpy as np
    >>> Modality("protein")(np.ones((1, 3)), gene_groups=["rna", "rna", "protein"]).tolist()
    [[False, False, True]]
    """

    name: str | None = None

    uses_groups: ClassVar[bool] = True
    colon: ClassVar[tuple[str, Callable[[str], Any]]] = ("name", str)

    def check(self, gene_groups: Sequence | None) -> None:
        """Refuse genes of which the modalities are not known, or of one only."""
        if gene_groups is None:
            raise ValueError("missingness 'modality' needs the modality of each gene, a column of var; none is named.")
        known = list(dict.fromkeys(gene_groups))
        if (
            len(known) < 2
            or (self.name is None and len(known) > 2)
            or (self.name is not None and self.name not in known)
        ):
            raise ValueError(
                f"missingness 'modality' needs the name of one of several modalities, found {self.name!r}; "
                f"there are {known}."
            )

    def _choose(
        self, counts: np.ndarray, valid: np.ndarray, rng: np.random.Generator, **groups: np.ndarray | None
    ) -> np.ndarray:
        self.check(groups["gene_groups"])
        of_genes = np.asarray(groups["gene_groups"])
        return of_genes == (list(dict.fromkeys(of_genes))[1] if self.name is None else self.name)


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


def _checked_groups(argument: str, groups: Sequence | None, n: int) -> np.ndarray | None:
    if groups is not None and len(groups) != n:
        raise ValueError(f"{argument} must have one entry for each of {n}, found {len(groups)}.")
    return None if groups is None else np.asarray(groups).astype(str)


def _gene_correlations(counts: np.ndarray) -> np.ndarray:
    """Correlations of log counts (genes, genes); a gene that does not vary has none, which is 0."""
    logs = np.log1p(counts.astype(np.float64))
    logs -= logs.mean(axis=0)
    norms = np.linalg.norm(logs, axis=0)
    logs /= np.where(norms > 0, norms, 1)
    return logs.T @ logs


def _check_fractions(name: str, *values: float) -> None:
    for value in values:
        if not 0 <= value <= 1:
            raise ValueError(f"{name} must be between 0 and 1, found {value}.")
