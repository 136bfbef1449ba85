"""What a comparison asks of methods: to fill in hidden entries of test cells, or to denoise them.

A task is made from what hides counts, a missingness pattern. Everything that differs between tasks is said here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
from anndata import AnnData

from sccountsdiff.benchmark.baselines import Baseline
from sccountsdiff.benchmark.datasets import Dataset
from sccountsdiff.benchmark.missingness import MISSINGNESS, SEEN_SHARE, Missingness, Molecules, get_missingness
from sccountsdiff.benchmark.results import label
from sccountsdiff.benchmark.scoring import Split

Pattern: TypeAlias = Missingness | Molecules


@dataclass(frozen=True)
class Task(ABC):
    """What is hidden in test cells, and what methods are asked about it.

    Attributes
    ----------
    name
        Name in tables.
    pattern
        Says what is hidden.
    pattern_type
        The patterns that make a task of this kind.
    answer_inputs
        What an answer may give to metrics, by name; what is made from it is registered with the metrics.
    denoises
        Whether methods must denoise and say once what they expect. If not, entries are hidden, a protocol can say which, and
        methods that draw are asked for several samples.

    Examples
    --------
    >>> task = make_task("mcar:0.3")
    >>> task.name, task.pattern, task.denoises
    ('mcar(rate=0.3)', MCAR(rate=0.3), False)
    """

    name: str
    pattern: Any

    pattern_type: ClassVar[type]
    answer_inputs: ClassVar[frozenset[str]]
    denoises: ClassVar[bool] = False

    @property
    def uses_groups(self) -> bool:
        """Whether what is hidden depends on the batches of cells or the modalities of genes."""
        return getattr(self.pattern, "uses_groups", False)

    def check(self, methods: Mapping[str, Baseline], protocol: str) -> None:
        """Refuse methods and a protocol that the task is not made for."""
        if self.denoises and (unable := [name for name, method in methods.items() if not method.denoises]):
            raise ValueError(
                f"missingness: {self.name!r} is for methods that denoise, which {unable} do not; leave them out. "
                "list_methods() says which do."
            )
        if protocol == "paper" and self.denoises:
            raise ValueError(
                f"protocol='paper' says which entries may be hidden; {self.name!r} hides none. Run it apart."
            )

    def check_dataset(self, dataset: Dataset) -> None:
        """Refuse a data set that the task cannot be made of."""
        if isinstance(self.pattern, Missingness):
            self.pattern.check(None if dataset.modality is None else dataset.adata.var[dataset.modality].astype(str))

    def numbers_of_samples(self, method: Baseline | None, wanted: Sequence[int]) -> tuple[int, ...]:
        """How many samples a method is asked for, time after time; no method stands for the truth."""
        return tuple(wanted) if not self.denoises and method is not None and method.draws else (1,)

    @abstractmethod
    def hide(self, split: Split) -> Any:
        """What is hidden in the test cells of a split, for :meth:`ask` and :meth:`truth`."""

    @abstractmethod
    def ask(self, method: Baseline, split: Split, hidden: Any, n_samples: int) -> dict[str, np.ndarray]:
        """The answer of a fitted method, by the names that metrics have for its parts."""

    def truth(self, split: Split, hidden: Any) -> dict[str, np.ndarray] | None:
        """The answer of one who knows the truth, to be scored for reference; ``None`` if nobody does."""
        return None


class Imputation(Task):
    """Entries of test cells are hidden and to be filled in.

    Examples
    --------
    >>> sorted(Imputation.answer_inputs)
    ['draws', 'imputed', 'sites']
    """

    pattern_type = Missingness
    answer_inputs = frozenset({"imputed", "sites", "draws"})

    def hide(self, split: Split) -> np.ndarray:
        """The sites."""
        return split.sites(self.pattern)

    def ask(self, method: Baseline, split: Split, hidden: np.ndarray, n_samples: int) -> dict[str, np.ndarray]:
        """One answer for each site, and the draws that it is the mean of if there are several."""
        answer = method.impute(split.test, hidden, n_samples, seed=split.seed, observed=split.observed[1])
        if n_samples == 1:
            return {"imputed": answer, "sites": hidden}
        return {"imputed": answer.mean(axis=0), "sites": hidden, "draws": answer[:, hidden]}

    def truth(self, split: Split, hidden: np.ndarray) -> dict[str, np.ndarray]:
        """The counts as they are."""
        return {"imputed": split.truth, "sites": hidden}


class Denoising(Task):
    """Molecules of test cells are hidden; how many of each gene to expect is to be said from the others.

    The expression behind the counts is not known, so there is no true answer to compare with.

    Examples
    --------
    >>> sorted(Denoising.answer_inputs)
    ['denoised', 'held_out']
    """

    pattern_type = Molecules
    answer_inputs = frozenset({"denoised", "held_out"})
    denoises = True

    def hide(self, split: Split) -> tuple[AnnData, np.ndarray]:
        """Test cells with the molecules that methods see, and counts of the hidden ones."""
        seen, held_out = self.pattern(split.truth, seed=split.seed)
        return AnnData(seen, obs=split.test.obs, var=split.test.var), held_out

    def ask(
        self, method: Baseline, split: Split, hidden: tuple[AnnData, np.ndarray], n_samples: int
    ) -> dict[str, np.ndarray]:
        """Expected counts at the depth of the molecules that are seen."""
        cells, held_out = hidden
        return {"denoised": method.denoise(cells, SEEN_SHARE, seed=split.seed), "held_out": held_out}


TASKS: tuple[type[Task], ...] = (Imputation, Denoising)


def make_task(missingness: str | Pattern) -> Task:
    """The task that a pattern makes; it may be given by name, with a rate, or a modality, after a colon.

    Examples
    --------
    >>> make_task("molecules")
    Denoising(name='molecules', pattern=Molecules())
    """
    if isinstance(missingness, str):
        name, _, text = missingness.partition(":")
        kind = get_missingness(name)
        setting, from_text = getattr(kind, "colon", ("rate", float))
        try:
            pattern = kind(**({setting: from_text(text)} if text else {}))
        except TypeError as error:
            raise ValueError(f"missingness: {name!r} has no {setting}, found {missingness!r}.") from error
    else:
        pattern = missingness
        name = next((name for name in MISSINGNESS if MISSINGNESS[name] is type(pattern)), type(pattern).__name__)
    for kind in TASKS:
        if isinstance(pattern, kind.pattern_type):
            return kind(label(pattern, name), pattern)
    raise TypeError(f"missingness must be names or patterns, found {type(missingness).__name__}.")
