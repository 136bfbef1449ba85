"""What a comparison is made of, checked before any work is done."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from sccountsdiff.benchmark.baselines import Baseline, get_baseline
from sccountsdiff.benchmark.datasets import Dataset, load_dataset
from sccountsdiff.benchmark.metrics import METRICS, Metric, get_metric
from sccountsdiff.benchmark.optional import missing_packages
from sccountsdiff.benchmark.results import label
from sccountsdiff.benchmark.tasks import Task, make_task
from sccountsdiff.checks import one_of, whole_number

logger = logging.getLogger("sccountsdiff")

DEFAULT_METHODS = ("zero", "gene_mean", "conditional_mean", "conditional_mean_scaled", "knn_mean", "scvi")
DEFAULT_METHODS += ("countsdiff_mean", "countsdiff")
QUICK_EPOCHS = 60
QUICK_EPOCHS_OF = {"scvi": 240, "scvi_refined": 240}  # whose epochs are short, and which is far from done after 60


class Plan:
    """A checked comparison: names are looked up, and everything is known, installed and fits together.

    Parameters
    ----------
    datasets, missingness, methods, seeds, metrics, n_samples, protocol, embedder, n_bootstrap, bootstrap_cells, quick
        As in :func:`~sccountsdiff.benchmark.run`. Tasks and methods are kept by their names in tables.

    Examples
    --------
    >>> Plan(datasets="pbmc68k", missingness="mcar:0.3", methods=["gene_mean", "countsdif"])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    KeyError: "Unknown imputation method 'countsdif'; did you mean 'countsdiff'? Known: ..."
    """

    def __init__(
        self,
        *,
        datasets: Any,
        missingness: Any,
        methods: Any = None,
        seeds: int | Sequence[int] = (0,),
        metrics: Sequence[str] | None = None,
        n_samples: int | Sequence[int] = 1,
        protocol: str = "all",
        embedder: str | Path | None = None,
        n_bootstrap: int = 0,
        bootstrap_cells: int | None = None,
        quick: bool = False,
    ) -> None:
        one_of("protocol", protocol, ("all", "paper"))
        if embedder is not None and not Path(embedder).is_dir():
            raise FileNotFoundError(
                f"embedder must be the folder of a saved scvi-tools model, found nothing at {embedder}."
            )
        if n_bootstrap == 1 or n_bootstrap < 0:
            raise ValueError(f"n_bootstrap must be 0 or at least 2, found {n_bootstrap}.")
        if bootstrap_cells is not None:
            whole_number("bootstrap_cells", bootstrap_cells, least=2)
        self.seeds = _numbers("seeds", seeds, least=0)
        self.n_samples = _numbers("n_samples", n_samples, least=1)
        self.protocol = protocol
        self.embedder = None if embedder is None else Path(embedder)
        self.n_bootstrap, self.bootstrap_cells = n_bootstrap, bootstrap_cells

        self.tasks = _by_name("missingness", map(make_task, _as_list(missingness)), lambda task: task.name)
        given = _as_list(DEFAULT_METHODS if methods is None else methods)
        chosen = [_make_method(method, quick) for method in given]
        self.methods = _by_name("methods", chosen, lambda method: label(method, method.name))
        for task in self.tasks.values():
            task.check(self.methods, protocol)
        loaded = map(load_dataset, _as_list(datasets))
        self.datasets = tuple(_by_name("datasets", loaded, lambda dataset: dataset.name).values())
        for task, dataset in product(self.tasks.values(), self.datasets):
            task.check_dataset(dataset)
        if protocol == "paper" and (bare := [d.name for d in self.datasets if d.label is None]):
            raise ValueError(f"protocol='paper' needs the type of each cell, but data set {bare[0]!r} has no label.")
        self.metrics = self._all_metrics(quick) if metrics is None else self._named_metrics(metrics)

    def metrics_for(self, dataset: Dataset, task: Task, *, is_truth: bool = False) -> list[Metric]:
        """The metrics that make sense for a data set and a task; for the truth only those that are not trivial."""
        return [
            metric
            for metric in self.metrics
            if metric.applies_to(task.answer_inputs)
            and (dataset.label is not None or not metric.needs_labels)
            and (not is_truth or metric.judges_truth)
        ]

    def _all_metrics(self, quick: bool) -> tuple[Metric, ...]:
        """All that apply to a task and whose packages are installed; in a quick run, only those without training."""
        metrics = []
        for metric in (METRICS[name] for name in METRICS):
            if missing := metric.missing_packages():
                logger.info("Metric %s is left out: it needs %s.", metric.name, ", ".join(missing))
            elif self._fits_a_task(metric) and not (quick and metric.needs_training):
                metrics.append(metric)
        return tuple(metrics)

    def _named_metrics(self, names: Sequence[str]) -> tuple[Metric, ...]:
        metrics = tuple(map(get_metric, names))
        for metric in metrics:
            if not self._fits_a_task(metric):
                raise ValueError(
                    f"metrics: {metric.name!r} needs {', '.join(metric.needs)}, which missingness {list(self.tasks)} "
                    "does not give."
                )
            if missing := metric.missing_packages():
                raise ImportError(
                    f"Metric {metric.name!r} needs {missing}; install them with "
                    'pip install "sccountsdiff[benchmark]", or leave the metric out.'
                )
            if metric.needs_labels and all(dataset.label is None for dataset in self.datasets):
                raise ValueError(f"metrics: {metric.name!r} needs the type of each cell, but no data set has a label.")
        if not metrics:
            raise ValueError("metrics is empty; name at least one, or leave it out for all that apply.")
        for name, task in self.tasks.items():
            if not any(metric.applies_to(task.answer_inputs) for metric in metrics):
                raise ValueError(
                    f"metrics: none of {list(names)} fits missingness {name!r}; add one or leave that out."
                )
        return metrics

    def _fits_a_task(self, metric: Metric) -> bool:
        return any(metric.applies_to(task.answer_inputs) for task in self.tasks.values())


def _as_list(things: Any) -> list:
    return list(things) if isinstance(things, Sequence) and not isinstance(things, str | Path) else [things]


def _numbers(argument: str, given: int | Sequence[int], least: int) -> tuple[int, ...]:
    numbers = [whole_number(argument, n, least) for n in ((given,) if isinstance(given, int) else given)]
    return tuple(_by_name(argument, numbers, lambda number: number))


def _by_name(argument: str, things: Iterable, name_of: Callable[[Any], Hashable]) -> dict[Any, Any]:
    """The things by their names; an error if there are none, or if two have the same."""
    pairs = [(name_of(thing), thing) for thing in things]
    if not pairs or len(dict(pairs)) < len(pairs):
        raise ValueError(f"{argument} must name at least one, each once, found {[name for name, _ in pairs]}.")
    return dict(pairs)


def _make_method(thing: str | Baseline | type[Baseline], quick: bool) -> Baseline:
    """The method; one that is given by name is trained shortly in a quick run."""
    method = get_baseline(thing)() if isinstance(thing, str) else thing() if isinstance(thing, type) else thing
    if not isinstance(method, Baseline):
        raise TypeError(f"methods must be names or methods, found {type(method).__name__}.")
    settings = dataclasses.fields(method) if dataclasses.is_dataclass(method) else ()
    if quick and isinstance(thing, str) and "max_epochs" in {setting.name for setting in settings}:
        epochs = QUICK_EPOCHS_OF.get(thing, QUICK_EPOCHS)
        method = type(method)(max_epochs=epochs if method.max_epochs is None else min(method.max_epochs, epochs))
    for extra in method.requires:
        if missing := missing_packages(extra):
            logger.warning("Method %s will be recorded as failed: it needs %s.", method.name, ", ".join(missing))
    return method
