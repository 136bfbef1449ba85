"""Saved results, for the numbers and statements on the pages.

A number on a page is looked up when the page is built::

    {value}`heldout_kang / sliced_wasserstein / method=scVI, refined / seed=1 / .3f`

Parts are separated by " / ". They are, in order:

1. the table: a file of ``docs/benchmarks/results`` without ``.csv``, or ``paper:fetus_mcar`` for a table of the paper;
2. the column;
3. any number of filters ``column=value``;
4. how to reduce several rows to one number: ``mean``, ``median``, ``min``, ``max`` or ``sum``;
5. optionally ``in thousands`` or ``in millions``;
6. the format, as Python writes it (``.3f``, ``.0%``, ``d``).

Tables of the comparison of all methods have one row for each seed, setting and method, and one column for each metric;
see :func:`read`. A value that is more than a look-up is ``{value}`name``` with a function of ``statements``. A statement
that depends on numbers is ``{claim}`has the lowest RMSE <name>```: the text is shown if the function of that name in
``statements`` returns True, and the build fails if it does not.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pandas as pd

from sccountsdiff.benchmark.paper import published

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
COMPARISONS = ("pbmc3k", "kang", "onek1k")
SETTINGS = {("all", "mcar"): "all", ("paper", "mcar"): "observed", ("paper", "mnar_low"): "low", ("paper", "mnar_high"): "high"}  # fmt: skip
SETTINGS |= {("all", name): name for name in ("panel", "panel_correlated", "molecules")}
REDUCE = ("mean", "median", "min", "max", "sum")
SCALE = {"in thousands": 1e-3, "in millions": 1e-6}


class ResultError(ValueError):
    """A page asks for a value that is not there, or makes a statement that is not true."""


@cache
def read(name: str) -> pd.DataFrame:
    """A saved table.

    Those of the comparison have columns ``setting`` ("all": half of all entries hidden; "observed", "low", "high": only
    observed entries hidden, at random or mostly low or high counts; "panel", "panel_correlated": half of the genes hidden;
    "molecules": a tenth of the molecules hidden), ``method`` (without its settings, and with the
    number of draws if there are several: "remdm (5)"), ``seed``, and one for each metric. Failed methods are left out.
    """
    if name.startswith("paper:"):
        return published(name.removeprefix("paper:"))
    path = RESULTS / f"{name}.csv"
    if not path.exists():
        raise ResultError(f"There is no saved result {name!r}.")
    table = pd.read_csv(path)
    if not name.startswith(("comparison_", "tier1_", "tier2_")):
        return table
    table = table[table["metric"].notna() & (table["group"] != "reference")]
    draws = table["n_samples"].map(lambda n: "" if n == 1 else f" ({n})")
    patterns = table["missingness"].str.partition("(")[0]
    table = table.assign(
        setting=[SETTINGS[key] for key in zip(table["protocol"], patterns, strict=True)],
        method=table["method"].str.partition("(")[0] + draws,
    )
    keys = ["setting", "method", "group", "seed"]
    return table.pivot(index=keys, columns="metric", values="value").reset_index()


def select(name: str, **filters) -> pd.DataFrame:
    """Rows of a saved table for which all filters hold; an error if there are none."""
    table = read(name)
    for column, value in filters.items():
        if column not in table:
            raise ResultError(f"{name} has no column {column!r}; it has {', '.join(table)}.")
        values = table[column]
        table = table[values == (float(value) if pd.api.types.is_numeric_dtype(values) else value)]
        if table.empty:
            known = ", ".join(map(str, values.unique()))
            raise ResultError(f"{name} has no row with {column}={value}; there are {known}.")
    return table


def number(name: str, column: str, reduce: str | None = None, **filters) -> float:
    """One number of a saved table."""
    table = select(name, **filters)
    if column not in table:
        raise ResultError(f"{name} has no column {column!r}; it has {', '.join(table)}.")
    values = table[column].dropna()
    if values.empty:
        raise ResultError(f"{name} has no value of {column!r} for {filters}.")
    if reduce:
        return values.agg(reduce)
    if len(values) > 1:
        raise ResultError(f"{name} has {len(values)} values of {column!r} for {filters}: say how to reduce them.")
    return values.iloc[0]


def look_up(text: str) -> str:
    """The value that a page asks for, formatted; see the documentation of this module."""
    name, *parts = (part.strip() for part in text.split(" / "))
    if len(parts) < 2:
        raise ResultError(f"{text!r} should be 'table / column / column=value / ... / format'.")
    column, *rest, form = parts
    filters, reduce, scale = {}, None, 1
    for part in rest:
        if "=" in part:
            key, _, value = part.partition("=")
            filters[key] = value
        elif part in REDUCE:
            reduce = part
        elif part in SCALE:
            scale = SCALE[part]
        else:
            raise ResultError(f"{part!r} in {text!r} is neither a filter, nor one of {', '.join([*REDUCE, *SCALE])}.")
    value = number(name, column, reduce, **filters)
    try:
        return format(int(value) if form == "d" else value * scale, form).replace("%", " %")
    except ValueError as error:
        raise ResultError(f"{form!r} in {text!r} is not a format.") from error


def by_method(name: str, metric: str, seeds: str | int = "mean", **filters) -> pd.Series:
    """Values of a metric, one for each method.

    Parameters
    ----------
    name
        Saved table with columns ``method`` and ``seed``.
    metric
        One of its columns.
    seeds
        The seed, or "mean": mean over all seeds, of the methods that ran with all of them.
    filters
        Which rows to use.
    """
    rows = select(name, **filters)
    if seeds != "mean":
        rows = rows[rows["seed"] == seeds]
        return rows.set_index("method")[metric].dropna()
    by_seed = rows.pivot(index="seed", columns="method", values=metric)
    return by_seed.dropna(axis=1).mean()


def ranking(values: pd.Series, metric: str) -> pd.Series:
    """The same values, the best method first."""
    return values.sort_values(ascending=metric not in HIGHER_IS_BETTER)


HIGHER_IS_BETTER = ("spearman", "pearson", "r2", "accuracy", "macro_f1", "cluster_ari", "marker_recovery")
