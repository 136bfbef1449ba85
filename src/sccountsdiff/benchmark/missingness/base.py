"""What a pattern of hidden entries is, and the names of all patterns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from sccountsdiff.benchmark.matrices import DenseOrSparse
from sccountsdiff.data.reading import dense
from sccountsdiff.registry import Registry

if TYPE_CHECKING:
    from sccountsdiff.benchmark.missingness.molecules import Molecules


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
    >>> sites = get_missingness("mcar")(rate=0.5)(counts, valid=counts > 0, seed=1)
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


def _checked_groups(argument: str, groups: Sequence | None, n: int) -> np.ndarray | None:
    if groups is not None and len(groups) != n:
        raise ValueError(f"{argument} must have one entry for each of {n}, found {len(groups)}.")
    return None if groups is None else np.asarray(groups).astype(str)


def check_fractions(name: str, *values: float) -> None:
    """Refuse shares that are none."""
    for value in values:
        if not 0 <= value <= 1:
            raise ValueError(f"{name} must be between 0 and 1, found {value}.")
