"""The paper's tables on single-cell data, each one call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from sccountsdiff.benchmark import sweeps
from sccountsdiff.benchmark.baselines import Baseline, get_baseline
from sccountsdiff.benchmark.baselines.scgpt_network import Checkpoint
from sccountsdiff.benchmark.datasets import Dataset, DataSource
from sccountsdiff.benchmark.missingness import MCAR, Missingness, MNARLow
from sccountsdiff.benchmark.optional import missing_packages
from sccountsdiff.benchmark.paper.atlases import FETUS, FEWEST_CELLS, HEART, Atlas
from sccountsdiff.benchmark.paper.estimates import Work, estimates
from sccountsdiff.benchmark.paper.rows import CLASSIFIER_ROWS, ROWS, VALIDATION_SHARE, Budget, Row, countsdiff_settings
from sccountsdiff.benchmark.results import label
from sccountsdiff.benchmark.runner import run
from sccountsdiff.benchmark.tuning import tune as choose_settings
from sccountsdiff.diffusion.schedules import SCHEDULES
from sccountsdiff.files import write_table

POINTWISE = ("r2", "rmse", "mae", "bias", "spearman", "pearson")
IMPUTATION_METRICS = (*POINTWISE, "energy_distance", "scfid", "mmd", "sliced_wasserstein")
"""Columns of the paper's tables of imputation."""

FEWEST_GENES = 20

ABLATION_SAMPLING = {"guidance": 0.5, "attrition": 0.0}
"""What ablations leave as it is, as in the paper's script: of its two tables, the rows at these values agree."""


@dataclass(frozen=True)
class Recipe(ABC):
    """How to make one table of the paper: call it with the file of the atlas.

    Attributes
    ----------
    name
        Name of the recipe.
    title
        What the table shows.
    atlas
        The data, with the paper's settings for it.
    missingness
        What is hidden.
    metrics
        Columns.

    Examples
    --------
    A small comparison in the same settings, on the cells of another data set:

    >>> import sccountsdiff.benchmark as bm
    >>> from sccountsdiff.benchmark.paper import fetus_mcar
    >>> table = fetus_mcar(
    ...     bm.datasets.load_dataset("pbmc68k"),
    ...     scale=0.05,
    ...     rows=["Zero imputation", "Conditional Mean"],
    ...     metrics=["rmse"],
    ...     n_bootstrap=0,
    ...     silent=True,
    ... )
    >>> table[["row", "metric"]].values.tolist()
    [['Zero imputation', 'rmse'], ['Conditional Mean', 'rmse']]
    """

    name: str
    title: str
    atlas: Atlas
    missingness: Missingness
    metrics: tuple[str, ...]

    def __call__(
        self,
        data: DataSource,
        output: str | Path | None = None,
        *,
        scale: float = 1.0,
        tune: bool = True,
        weights: str | Path | None = None,
        allow_slow: bool = False,
        columns: Mapping[str, str | None] | None = None,
        gene_column: str | None = None,
        rows: Sequence[str] | None = None,
        **options: Any,
    ) -> pd.DataFrame:
        """Make the table.

        Parameters
        ----------
        data
            File of the atlas, or any data set with a label to run the same comparison on.
        output
            Folder for results; a run that was interrupted continues. Default: nothing is written.
        scale
            Share of the cells, of the genes and of the optimiser steps to use, but no fewer than 500 cells, 20 genes and 100
            steps. Methods that the paper trained for a number of epochs keep it.
        tune
            Choose steps, remasking or attrition, and guidance of ReMDM and CountsDiff on validation cells first, as the paper
            did; all scores are noted in ``output``. The models are trained once more for that.
        weights
            Folder with released weights of scGPT; without, its row is recorded as failed.
        allow_slow
            Start Forest-Diffusion even if it will take more than an hour.
        columns, gene_column
            Names in the file, see :meth:`Atlas.load`.
        rows
            Names of rows to make, as in the paper; all by default. Not for ablations.
        **options
            Further arguments of :func:`~sccountsdiff.benchmark.run`, such as ``seeds``, ``embedder``, ``retry_failed``,
            ``metrics`` or ``silent``.

        Returns
        -------
        The tidy table of :func:`~sccountsdiff.benchmark.run`, with the name of the row in the paper in column ``row``, or
        the setting that varies in a column of its own.
        """
        if not 0 < scale <= 1:
            raise ValueError(f"scale must be above 0 and at most 1, found {scale}.")
        chosen = self._chosen(rows)
        n_genes = max(round(scale * self.atlas.n_genes), FEWEST_GENES)
        if isinstance(data, Dataset):
            dataset = data
            n_cells = min(max(round(scale * data.adata.n_obs), FEWEST_CELLS), data.adata.n_obs)
        else:
            dataset = self.atlas.load(
                data,
                columns=columns,
                gene_column=gene_column,
                share=scale,
                n_genes=n_genes,
                common_share=self.atlas.common_share,
                cache=None if output is None else Path(output) / "counts",
            )
            n_cells = dataset.adata.n_obs
        settings = {
            "metrics": self.metrics,
            "n_cells": n_cells,
            "n_genes": n_genes,
            "min_cells": max(round(self.atlas.common_share * n_cells), 1),
            "protocol": "paper",
            "n_bootstrap": 10,
            "bootstrap_cells": self.atlas.bootstrap_cells,
            "output": output,
        }
        budget = Budget(self.atlas, n_cells, scale, weights, allow_slow)
        methods = {row.name: row.method(budget) for row in chosen}
        missingness = _scaled(self.missingness, scale)
        if tune and (grids := {methods[row.name].name: row.grid for row in chosen if row.grid}):
            of_data = {
                name: (settings | options)[name] for name in ("n_genes", "min_cells", "n_cells", "protocol", "output")
            }
            asked = {"seed": options.get("seeds", (0,)), "silent": options.get("silent", False), **of_data}
            tuned = choose_settings(
                dataset,
                [method for method in methods.values() if method.name in grids],
                grids=grids,
                missingness=missingness,
                validation_share=VALIDATION_SHARE,
                **asked,
            )
            methods = {name: tuned.get(method.name, method) for name, method in methods.items()}
        table = self._compare(dataset, methods, settings | {"missingness": missingness} | options)
        if output is not None:
            write_table(Path(output) / "results.csv", table)
        return table

    def estimates(
        self, *, scale: float = 1.0, rows: Sequence[str] | None = None, tune: bool = True, speed: float | None = None
    ) -> pd.DataFrame:
        """How long each row would take and how much memory, without reading any data.

        Parameters
        ----------
        scale, rows, tune
            As when the recipe is called.
        speed
            Floating-point operations per second. Default: those of this machine, measured.

        Returns
        -------
        Parameters, operations, trainings, passes over each cell, hours of training and of imputation on this machine, hours
        on other devices, and memory.

        Examples
        --------
        >>> from sccountsdiff.benchmark.paper import heart_mcar
        >>> bool(heart_mcar.estimates(rows=["CountsDiff"], speed=1e11).loc["CountsDiff", "fit_hours"] > 24)
        True
        """
        if not 0 < scale <= 1:
            raise ValueError(f"scale must be above 0 and at most 1, found {scale}.")
        n_cells = max(round(scale * self.atlas.n_cells), FEWEST_CELLS)
        n_genes = max(round(scale * self.atlas.n_genes), FEWEST_GENES)
        budget = Budget(self.atlas, n_cells, scale)
        return estimates(self._chosen(rows), budget, n_genes, speed, partial(self._work, tune=tune))

    def check(
        self,
        data: str | Path | None = None,
        *,
        columns: Mapping[str, str | None] | None = None,
        gene_column: str | None = None,
        rows: Sequence[str] | None = None,
        weights: str | Path | None = None,
    ) -> dict[str, str]:
        """What is there of what the table needs, without starting anything; data that cannot be used are an error.

        Parameters
        ----------
        data, columns, gene_column, rows, weights
            As when the recipe is called; without data only methods are looked at.

        Returns
        -------
        A text about the data, and one for each row that would be recorded as failed.

        Examples
        --------
        >>> from sccountsdiff.benchmark.paper import heart_mcar
        >>> heart_mcar.check(rows=["Zero imputation", "scGPT (pretrained)"])
        {'scGPT (pretrained)': 'will fail: no weights are given'}
        """
        found = {} if data is None else {"data": self.atlas.describe(data, columns=columns, gene_column=gene_column)}
        for row in self._chosen(rows):
            kind = get_baseline(row.registered)
            if kind.needs_weights and weights is None:
                found[row.name] = "will fail: no weights are given"
            elif kind.needs_weights:
                found[row.name] = f"weights of {len(Checkpoint.read(str(weights)).vocabulary):,} genes"
            if lacking := [package for extra in kind.requires for package in missing_packages(extra)]:
                found[row.name] = f"will fail: {', '.join(lacking)} not installed"
        return found

    def _work(self, row: Row, tune: bool) -> Work:
        """What the table asks of a row."""
        return Work.of_row(row, tune)

    @abstractmethod
    def _chosen(self, names: Sequence[str] | None) -> list[Row]:
        """The rows of these names, all by default; complains about those that the table does not have."""

    @abstractmethod
    def _compare(self, dataset: Dataset, methods: dict[str, Baseline], options: dict[str, Any]) -> pd.DataFrame:
        """Make the table from loaded data and the methods of the rows."""


@dataclass(frozen=True)
class Comparison(Recipe):
    """A table of methods.

    Attributes
    ----------
    rows
        Rows of the table; all other attributes are those of :class:`Recipe`.

    Examples
    --------
    >>> from sccountsdiff.benchmark.paper import heart_mcar
    >>> [row.name for row in heart_mcar.rows][:3]
    ['Zero imputation', 'Mean imputation', 'Conditional Mean']
    """

    metrics: tuple[str, ...] = IMPUTATION_METRICS
    rows: tuple[Row, ...] = ROWS

    def _chosen(self, names: Sequence[str] | None) -> list[Row]:
        known = [row.name for row in self.rows]
        if names is not None and (isinstance(names, str) or not names or not set(names) <= set(known)):
            raise ValueError(f"rows must be some of {known}, found {names!r}.")
        return [row for row in self.rows if names is None or row.name in names]

    def _compare(self, dataset: Dataset, methods: dict[str, Baseline], options: dict[str, Any]) -> pd.DataFrame:
        table = run(dataset, methods=list(methods.values()), **options)
        name_of = {label(method, method.name): name for name, method in methods.items()}
        table.insert(0, "row", table["method"].map(name_of))
        return table


@dataclass(frozen=True)
class Ablation(Recipe):
    """A table of settings of CountsDiff.

    Attributes
    ----------
    sweep
        Function of ``sccountsdiff.benchmark.sweeps`` that varies the setting, and has its name.
    options
        Its arguments.
    n_steps
        Optimiser steps of the training.
    n_scored
        Validation cells that are scored, if there are as many; all other attributes are those of :class:`Recipe`.

    Examples
    --------
    >>> from sccountsdiff.benchmark.paper import fetus_attrition
    >>> fetus_attrition.options["values"]
    (0.0, 0.005, 0.01, 0.02, 0.05)
    """

    sweep: Callable[..., pd.DataFrame]
    options: dict[str, Any]
    n_steps: int = 20_000
    n_scored: int = 5000

    def _chosen(self, names: Sequence[str] | None) -> list[Row]:
        if names is not None:
            raise ValueError(f"rows is for comparisons of methods; {self.name} varies a setting. Leave it out.")
        made = lambda budget: countsdiff_settings(budget, self.n_steps) | ABLATION_SAMPLING
        return [Row("CountsDiff", "countsdiff_paper", made)]

    def _work(self, row: Row, tune: bool) -> Work:
        """A training for each schedule, and one draw in each setting."""
        of_schedules = [{"schedule": name} for name in self.options.get("schedules", ())] or [{}]
        settings = tuple(s | {self.sweep.__name__: value} for s in of_schedules for value in self.options["values"])
        return Work(len(of_schedules), settings, n_draws=0, n_cells=self.n_scored)

    def _compare(self, dataset: Dataset, methods: dict[str, Baseline], options: dict[str, Any]) -> pd.DataFrame:
        (method,) = methods.values()
        return self.sweep(dataset, method=method, **self.options | {"n_scored": self.n_scored} | options)


def _scaled(missingness: Missingness, scale: float) -> Missingness:
    """With a window of as large a share of the cells."""
    window = getattr(missingness, "window", None)
    return missingness if window is None else replace(missingness, window=round(scale * window))


def _of_types(recipe: Comparison) -> Comparison:
    """The same imputations, scored by how well the types of the cells can still be told."""
    name, title = f"{recipe.name}_classifier", f"Types of imputed cells, as {recipe.name}"
    return replace(recipe, name=name, title=title, metrics=("accuracy", "macro_f1"), rows=CLASSIFIER_ROWS)


fetus_mcar = Comparison("fetus_mcar", "Imputation of the fetal atlas, 50 % MCAR", FETUS, MCAR(0.5))
fetus_mnar = Comparison(
    "fetus_mnar", "Imputation of the fetal atlas, 25 % MNAR, low counts", FETUS, MNARLow(0.25, window=5000)
)
heart_mcar = Comparison("heart_mcar", "Imputation of the heart atlas, 50 % MCAR", HEART, MCAR(0.5))

_ablation = partial(Ablation, atlas=FETUS, missingness=MCAR(0.4), metrics=sweeps.ABLATION_METRICS)
_attrition = {"values": sweeps.ATTRITION_RATES, "schedules": tuple(SCHEDULES)}
_guidance = {"values": sweeps.GUIDANCE_SCALES, "schedules": tuple(SCHEDULES)}
_steps = {"values": (29, 19, 14, 9, 6, 4, 2, 1)}  # the paper counts points in time: one more each
fetus_attrition = _ablation(
    "fetus_attrition", "Attrition by schedule, fetal atlas", sweep=sweeps.attrition, options=_attrition
)
fetus_guidance = _ablation(
    "fetus_guidance", "Guidance by schedule, fetal atlas", sweep=sweeps.guidance, options=_guidance
)
fetus_steps = _ablation("fetus_steps", "Number of sampling steps, fetal atlas", sweep=sweeps.n_steps, options=_steps)

fetus_mcar_classifier = _of_types(fetus_mcar)
fetus_mnar_classifier = _of_types(fetus_mnar)
heart_mcar_classifier = _of_types(heart_mcar)

RECIPES: dict[str, Recipe] = {made.name: made for made in list(globals().values()) if isinstance(made, Recipe)}
"""All of the above by name."""
