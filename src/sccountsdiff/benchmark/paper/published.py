"""The figures that the paper reports, to put next to one's own."""

from __future__ import annotations

from importlib.resources import files

import numpy as np
import pandas as pd

from sccountsdiff.benchmark.paper.recipes import RECIPES, Ablation
from sccountsdiff.benchmark.sweeps import numbers_of
from sccountsdiff.benchmark.tables import summarise

LOGARITHMS = {"log_scfid": "scfid", "log_mmd": "mmd"}
"""Columns that the paper shows as natural logarithms."""


def published(name: str) -> pd.DataFrame:
    """A table of the paper: values, and their standard errors in columns that end in ``_se``.

    Parameters
    ----------
    name
        Name of its recipe.

    Returns
    -------
    A row for each row of the table.

    Examples
    --------
    >>> table = published("fetus_mcar").set_index(["method", "n_samples"])
    >>> table.loc[("CountsDiff", 1), ["rmse", "energy_distance"]].tolist()
    [1.42, 0.01]
    """
    if name not in RECIPES:
        raise KeyError(f"Unknown table {name!r}; known: {', '.join(RECIPES)}.")
    with (files("sccountsdiff.benchmark.paper") / "tables" / f"{name}.csv").open() as file:
        return pd.read_csv(file)


def compare(results: pd.DataFrame, name: str) -> pd.DataFrame:
    """Own means next to the paper's, for rows and metrics that both have.

    Parameters
    ----------
    results
        What the recipe returned.
    name
        Name of the recipe.

    Returns
    -------
    A row for each row of the paper's table, and for each metric the columns ``ours`` and ``paper``. A row that was not run, or
    that failed, has nothing under ``ours``.

    Examples
    --------
    >>> results = pd.DataFrame(
    ...     {
    ...         **{"row": ["MAGIC"], "dataset": "fetus", "protocol": "paper", "missingness": "mcar", "method": "magic"},
    ...         **{"group": "specialised", "n_samples": 1, "metric": "rmse", "value": 1.5, "se": 0.1, "seed": 0},
    ...     }
    ... )
    >>> compare(results, "fetus_mcar").loc[("MAGIC", 1), "rmse"].tolist()
    [1.5, 1.88]
    """
    table = published(name)
    if isinstance(RECIPES[name], Ablation):
        keys = [key for key in table.columns if key in results.columns]
        is_single = results["n_samples"] == results["n_samples"].min()  # as in the paper's ablations
        ours = numbers_of(results[is_single])["mean"].unstack("metric")
    else:
        keys = ["method", "n_samples"]
        named = results.dropna(subset=["row"])  # the truth has no row in the paper
        means = summarise(named.assign(method=named["row"]))
        ours = means.pivot_table(index=keys, columns="metric", values="mean")
    for shown, metric in LOGARITHMS.items():
        if metric in ours and shown in table:
            with np.errstate(divide="ignore", invalid="ignore"):
                ours[shown] = np.log(ours[metric])
    theirs = table.set_index(keys)
    metrics = [column for column in theirs.columns if column in ours.columns]
    if not metrics:
        return pd.DataFrame(index=theirs.index, columns=pd.MultiIndex.from_arrays([[], []]))
    ours = ours.reindex(theirs.index)
    return pd.concat({m: pd.DataFrame({"ours": ours[m], "paper": theirs[m]}) for m in metrics}, axis=1)
