"""Wins, ties and losses of one method against each of the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from sccountsdiff.benchmark.metrics import METRICS, get_metric
from sccountsdiff.benchmark.tables import row_name

TASK = ["dataset", "protocol", "missingness", "metric"]
"""What two methods must have in common to be compared."""

OUTCOMES = ("win", "tie", "loss")


def head_to_head(
    results: pd.DataFrame,
    method: str | Sequence[str],
    *,
    rivals: Sequence[str] | None = None,
    families: Mapping[str, str] | None = None,
    metrics: Sequence[str] | None = None,
) -> pd.DataFrame:
    """One method against each other one, for each data set, task and metric.

    Methods go by their names without settings. One that was scored with several answers (its mean or a draw, one draw or
    the mean of five) counts with the one that is best in the mean over seeds. Compared are the seeds that both ran with. It
    is a tie if the mean difference is no larger than its standard error: that over seeds, of the paired differences, or
    that of the bootstrap, whichever is larger.

    Parameters
    ----------
    results
        Table from :func:`~sccountsdiff.benchmark.run`, or several, one below the other.
    method
        Name of the method, or names of several that count as one.
    rivals
        Names of those to compare with. Default: all others.
    families
        For methods that count as one with another, such as ``{"scvi_draw": "scvi"}``, the name of that.
    metrics
        Names of metrics. Default: all registered ones in the table.

    Returns
    -------
    A row for each data set, protocol, pattern, metric and rival, with the answers that count, their values, the
    ``difference`` in what is to be minimised (above 0 if the method is better), its standard error ``se``, the number of
    seeds and the ``outcome``: ``"win"``, ``"tie"`` or ``"loss"``. Where ``outcome == "loss"`` are the losses.

    Examples
    --------
    >>> rows = [("ours", 0, 1.0), ("ours", 1, 1.2), ("a", 0, 1.5), ("a", 1, 1.6), ("b", 0, 1.2), ("b", 1, 1.0)]
    >>> results = pd.DataFrame(rows, columns=["method", "seed", "value"]).assign(
    ...     dataset="toy", protocol="all", missingness="mcar", n_samples=1, metric="rmse", se=0.05, group="naive"
    ... )
    >>> head_to_head(results, "ours").set_index("rival")["outcome"].to_dict()
    {'a': 'win', 'b': 'tie'}
    """
    ours = (method,) if isinstance(method, str) else tuple(method)
    table = results[results["metric"].notna() & results["value"].notna() & (results["group"] != "reference")]
    table = table.reset_index(drop=True)  # of tables one below the other, rows may have the same number
    wanted = [name for name in dict.fromkeys(table["metric"]) if name in METRICS] if metrics is None else list(metrics)
    names = table["method"].str.partition("(")[0].str.strip()
    table = table[table["metric"].isin(wanted)].assign(name=names)
    for name in (*ours, *(rivals or ())):
        if name not in set(names):
            raise KeyError(f"There are no results of {name!r}; found {sorted(set(names))}.")
    table["answer"] = list(map(row_name, table["name"], table["n_samples"]))
    family_of = dict(families or {}) | dict.fromkeys(ours, ours[0])
    table["player"] = table["name"].map(lambda name: family_of.get(name, name))
    opponents = [name for name in dict.fromkeys(table["player"]) if name != ours[0]] if rivals is None else list(rivals)
    rows = []
    for task, part in table.groupby(TASK, sort=False):
        part = part.assign(loss=get_metric(task[-1]).loss(part["value"]))
        answers = {player: _best_answer(of_player) for player, of_player in part.groupby("player", sort=False)}
        for rival in opponents:
            if ours[0] in answers and rival in answers:
                if (row := _compare(answers[ours[0]], answers[rival])) is not None:
                    rows.append(dict(zip(TASK, task, strict=True)) | {"rival": rival} | row)
    columns = [
        *TASK,
        "rival",
        "answer",
        "rival_answer",
        "value",
        "rival_value",
        "difference",
        "se",
        "n_seeds",
        "outcome",
    ]
    return pd.DataFrame(rows, columns=columns)


def count_outcomes(comparisons: pd.DataFrame, by: str | Sequence[str] = "rival") -> pd.DataFrame:
    """Numbers of wins, ties and losses.

    Parameters
    ----------
    comparisons
        From :func:`head_to_head`.
    by
        Columns to count for each value of, such as ``"rival"``, ``"dataset"`` or ``["missingness", "metric"]``.

    Returns
    -------
    Columns ``win``, ``tie`` and ``loss``, indexed by what they are counted for.

    Examples
    --------
    >>> comparisons = pd.DataFrame({"rival": ["a", "a", "b"], "outcome": ["win", "loss", "win"]})
    >>> count_outcomes(comparisons).loc["a"].tolist()
    [1, 0, 1]
    """
    keys = [by] if isinstance(by, str) else list(by)
    numbers = comparisons.groupby([*keys, "outcome"], sort=False).size().unstack("outcome", fill_value=0)
    order = comparisons.groupby(keys, sort=False).size().index
    return numbers.reindex(index=order, columns=list(OUTCOMES), fill_value=0)


def _best_answer(part: pd.DataFrame) -> pd.DataFrame:
    """Rows of the answer with the least mean loss, by seed."""
    best = part.groupby("answer", sort=False)["loss"].mean().idxmin()
    return part[part["answer"] == best].drop_duplicates("seed", keep="last").set_index("seed")


def _compare(ours: pd.DataFrame, theirs: pd.DataFrame) -> dict | None:
    seeds = ours.index.intersection(theirs.index)
    n = len(seeds)
    if not n:
        return None
    ours, theirs = ours.loc[seeds], theirs.loc[seeds]
    differences = theirs["loss"] - ours["loss"]
    over_seeds = differences.std(ddof=1) / np.sqrt(n) if n > 1 else 0.0
    of_bootstrap = np.sqrt((ours["se"].fillna(0) ** 2 + theirs["se"].fillna(0) ** 2).sum()) / n
    difference, se = differences.mean(), max(over_seeds, of_bootstrap)
    outcome = "tie" if abs(difference) <= se else "win" if difference > 0 else "loss"
    return {
        "answer": ours["answer"].iloc[0],
        "rival_answer": theirs["answer"].iloc[0],
        "value": ours["value"].mean(),
        "rival_value": theirs["value"].mean(),
        "difference": difference,
        "se": se,
        "n_seeds": n,
        "outcome": outcome,
    }
