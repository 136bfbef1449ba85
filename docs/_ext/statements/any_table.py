"""Statements for any table with columns "method" and "seed"."""

from __future__ import annotations

import pandas as pd
from results import by_method, ranking, select

from statements.registry import ORDINALS, claim, names, value


@claim
def best(tables: str, metrics: str, seeds: str = "mean", *, method: str, **filters: str) -> bool:
    """One method is the best by each of the metrics in each of the tables.

    ``seeds`` is "mean", "each seed", or the number of a seed. Tables and metrics are separated by commas.
    """
    return all(
        ranking(values, metric).index[0] == method
        for table in names(tables)
        for metric in names(metrics)
        for values in _by_seed(table, metric, seeds, filters)
    )


@claim
def better(tables: str, metrics: str, seeds: str = "mean", *, method: str, than: str, **filters: str) -> bool:
    """One method is better than another by each of the metrics in each of the tables; see :func:`best`."""
    return all(
        list(ranking(values[[method, than]], metric).index) == [method, than]
        for table in names(tables)
        for metric in names(metrics)
        for values in _by_seed(table, metric, seeds, filters)
    )


def _by_seed(table: str, metric: str, seeds: str, filters: dict) -> list[pd.Series]:
    if seeds == "each seed":
        return [by_method(table, metric, seed, **filters) for seed in select(table)["seed"].unique()]
    return [by_method(table, metric, seeds if seeds == "mean" else int(seeds), **filters)]


@value
def place(table: str, metric: str, seeds: str = "mean", *, method: str, **filters: str) -> str:
    """Place of a method by a metric, in words."""
    (values,) = _by_seed(table, metric, seeds, filters)
    return ORDINALS[list(ranking(values, metric).index).index(method)]


@value
def above(table: str, metric: str, seeds: str = "mean", *, method: str, than: str, **filters: str) -> str:
    """By how many percent the value of a method is above that of another."""
    (values,) = _by_seed(table, metric, seeds, filters)
    return f"{values[method] / values[than] - 1:.0%}".replace("%", " %")
