"""Tables of a comparison: means with standard errors, the best of each group marked; in Markdown and in HTML."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from sccountsdiff.benchmark.metrics import METRICS

GROUPS = ("reference", "naive", "specialised", "generative")
ARROWS = {"lower": "↓", "higher": "↑", "zero": "→0"}


@dataclass(frozen=True)
class Table:
    """Formatted figures with their rank among the methods of the same group: 1 is best, 2 second best.

    Parameters
    ----------
    texts
        Methods by metrics, as text.
    ranks
        The same shape: 1 for the best, 2 for the second best; 0 where nothing is ranked.
    groups
        Group of each method.

    Examples
    --------
    >>> texts, ranks = pd.DataFrame({"rmse": ["1.5"]}, index=["zero"]), pd.DataFrame({"rmse": [1]}, index=["zero"])
    >>> Table(texts, ranks, groups=pd.Series({"zero": "naive"})).texts.loc["zero", "rmse"]
    '1.5'
    """

    texts: pd.DataFrame
    ranks: pd.DataFrame
    groups: pd.Series


def summarise(results: pd.DataFrame) -> pd.DataFrame:
    """Mean over seeds and its standard error, for each data set, protocol, pattern, method, number of samples and metric.

    Parameters
    ----------
    results
        Table from :func:`~sccountsdiff.benchmark.run`.

    Returns
    -------
    One row each, with columns ``mean``, ``se`` (over seeds; for one seed that of the bootstrap) and ``n_seeds``.

    Examples
    --------
    >>> import sccountsdiff.benchmark as bm
    >>> table = bm.run(methods="zero", metrics=["rmse"], seeds=(0, 1), n_bootstrap=0, silent=True)
    >>> summarise(table)["n_seeds"].tolist()
    [2]
    """
    keys = ["dataset", "protocol", "missingness", "group", "method", "n_samples", "metric"]
    table = results.dropna(subset=["metric", "value"])
    summary = (
        table.groupby(keys, sort=False)
        .agg(mean=("value", "mean"), sd=("value", "std"), se=("se", "first"), n_seeds=("value", "size"))
        .reset_index()
    )
    summary["se"] = np.where(summary["n_seeds"] > 1, summary.pop("sd") / np.sqrt(summary["n_seeds"]), summary["se"])
    return summary


def to_table(summary: pd.DataFrame, metrics: Sequence[str]) -> Table:
    """Methods by metrics, for one data set and pattern.

    Parameters
    ----------
    summary
        Rows of :func:`summarise` of one data set, protocol and pattern.
    metrics
        Columns, in order.

    Returns
    -------
    The table, methods in the order of their groups.

    Examples
    --------
    >>> import sccountsdiff.benchmark as bm
    >>> results = bm.run(methods=["zero", "gene_mean"], metrics=["rmse"], n_bootstrap=0, silent=True)
    >>> to_table(summarise(results), ["rmse"]).ranks["rmse"].to_dict()
    {'zero': 2, 'gene_mean': 1}
    """
    summary = summary.assign(row=[row_name(m, n) for m, n in zip(summary["method"], summary["n_samples"], strict=True)])
    order = {group: i for i, group in enumerate(GROUPS)}
    groups = summary.drop_duplicates("row").set_index("row")["group"]
    groups = groups.iloc[np.argsort(groups.map(lambda g: order.get(g, len(order))), kind="stable")]
    means, errors = (
        summary.pivot(index="row", columns="metric", values=v).reindex(groups.index) for v in ("mean", "se")
    )
    columns = [metric for metric in metrics if metric in means]
    texts = pd.DataFrame(
        {m: [_text(value, se) for value, se in zip(means[m], errors[m], strict=True)] for m in columns},
        index=groups.index,
    )
    ranks = pd.DataFrame({m: _ranks(means[m], groups, m) for m in columns}, index=groups.index)
    return Table(texts, ranks, groups)


def to_markdown(table: Table) -> str:
    """A table in Markdown: best in bold, second best in italics, groups apart.

    Parameters
    ----------
    table
        From :func:`to_table`.

    Returns
    -------
    The lines of the table, as one text.

    Examples
    --------
    >>> texts, ranks = pd.DataFrame({"rmse": ["1.5"]}, index=["zero"]), pd.DataFrame({"rmse": [1]}, index=["zero"])
    >>> print(to_markdown(Table(texts, ranks, pd.Series({"zero": "naive"}))))
    | method | rmse ↓ |
    |---|---|
    | *naive* | |
    | zero | **1.5** |
    <BLANKLINE>
    """
    marks = {1: "**{}**", 2: "*{}*"}
    lines = [
        "| " + " | ".join([_index_name(table), *_headings(table)]) + " |",
        "|---" * (len(table.texts.columns) + 1) + "|",
    ]
    last = None
    for name, cells, ranks, group in _rows(table):
        if group != last and group:
            lines.append(f"| *{group}* |" + " |" * len(cells))
        last = group
        marked = [marks.get(rank, "{}").format(cell) for cell, rank in zip(cells, ranks, strict=True)]
        lines.append("| " + " | ".join(text.replace("|", "\\|") for text in (str(name), *marked)) + " |")
    return "\n".join([*lines, ""])


def to_html(table: Table) -> str:
    """A table in HTML: best in bold, second best in italics, a rule between groups.

    Parameters
    ----------
    table
        From :func:`to_table`.

    Returns
    -------
    The element ``<table>``, as text.

    Examples
    --------
    >>> texts, ranks = pd.DataFrame({"rmse": ["1.5"]}, index=["zero"]), pd.DataFrame({"rmse": [2]}, index=["zero"])
    >>> "<td><i>1.5</i></td>" in to_html(Table(texts, ranks, pd.Series({"zero": "naive"})))
    True
    """
    marks = {1: "<b>{}</b>", 2: "<i>{}</i>"}
    head = "".join(f"<th>{html.escape(text)}</th>" for text in (_index_name(table), *_headings(table)))
    lines, last = [f"<table><thead><tr>{head}</tr></thead><tbody>"], None
    for name, cells, ranks, group in _rows(table):
        rule = ' class="rule"' if last is not None and group != last else ""
        last = group
        marked = [marks.get(r, "{}").format(html.escape(c)) for c, r in zip(cells, ranks, strict=True)]
        lines.append(
            f"<tr{rule}>" + "".join(f"<td>{text}</td>" for text in (html.escape(str(name)), *marked)) + "</tr>"
        )
    return "\n".join([*lines, "</tbody></table>"])


def _ranks(means: pd.Series, groups: pd.Series, metric: str) -> pd.Series:
    """Rank 1, 2, ... of what is shown, among the methods of a group; 0 where there is nothing to rank."""
    if metric not in METRICS:
        return pd.Series(0, index=means.index)
    shown = means.map(lambda value: float(_number(value)))
    loss = {"lower": shown, "higher": -shown, "zero": shown.abs()}[METRICS[metric].direction]
    ranks = loss.groupby(groups.reindex(loss.index)).rank(method="dense")
    return ranks.where(groups.reindex(loss.index) != "reference").fillna(0).astype(int)


def _number(value: float) -> str:
    return f"{value:.3g}"


def _text(value: float, se: float) -> str:
    if np.isnan(value):
        return "–"
    return _number(value) + ("" if np.isnan(se) else f" ({se:.1g})")


def row_name(method: str, n_samples: int) -> str:
    """Name of a method in a table, with the number of its draws if there are several.

    Parameters
    ----------
    method
        Name of the method.
    n_samples
        Number of its draws.

    Returns
    -------
    The name of its row.

    Examples
    --------
    >>> row_name("countsdiff", 5)
    'countsdiff (5)'
    """
    return method if n_samples == 1 else f"{method} ({n_samples})"


def heading(metric: str) -> str:
    """Name of a metric with the direction in which it gets better.

    Parameters
    ----------
    metric
        Name of the metric.

    Returns
    -------
    The name with an arrow; the name alone if the metric is not registered.

    Examples
    --------
    >>> heading("rmse")
    'rmse ↓'
    """
    return f"{metric} {ARROWS[METRICS[metric].direction]}" if metric in METRICS else metric


def _headings(table: Table) -> list[str]:
    return [heading(str(column)) for column in table.texts]


def _index_name(table: Table) -> str:
    return str(table.texts.index.name) if table.texts.index.name not in (None, "row") else "method"


def _rows(table: Table) -> Iterator[tuple[str, list[str], list[int], str]]:
    for i, name in enumerate(table.texts.index):
        yield name, list(table.texts.iloc[i]), list(table.ranks.iloc[i]), table.groups.iloc[i]
