"""Whole genes or modalities that are hidden."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from sccountsdiff.benchmark.missingness.base import Missingness, check_fractions, register_missingness
from sccountsdiff.checks import one_of, whole_number

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
        check_fractions("rate", self.rate)
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


def _gene_correlations(counts: np.ndarray) -> np.ndarray:
    """Correlations of log counts (genes, genes); a gene that does not vary has none, which is 0."""
    logs = np.log1p(counts.astype(np.float64))
    logs -= logs.mean(axis=0)
    norms = np.linalg.norm(logs, axis=0)
    logs /= np.where(norms > 0, norms, 1)
    return logs.T @ logs
