"""What a comparison is made of, checked before any work is done."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sccountsdiff.benchmark.baselines import Baseline, get_baseline
from sccountsdiff.benchmark.datasets import Dataset, load_dataset
from sccountsdiff.benchmark.downstream import PACKAGES
from sccountsdiff.benchmark.metrics import METRICS, Metric, get_metric
from sccountsdiff.benchmark.missingness import MISSINGNESS, Missingness, Molecules, get_missingness
from sccountsdiff.benchmark.optional import missing_packages
from sccountsdiff.benchmark.results import label
from sccountsdiff.benchmark.scoring import NEEDS_LABELS, NEEDS_TRAINING, available

logger = logging.getLogger("sccountsdiff")

DEFAULT_METHODS = (
    "zero",
    "gene_mean",
    "conditional_mean",
    "conditional_mean_scaled",
    "knn_mean",
    "scvi",
    "countsdiff_mean",
    "countsdiff",
)
QUICK_EPOCHS = 60
QUICK_EPOCHS_OF = {"scvi": 240, "scvi_refined": 240}  # whose epochs are short, and which is far from done after 60


@dataclass(frozen=True)
class Plan:
    """A checked comparison; patterns and methods by their names in tables."""

    datasets: tuple[Dataset, ...]
    patterns: dict[str, Missingness | Molecules]
    methods: dict[str, Baseline]
    seeds: tuple[int, ...]
    metrics: tuple[Metric, ...]
    n_samples: tuple[int, ...]
    protocol: str
    embedder: Path | None
    n_bootstrap: int
    bootstrap_cells: int | None

    def metrics_for(
        self, dataset: Dataset, pattern: Missingness | Molecules, *, is_truth: bool = False
    ) -> list[Metric]:
        """The metrics that make sense for a data set and a pattern; for the truth only those that are not trivial."""
        return [
            metric
            for metric in self.metrics
            if set(metric.needs) <= available(pattern)
            and (dataset.label is not None or not NEEDS_LABELS & set(metric.needs))
            and (not is_truth or {"predicted_labels", "clusters"} & set(metric.needs))
        ]


def make_plan(
    *,
    datasets: Any,
    missingness: Any,
    methods: Any,
    seeds: Sequence[int],
    metrics: Sequence[str] | None,
    n_samples: int | Sequence[int],
    protocol: str,
    embedder: str | Path | None,
    n_bootstrap: int,
    quick: bool,
    bootstrap_cells: int | None = None,
) -> Plan:
    """Look up names, and check that everything is known, installed and fits together.

    Examples
    --------
    >>> make_plan(  # doctest: +ELLIPSIS
    ...     datasets="pbmc68k",
    ...     missingness="mcar:0.3",
    ...     methods=["gene_mean", "countsdif"],
    ...     seeds=[0],
    ...     metrics=None,
    ...     n_samples=1,
    ...     protocol="all",
    ...     embedder=None,
    ...     n_bootstrap=0,
    ...     quick=False,
    ... )
    Traceback (most recent call last):
    ...
    KeyError: "Unknown imputation method 'countsdif'; did you mean 'countsdiff'? Known: ..."
    """
    seeds = (seeds,) if isinstance(seeds, int) else tuple(seeds)
    n_samples = (n_samples,) if isinstance(n_samples, int) else tuple(n_samples)
    for name, values, least in (("seeds", seeds, 0), ("n_samples", n_samples, 1)):
        if not values or min(values) < least or len(set(values)) < len(values):
            raise ValueError(f"{name} must be different whole numbers of at least {least}, found {list(values)}.")
    if protocol not in ("all", "paper"):
        raise ValueError(f"protocol must be 'all' or 'paper', found {protocol!r}.")
    if embedder is not None and not Path(embedder).is_dir():
        raise FileNotFoundError(
            f"embedder must be the folder of a saved scvi-tools model, found nothing at {embedder}."
        )
    if n_bootstrap == 1 or n_bootstrap < 0:
        raise ValueError(f"n_bootstrap must be 0 or at least 2, found {n_bootstrap}.")
    if bootstrap_cells is not None and bootstrap_cells < 2:
        raise ValueError(f"bootstrap_cells must be at least 2, found {bootstrap_cells}; leave it out for all cells.")
    patterns = _named(missingness, "missingness", _pattern)
    chosen = _named(DEFAULT_METHODS if methods is None else methods, "methods", lambda m: _method(m, quick))
    if any(isinstance(pattern, Molecules) for pattern in patterns.values()):
        if unable := [name for name, method in chosen.items() if not method.denoises]:
            raise ValueError(
                f"missingness: 'molecules' is for methods that denoise, which {unable} do not; leave them out. "
                "list_methods() says which do."
            )
        if protocol == "paper":
            raise ValueError("protocol='paper' says which entries may be hidden; 'molecules' hides none. Run it apart.")
    sources = _as_list(datasets)
    loaded = tuple(load_dataset(source) for source in sources)
    if not loaded or len({d.name for d in loaded}) < len(loaded):
        raise ValueError(f"datasets must have different names, found {[d.name for d in loaded]}.")
    for dataset in loaded:
        if protocol == "paper" and dataset.label is None:
            raise ValueError(
                f"protocol='paper' needs the type of each cell, but data set {dataset.name!r} has no label."
            )
    return Plan(
        loaded,
        patterns,
        chosen,
        seeds,
        _metrics(metrics, loaded, patterns, quick),
        n_samples,
        protocol,
        None if embedder is None else Path(embedder),
        n_bootstrap,
        bootstrap_cells,
    )


def _as_list(things: Any) -> list:
    return list(things) if isinstance(things, Sequence) and not isinstance(things, str | Path) else [things]


def _named(things: Any, argument: str, make: Any) -> dict[str, Any]:
    pairs = [make(thing) for thing in _as_list(things)]
    names = [name for name, _ in pairs]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"{argument} must name at least one, each once, found {names}.")
    return dict(pairs)


def _pattern(thing: str | Missingness | Molecules) -> tuple[str, Missingness | Molecules]:
    if isinstance(thing, Missingness | Molecules):
        names = [name for name in MISSINGNESS if MISSINGNESS[name] is type(thing)]
        return label(thing, names[0] if names else type(thing).__name__), thing
    if not isinstance(thing, str):
        raise TypeError(f"missingness must be names or patterns, found {type(thing).__name__}.")
    name, _, rate = thing.partition(":")
    try:
        pattern = get_missingness(name)(**({"rate": float(rate)} if rate else {}))
    except TypeError as error:
        raise ValueError(f"missingness: {name!r} has no rate, found {thing!r}.") from error
    return label(pattern, name), pattern


def _method(thing: str | Baseline | type[Baseline], quick: bool) -> tuple[str, Baseline]:
    if isinstance(thing, str):
        kind = get_baseline(thing)
        is_trained = dataclasses.is_dataclass(kind) and "max_epochs" in {f.name for f in dataclasses.fields(kind)}
        thing = kind()
        if quick and is_trained:
            shorter = QUICK_EPOCHS_OF.get(kind.name, QUICK_EPOCHS)
            thing = kind(max_epochs=shorter if thing.max_epochs is None else min(thing.max_epochs, shorter))
    elif isinstance(thing, type) and issubclass(thing, Baseline):
        thing = thing()
    if not isinstance(thing, Baseline):
        raise TypeError(f"methods must be names or methods, found {type(thing).__name__}.")
    for extra in thing.requires:
        if missing := missing_packages(extra):
            logger.warning("Method %s will be recorded as failed: it needs %s.", thing.name, ", ".join(missing))
    return label(thing, thing.name), thing


def _metrics(
    names: Sequence[str] | None,
    datasets: Sequence[Dataset],
    patterns: dict[str, Missingness | Molecules],
    quick: bool,
) -> tuple[Metric, ...]:
    kinds = {name: available(pattern) for name, pattern in patterns.items()}
    absent = {
        name: [package for package in PACKAGES.get(name, ()) if missing_packages(package)]
        for name in (METRICS if names is None else names)
    }
    if names is None:
        for name, packages in absent.items():
            if packages:
                logger.info("Metric %s is left out: it needs %s.", name, ", ".join(packages))
        left_out = NEEDS_TRAINING if quick else set()
        return tuple(
            metric
            for metric in map(get_metric, absent)
            if not absent[metric.name] and any(set(metric.needs) <= kind - left_out for kind in kinds.values())
        )
    metrics = tuple(get_metric(name) for name in names)
    for metric in metrics:
        if not any(set(metric.needs) <= kind for kind in kinds.values()):
            raise ValueError(
                f"metrics: {metric.name!r} needs {', '.join(metric.needs)}, which missingness {list(patterns)} does not give."
            )
        if absent[metric.name]:
            raise ImportError(
                f"Metric {metric.name!r} needs {absent[metric.name]}; install them with "
                'pip install "sccountsdiff[benchmark]", or leave the metric out.'
            )
        if NEEDS_LABELS & set(metric.needs) and all(dataset.label is None for dataset in datasets):
            raise ValueError(f"metrics: {metric.name!r} needs the type of each cell, but no data set has a label.")
    if not metrics:
        raise ValueError("metrics is empty; name at least one, or leave it out for all that apply.")
    for name, kind in kinds.items():
        if not any(set(metric.needs) <= kind for metric in metrics):
            raise ValueError(f"metrics: none of {list(names)} fits missingness {name!r}; add one or leave that out.")
    return metrics
