"""One setting of CountsDiff varied at a time, on any data set: the paper's ablations (App. E.5).

Each sweep is a comparison by :func:`~sccountsdiff.benchmark.run` among variants of one method: it can be interrupted and
continued, and where only sampling varies, all variants share one trained model. Scored are validation cells, as many as a
comparison with the same seeds has test cells, which are put away, or as many as asked for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from sccountsdiff.benchmark.baselines import CountsDiff
from sccountsdiff.benchmark.datasets import DataSource, load_dataset
from sccountsdiff.benchmark.missingness import MCAR, Missingness
from sccountsdiff.benchmark.results import label
from sccountsdiff.benchmark.runner import TEST_SHARE, run
from sccountsdiff.benchmark.tables import mean_and_se
from sccountsdiff.benchmark.tuning import training_cells
from sccountsdiff.checks import whole_number
from sccountsdiff.diffusion.rounding import MEAN_ROUNDINGS
from sccountsdiff.diffusion.schedules import SCHEDULES

ABLATION_METRICS = ("scfid", "energy_distance")
"""The metrics of the paper's ablations."""

ATTRITION_RATES = (0.0, 0.005, 0.01, 0.02, 0.05)
GUIDANCE_SCALES = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0)
"""The settings of the paper's ablations."""

TASK_COLUMNS = ("dataset", "protocol", "missingness", "n_samples")
"""What values must have in common to be averaged over seeds."""


def attrition(
    dataset: DataSource = "pbmc68k",
    values: Sequence[float] = ATTRITION_RATES,
    *,
    schedules: Sequence[str] = ("cosine",),
    **options: Any,
) -> pd.DataFrame:
    """Vary the attrition of the reverse process, for each schedule.

    Parameters
    ----------
    dataset
        Name, ``.h5ad`` file or data set.
    values
        Attrition rates (eta of the ``rescale`` schedule).
    schedules
        Survival schedules; a model is trained for each.
    **options
        ``method`` (the variant of :class:`~sccountsdiff.benchmark.baselines.CountsDiff` to start from), ``missingness``
        (default: 40 % completely at random, as in the paper), ``n_scored`` (validation cells at most; the others are
        trained on), and arguments of :func:`~sccountsdiff.benchmark.run` such as ``seeds``, ``metrics``, ``n_genes`` or
        ``output``.

    Returns
    -------
    The tidy table of :func:`~sccountsdiff.benchmark.run` with a column for each setting that varies.

    Examples
    --------
    >>> from sccountsdiff.benchmark.baselines import CountsDiff
    >>> small = CountsDiff(max_epochs=1, n_steps=2, model_kwargs={"n_hidden": 8})
    >>> table = attrition(
    ...     values=[0, 0.05], method=small, metrics=["energy_distance"], n_genes=20, n_bootstrap=0, silent=True
    ... )
    >>> table[["schedule", "attrition", "metric"]].values.tolist()
    [['cosine', 0.0, 'energy_distance'], ['cosine', 0.05, 'energy_distance']]
    """
    return _compare_settings(dataset, {"schedule": schedules, "attrition": values}, **options)


def guidance(
    dataset: DataSource = "pbmc68k",
    values: Sequence[float] = GUIDANCE_SCALES,
    *,
    schedules: Sequence[str] = ("cosine",),
    **options: Any,
) -> pd.DataFrame:
    """Vary the strength of the covariates, for each schedule.

    Parameters
    ----------
    dataset
        Name, ``.h5ad`` file or data set; it must have covariates.
    values
        Guidance scales: 0 ignores the covariates, 1 is the conditional model.
    schedules, **options
        As in :func:`attrition`.

    Returns
    -------
    As :func:`attrition`.

    Examples
    --------
    >>> from sccountsdiff.benchmark.baselines import CountsDiff
    >>> small = CountsDiff(max_epochs=1, n_steps=2, model_kwargs={"n_hidden": 8})
    >>> table = guidance(values=[0, 2], method=small, metrics=["rmse"], n_genes=20, n_bootstrap=0, silent=True)
    >>> table["guidance"].tolist()
    [0.0, 2.0]
    """
    dataset = load_dataset(dataset)
    if not dataset.covariates:
        raise ValueError(f"Guidance has nothing to act on: data set {dataset.name!r} has no covariates.")
    return _compare_settings(dataset, {"schedule": schedules, "guidance": values}, **options)


def n_steps(
    dataset: DataSource = "pbmc68k", values: Sequence[int] = (1, 2, 3, 5, 7, 10, 15, 20, 30), **options: Any
) -> pd.DataFrame:
    """Vary the number of reverse steps.

    Parameters
    ----------
    dataset
        Name, ``.h5ad`` file or data set.
    values
        Numbers of steps.
    **options
        As in :func:`attrition`.

    Returns
    -------
    As :func:`attrition`.

    Examples
    --------
    >>> from sccountsdiff.benchmark.baselines import CountsDiff
    >>> small = CountsDiff(max_epochs=1, model_kwargs={"n_hidden": 8})
    >>> table = n_steps(values=[1, 3], method=small, metrics=["rmse"], n_genes=20, n_bootstrap=0, silent=True)
    >>> table["n_steps"].tolist()
    [1, 3]
    """
    return _compare_settings(dataset, {"n_steps": values}, **options)


def schedule(dataset: DataSource = "pbmc68k", values: Sequence[str] = tuple(SCHEDULES), **options: Any) -> pd.DataFrame:
    """Vary the survival schedule: cosine, Fisher in continuous time, and Fisher on Blackout's grid.

    Parameters
    ----------
    dataset
        Name, ``.h5ad`` file or data set.
    values
        Names of schedules; a model is trained for each.
    **options
        As in :func:`attrition`.

    Returns
    -------
    As :func:`attrition`.

    Examples
    --------
    >>> from sccountsdiff.benchmark.baselines import CountsDiff
    >>> small = CountsDiff(max_epochs=1, n_steps=2, model_kwargs={"n_hidden": 8})
    >>> table = schedule(method=small, metrics=["rmse"], n_genes=20, n_bootstrap=0, silent=True)
    >>> table["schedule"].tolist()
    ['cosine', 'fisher', 'blackout']
    """
    return _compare_settings(dataset, {"schedule": values}, **options)


def rounding(
    dataset: DataSource = "pbmc68k", values: Sequence[str] = (*MEAN_ROUNDINGS, "mixture"), **options: Any
) -> pd.DataFrame:
    """Vary how the expected number of births of a step becomes a whole number.

    Parameters
    ----------
    dataset
        Name, ``.h5ad`` file or data set.
    values
        Names of roundings; ``"mixture"``, ``"nb"`` and ``"hurdle"`` need a method with a head that predicts such a law.
    **options
        As in :func:`attrition`.

    Returns
    -------
    As :func:`attrition`.

    Examples
    --------
    >>> from sccountsdiff.benchmark.baselines import CountsDiff
    >>> small = CountsDiff(max_epochs=1, n_steps=2, model_kwargs={"n_hidden": 8})
    >>> table = rounding(method=small, metrics=["rmse"], n_genes=20, n_bootstrap=0, silent=True)
    >>> table["error"].isna().all().item()
    True
    """
    return _compare_settings(dataset, {"rounding": values}, **options)


SWEEPS = {sweep.__name__: sweep for sweep in (attrition, guidance, n_steps, schedule, rounding)}


def summarise(table: pd.DataFrame) -> pd.DataFrame:
    """Settings by metrics, each value with its standard error: over seeds, or by bootstrap if there is one seed.

    Patterns and numbers of samples have rows of their own if there are several.

    Parameters
    ----------
    table
        From one of the sweeps.

    Returns
    -------
    A table of texts, settings by metrics.

    Examples
    --------
    >>> table = pd.DataFrame({"n_steps": [1, 3], "metric": "rmse", "value": [2.0, 1.5], "se": [0.1, 0.1], "seed": 0})
    >>> summarise(table)
    metric           rmse
    n_steps
    1        2.0000 (0.1)
    3        1.5000 (0.1)
    """
    numbers = numbers_of(table)
    texts = [f"{mean:.4f} ({se:.1g})" if np.isfinite(se) else f"{mean:.4f}" for mean, se in numbers.to_numpy()]
    texts = pd.Series(texts, index=numbers.index).unstack("metric")
    return texts.reindex(index=numbers.index.droplevel("metric").unique(), columns=table["metric"].dropna().unique())


def plot(table: pd.DataFrame) -> Figure:
    """Each metric against the setting that varies, a line for each schedule.

    Patterns and numbers of samples have rows of panels of their own if there are several.

    Parameters
    ----------
    table
        From one of the sweeps.

    Returns
    -------
    The figure, a panel for each metric.

    Examples
    --------
    >>> table = pd.DataFrame({"n_steps": [1, 3], "metric": "rmse", "value": [2.0, 1.5], "se": [0.1, 0.1], "seed": 0})
    >>> plot(table).axes[0].get_xlabel()
    'n_steps'
    """
    from sccountsdiff.benchmark import pl  # not at the top: plots take numbers_of from here

    metrics = list(table["metric"].dropna().unique())
    tasks = _several(table)
    parts = [part for _, part in table.groupby(tasks, sort=False)] if tasks else [table]
    figure = Figure(figsize=(4.2 * len(metrics), 3.4 * len(parts)), layout="constrained")
    for row, part in zip(figure.subplots(len(parts), len(metrics), squeeze=False), parts, strict=True):
        for ax, metric in zip(row, metrics, strict=True):
            if metric in set(part["metric"]):
                pl.sweep(part, metric, ax=ax)
            ax.set_title(", ".join(f"{name}: {part[name].iloc[0]}" for name in tasks))
    return figure


def _compare_settings(
    dataset: DataSource,
    grid: dict[str, Sequence],
    *,
    method: CountsDiff | None = None,
    missingness: str | Missingness = MCAR(0.4),
    metrics: Sequence[str] | None = ABLATION_METRICS,
    n_samples: int = 1,
    n_scored: int | None = None,
    **options: Any,
) -> pd.DataFrame:
    """Compare the method in all combinations of settings on validation cells: settings are to be chosen by it."""
    method = CountsDiff() if method is None else method
    defaults = {f.name: f.default for f in dataclasses.fields(method)}
    # As float settings are given as floats, 0 and 0.0 are the same variant.
    grid = {name: list(map(float, vs)) if isinstance(defaults[name], float) else vs for name, vs in grid.items()}
    points = [dict(zip(grid, point, strict=True)) for point in product(*grid.values())]
    variants = [dataclasses.replace(method, **point) for point in points]
    preparation = {
        name: options.pop(name) for name in ("n_genes", "gene_ranking", "min_cells", "n_cells") if name in options
    }
    test_share = options.pop("test_share", TEST_SHARE)
    cells = training_cells(load_dataset(dataset), options.get("seeds", (0,)), test_share, **preparation)
    share = test_share / (1 - test_share)  # as many validation cells as test cells
    if n_scored is not None:
        share = min(share, whole_number("n_scored", n_scored) / cells.adata.n_obs)
    shares = {"min_cells": 0, "test_share": share}
    table = run(cells, missingness, variants, metrics=metrics, n_samples=n_samples, **shares, **options)
    point_of = {label(v, v.name): point for v, point in zip(variants, points, strict=True)}
    table = table[table["method"].isin(point_of)].reset_index(drop=True)
    if table["metric"].isna().all():
        raise RuntimeError(f"No variant could be scored. The first one failed: {table['error'].iloc[0]}")
    for position, name in enumerate(grid):
        table.insert(position, name, [point_of[variant][name] for variant in table["method"]])
    return table


def numbers_of(table: pd.DataFrame) -> pd.DataFrame:
    """Mean over seeds and its standard error, by settings (the one that varies last) and metric.

    Data sets, protocols, patterns and numbers of samples of which there are several are told apart by levels before those
    of the settings. The standard error is that of the bootstrap where there is one value.

    Parameters
    ----------
    table
        From one of the sweeps.

    Returns
    -------
    A table with the columns ``mean`` and ``se``.

    Examples
    --------
    >>> table = pd.DataFrame(
    ...     {"n_steps": [1, 1], "metric": "rmse", "value": [2.0, 1.0], "se": [0.1, 0.1], "seed": [0, 1]}
    ... )
    >>> numbers_of(table).loc[(1, "rmse")].tolist()
    [1.5, 0.5]
    """
    settings = [name for name in table.columns if name in SWEEPS]
    keys = [*_several(table), *settings, "metric"]
    return mean_and_se(table.dropna(subset=["metric"]), keys)[["mean", "se"]]


def _several(table: pd.DataFrame) -> list[str]:
    """Columns that say what was asked, of which there is more than one."""
    return [name for name in TASK_COLUMNS if name in table and table[name].nunique() > 1]
