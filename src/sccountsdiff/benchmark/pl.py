"""Plots of comparisons and sweeps; ``ax``, ``show`` and ``save`` as in :mod:`sccountsdiff.pl`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from sccountsdiff.benchmark.metrics import METRICS
from sccountsdiff.benchmark.sweeps import numbers_of
from sccountsdiff.benchmark.tables import by_row, heading, row_name, summarise, to_table
from sccountsdiff.pl.figure import BLUE, GREEN, GREY, ORANGE, colour, finish, own_axes

__all__ = ["metric_table", "quality", "sweep"]

GROUP_COLOURS = {"naive": GREY, "specialised": BLUE, "generative": ORANGE}
MARKERS = "osD^vP*X<>ph"


def metric_table(
    results: pd.DataFrame,
    metrics: Sequence[str] | None = None,
    *,
    dataset: str | None = None,
    protocol: str | None = None,
    missingness: str | None = None,
    ax: Axes | None = None,
    show: bool | None = None,
    save: str | Path | None = None,
) -> Axes:
    """Methods by metrics, each column coloured by rank; a box and bold type mark the best of all methods.

    Parameters
    ----------
    results
        Table from :func:`~sccountsdiff.benchmark.run`.
    metrics
        Columns, in order; default: all.
    dataset, protocol, missingness
        Which of the comparisons to show; needed where ``results`` holds several.
    ax, show, save
        As in :func:`sccountsdiff.pl.history`.

    Returns
    -------
    The axes that were drawn into.

    Examples
    --------
    >>> import sccountsdiff.benchmark as bm
    >>> results = bm.run(methods=["zero", "gene_mean"], metrics=["rmse", "mae"], n_bootstrap=0, silent=True)
    >>> ax = bm.pl.metric_table(results, show=False)
    >>> [label.get_text() for label in ax.get_xticklabels()]
    ['rmse ↓', 'mae ↓']
    """
    summary = _one_comparison(results, dataset, protocol, missingness, metrics or ())
    metrics = list(dict.fromkeys(summary["metric"])) if metrics is None else list(metrics)
    table = to_table(summary, metrics)
    compared = by_row(summary, "mean").loc[table.groups.index[table.groups != "reference"]]
    goodness = pd.DataFrame(index=table.texts.index, columns=metrics, dtype=float)
    for metric in set(metrics) & set(METRICS):
        worst_to_best = METRICS[metric].loss(compared[metric]).rank(ascending=False) - 1
        goodness[metric] = worst_to_best / max(worst_to_best.max(), 1)

    ax, is_own = own_axes(ax, (2.2 + 1.1 * len(metrics), 0.9 + 0.36 * len(goodness)))
    # Only the lighter part of the map, on which black type can be read.
    ax.imshow(goodness, cmap="Blues", vmin=-0.1, vmax=1.7, aspect="auto")
    for (i, j), text in np.ndenumerate(table.texts.to_numpy()):
        is_best = table.ranks.iloc[i, j] == 1
        ax.text(j, i, text, ha="center", va="center", fontsize="small", weight="bold" if is_best else "normal")
        if is_best:
            ax.add_patch(Rectangle((j - 0.48, i - 0.46), 0.96, 0.92, fill=False, edgecolor="black", linewidth=1.2))
    for i in np.flatnonzero(table.groups.to_numpy()[1:] != table.groups.to_numpy()[:-1]):
        ax.axhline(i + 0.5, color="black", linewidth=0.8)
    ax.set_xticks(range(len(metrics)), [heading(metric) for metric in metrics], rotation=30, ha="left")
    ax.set_yticks(range(len(goodness)), goodness.index)
    ax.tick_params(length=0, top=False, labeltop=True, bottom=False, labelbottom=False)
    ax.spines[:].set_visible(False)
    return finish(ax, is_own, show, save)


def quality(
    results: pd.DataFrame,
    x: str = "rmse",
    y: str = "energy_distance",
    *,
    dataset: str | None = None,
    protocol: str | None = None,
    missingness: str | None = None,
    ax: Axes | None = None,
    show: bool | None = None,
    save: str | Path | None = None,
) -> Axes:
    """Pointwise against distributional quality: each method a point, with its standard errors.

    Means of draws are close to the truth entry by entry and far from it in distribution; single draws the other way
    round. Groups of methods have colours, methods have numbers and shapes.

    Parameters
    ----------
    results
        Table from :func:`~sccountsdiff.benchmark.run`.
    x, y
        Names of metrics.
    dataset, protocol, missingness
        Which of the comparisons to show; needed where ``results`` holds several.
    ax, show, save
        As in :func:`sccountsdiff.pl.history`.

    Returns
    -------
    The axes that were drawn into.

    Examples
    --------
    >>> import sccountsdiff.benchmark as bm
    >>> metrics = ["rmse", "energy_distance"]
    >>> results = bm.run(methods=["zero", "gene_mean"], metrics=metrics, n_bootstrap=0, silent=True)
    >>> ax = bm.pl.quality(results, show=False)
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['1  zero', '2  gene_mean']
    """
    summary = _one_comparison(results, dataset, protocol, missingness, [x, y])
    methods = summary[summary["group"] != "reference"]
    keys = ["group", "method", "n_samples"]
    points = methods.pivot(index=keys, columns="metric", values=["mean", "se"])
    points = points.loc[pd.MultiIndex.from_frame(methods[keys].drop_duplicates())]  # pivoting has sorted them
    points = points.dropna(subset=[("mean", x), ("mean", y)])
    ax, is_own = own_axes(ax, (8, 4.2))
    for number, ((group, method, n), point) in enumerate(points.iterrows()):
        at = (point["mean", x], point["mean", y])
        xerr, yerr = np.nan_to_num([point["se", x], point["se", y]])
        style = {"fmt": MARKERS[number % len(MARKERS)], "color": GROUP_COLOURS.get(group, GREEN), "elinewidth": 0.8}
        ax.errorbar(*at, xerr=xerr, yerr=yerr, label=f"{number + 1}  {row_name(method, n)}", **style)
        ax.annotate(str(number + 1), at, xytext=(4, 4), textcoords="offset points")
    ax.set(xlabel=heading(x), ylabel=heading(y), title="Pointwise against distributional quality")
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0, frameon=False)
    return finish(ax, is_own, show, save)


def sweep(
    table: pd.DataFrame,
    metric: str,
    *,
    ax: Axes | None = None,
    show: bool | None = None,
    save: str | Path | None = None,
) -> Axes:
    """A metric against the setting that varies, with standard errors.

    Other settings, patterns or numbers of samples that vary too have a line each. A line is broken where a variant failed.

    Parameters
    ----------
    table
        From one of the functions of ``sccountsdiff.benchmark.sweeps``.
    metric
        Name of the metric.
    ax, show, save
        As in :func:`sccountsdiff.pl.history`.

    Returns
    -------
    The axes that were drawn into.

    Examples
    --------
    >>> import pandas as pd
    >>> import sccountsdiff.benchmark as bm
    >>> table = pd.DataFrame({"n_steps": [1, 3], "metric": "rmse", "value": [2.0, 1.5], "se": [0.1, 0.1], "seed": 0})
    >>> ax = bm.pl.sweep(table, "rmse", show=False)
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('n_steps', 'rmse ↓')
    """
    if metric not in set(table["metric"]):
        raise KeyError(f"The table has no metric {metric!r}, but {', '.join(table['metric'].dropna().unique())}.")
    part = numbers_of(table).xs(metric, level="metric")
    *others, setting = part.index.names
    levels = [part.index.get_level_values(name) for name in others]
    lines = [line for _, line in part.groupby(levels, sort=False)] if others else [part]
    values = part.index.get_level_values(setting).unique()
    values = values.sort_values() if pd.api.types.is_numeric_dtype(values) else values
    places = range(len(values))  # evenly spaced, whatever the values are
    ax, is_own = own_axes(ax)
    for number, line in enumerate(lines):
        label = ", ".join(map(str, line.index[0][:-1])) if others else None
        line = line.droplevel(others).reindex(values)  # a gap where a variant has failed
        ax.errorbar(
            places, line["mean"], yerr=line["se"].fillna(0), marker="o", capsize=2, color=colour(number), label=label
        )
    ax.set_xticks(places, [f"{value:g}" if isinstance(value, int | float) else value for value in values])
    ax.set(xlabel=setting, ylabel=heading(metric))
    if others:
        ax.legend(title=", ".join(others), frameon=False)
    return finish(ax, is_own, show, save)


def _one_comparison(
    results: pd.DataFrame, dataset: str | None, protocol: str | None, missingness: str | None, metrics: Sequence[str]
) -> pd.DataFrame:
    """Means and standard errors of the one comparison that is asked for, which must have the metrics."""
    for key, value in {"dataset": dataset, "protocol": protocol, "missingness": missingness}.items():
        found = results[key].unique()
        if value is None and len(found) > 1:
            raise ValueError(f"`results` holds several: pass {key}=, one of {', '.join(map(repr, found))}.")
        if value is not None:
            if value not in found:
                raise KeyError(f"{key}={value!r} is not in `results`, which has {', '.join(map(repr, found))}.")
            results = results[results[key] == value]
    summary = summarise(results)
    known = summary["metric"].unique()
    if lacking := [metric for metric in metrics if metric not in known]:
        raise KeyError(f"`results` has no value of {lacking[0]!r}, but of {', '.join(known)}.")
    return summary
