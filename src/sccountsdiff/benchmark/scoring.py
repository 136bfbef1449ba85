"""One split of a data set, and the scores of what a method answers in it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from anndata import AnnData
from scipy import sparse

from sccountsdiff.benchmark.metrics import Metric, bootstrap_se
from sccountsdiff.benchmark.metrics.bootstrap import take_cells
from sccountsdiff.benchmark.metrics.registry import INPUTS
from sccountsdiff.benchmark.missingness import Missingness, valid_sites
from sccountsdiff.data.reading import dense

logger = logging.getLogger("sccountsdiff")

T = TypeVar("T")


@dataclass(eq=False)
class Split:
    """Training and test cells, with the models that metrics share; each is made when it is first asked for.

    Examples
    --------
    >>> from sccountsdiff.benchmark.missingness import MCAR
    >>> from sccountsdiff.datasets import pbmc68k
    >>> cells = pbmc68k()
    >>> split = Split(cells[:600], cells[600:], label="cell_type", seed=0)
    >>> split.sites(MCAR(0.5)).shape
    (100, 765)
    """

    train: AnnData
    test: AnnData
    label: str | None
    seed: int
    protocol: Literal["all", "paper"] = "all"
    embedder_path: str | Path | None = None
    batch: str | None = None
    modality: str | None = None
    _made: dict[Callable, Any] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def truth(self) -> np.ndarray:
        """Counts of the test cells."""
        return dense(self.test.X)

    @cached_property
    def labels(self) -> np.ndarray:
        """Types of the test cells."""
        return self.test.obs[self.label].astype(str).to_numpy(dtype=str)

    @cached_property
    def observed(self) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Entries of the training and of the test cells that are observed; ``None`` for all.

        Which genes are silent in a type is for the training cells to say: hidden counts must not be told to a method.
        """
        if self.protocol == "all":
            return None, None
        observed = self._valid(np.zeros_like(self.truth))
        return observed[: self.train.n_obs], observed[self.train.n_obs :] | (self.truth > 0)

    def sites(self, pattern: Missingness) -> np.ndarray:
        """Entries of the test cells to hide; under the paper's protocol only entries that are valid given all cells."""
        valid = None if self.protocol == "all" else self._valid(self.truth)[self.train.n_obs :]
        groups = {}
        if pattern.uses_groups:
            groups["cell_groups"] = None if self.batch is None else self.test.obs[self.batch].astype(str).to_numpy()
            groups["gene_groups"] = (
                None if self.modality is None else self.test.var[self.modality].astype(str).to_numpy()
            )
        return pattern(self.truth, valid=valid, seed=self.seed, **groups)

    def once(self, make: Callable[[Split], T]) -> T:
        """What a function makes of the split; it is called the first time only."""
        if make not in self._made:
            self._made[make] = make(self)
        return self._made[make]

    def scores(
        self,
        metrics: Sequence[Metric],
        answer: dict[str, np.ndarray],
        n_bootstrap: int = 0,
        bootstrap_cells: int | None = None,
    ) -> list[dict[str, Any]]:
        """Name, value, bootstrap standard error and error message of each metric that applies.

        Parameters
        ----------
        metrics
            The metrics. One that fails does not keep the others from being computed. Those that need what the answer
            lacks, as draws where there is a single one, are left out.
        answer
            What a method answered and was asked, by the names that metrics have for it, see
            :class:`~sccountsdiff.benchmark.tasks.Task`.
        n_bootstrap
            Number of resamples of the cells; 0 for no standard error.
        bootstrap_cells
            Cells in each resample, and those that metrics are computed of that cannot afford all; all by default.
        """
        arrays = dict(answer)
        rows = []
        for metric in metrics:
            if not metric.applies_to(answer):
                continue
            value = se = np.nan
            with attempt(f"Metric {metric.name}") as outcome:
                needed = {name: self._input(name, arrays) for name in metric.needs}
                if metric.quadratic and bootstrap_cells is not None:
                    some = np.random.default_rng(self.seed).choice(self.test.n_obs, bootstrap_cells, replace=False)
                    needed = take_cells(needed, np.sort(some))
                value = float(metric(**needed))
                if n_bootstrap:
                    resamples = {"n_resamples": n_bootstrap, "n_cells": bootstrap_cells, "seed": self.seed}
                    se = bootstrap_se(metric, **resamples, **needed)
            rows.append({"metric": metric.name, "value": value, "se": se, "error": outcome.error})
        return rows

    def _input(self, name: str, arrays: dict[str, Any]) -> Any:
        """An input of metrics; if it is made from others, it is added to the arrays, where it is found again."""
        if name not in arrays:
            made = INPUTS[name]
            sources = {source: self._input(source, arrays) for source in made.needs}
            arrays[name] = made.make(self, **sources) if sources else self.once(made.make)
        return arrays[name]

    def _valid(self, test_counts: np.ndarray) -> np.ndarray:
        """Valid sites of the training cells followed by the test cells, with these counts for the latter."""
        labels = np.concatenate([self.train.obs[self.label].astype(str), self.labels])
        return valid_sites(sparse.vstack([sparse.csr_matrix(self.train.X), sparse.csr_matrix(test_counts)]), labels)


@dataclass
class Outcome:
    """One line about the error that ended a piece of work, or ``None``."""

    error: str | None = None


@contextmanager
def attempt(what: str) -> Iterator[Outcome]:
    """Work inside a ``with`` block that may fail: the error is logged and kept, and does not end the comparison.

    Examples
    --------
    >>> with attempt("Metric rmse") as outcome:
    ...     raise ValueError("too small")
    >>> outcome.error
    'ValueError: too small'
    """
    outcome = Outcome()
    try:
        yield outcome
    except Exception as error:
        outcome.error = f"{type(error).__name__}: {' '.join(str(error).split())}"
        logger.warning("%s failed. %s", what, outcome.error)
        logger.debug("", exc_info=True)
