"""How a metric depends on one setting of the method."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes

from sccountsdiff.pl.figure import colour, finish, own_axes


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
        As in :func:`history`.

    Returns
    -------
    The axes that were drawn into.

    Examples
    --------
    >>> import pandas as pd
    >>> import sccountsdiff
    >>> table = pd.DataFrame({"n_steps": [1, 3], "metric": "rmse", "value": [2.0, 1.5], "se": [0.1, 0.1], "seed": 0})
    >>> ax = sccountsdiff.pl.sweep(table, "rmse", show=False)
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('n_steps', 'rmse ↓')
    """
    # Not at the top: the benchmark draws with this package.
    from sccountsdiff.benchmark.sweeps import numbers_of
    from sccountsdiff.benchmark.tables import heading

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
