"""Tables of a comparison: means with standard errors, the best of each group marked; in Markdown and in HTML."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from sccountsdiff.benchmark.metrics import METRICS

ORDER_OF_GROUPS = ("reference", "naive", "specialised", "generative")
ARROWS = {"lower": "↓", "higher": "↑", "zero": "→0", "one": "→1"}


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
    return mean_and_se(results.dropna(subset=["metric", "value"]), keys).reset_index()


def mean_and_se(results: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Mean of the values that agree in ``keys``, its standard error, and their number.

    Parameters
    ----------
    results
        Table with the columns ``value`` and ``se``.
    keys
        Columns that tell groups apart.

    Returns
    -------
    Columns ``mean``, ``se`` (of one value its own, that of the bootstrap) and ``n_seeds``, indexed by the keys.

    Examples
    --------
    >>> mean_and_se(pd.DataFrame({"metric": "rmse", "value": [2.0, 1.0], "se": 0.1}), ["metric"]).loc["rmse"].tolist()
    [1.5, 0.5, 2.0]
    """
    groups = results.groupby(list(keys), sort=False)
    summary = groups.agg(mean=("value", "mean"), sd=("value", "std"), se=("se", "first"), n_seeds=("value", "count"))
    summary["se"] = np.where(summary["n_seeds"] > 1, summary.pop("sd") / np.sqrt(summary["n_seeds"]), summary["se"])
    return summary


def by_row(summary: pd.DataFrame, values: str) -> pd.DataFrame:
    """A column of a summary, methods by metrics.

    Parameters
    ----------
    summary
        Rows of :func:`summarise` of one data set, protocol and pattern.
    values
        The column, ``"mean"`` or ``"se"``.

    Returns
    -------
    A table with a row for each method and number of samples, see :func:`row_name`, and a column for each metric.

    Examples
    --------
    >>> summary = pd.DataFrame({"method": ["zero"], "n_samples": [1], "metric": ["rmse"], "mean": [2.5]})
    >>> by_row(summary, "mean").loc["zero"].tolist()
    [2.5]
    """
    rows = list(map(row_name, summary["method"], summary["n_samples"]))
    return summary.assign(row=rows).pivot(index="row", columns="metric", values=values)


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
    rows = pd.Index(map(row_name, summary["method"], summary["n_samples"]), name="row")
    groups = summary["group"].set_axis(rows)[~rows.duplicated()]
    order = {group: i for i, group in enumerate(ORDER_OF_GROUPS)}
    groups = groups.iloc[np.argsort(groups.map(lambda g: order.get(g, len(order))), kind="stable")]
    means, errors = (by_row(summary, values).reindex(groups.index) for values in ("mean", "se"))
    columns = [metric for metric in metrics if metric in means]
    texts = pd.DataFrame({m: list(map(_text, means[m], errors[m])) for m in columns}, index=groups.index)
    ranks = pd.DataFrame({m: _ranks_in_groups(means[m], groups, m) for m in columns}, index=groups.index)
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
    n_columns = len(table.texts.columns)
    lines = ["| " + " | ".join(_headings(table)) + " |", "|---" * (n_columns + 1) + "|"]
    for name, cells, group, is_first in _marked_rows(table, {1: "**{}**", 2: "*{}*"}):
        if is_first and group:
            lines.append(f"| *{group}* |" + " |" * n_columns)
        lines.append("| " + " | ".join(map(escape_markdown, (name, *cells))) + " |")
    return "\n".join([*lines, ""])


def escape_markdown(text: str) -> str:
    """Text of others, such as the message of an error, that is to be read in Markdown and not to become tags or columns.

    Examples
    --------
    >>> print(escape_markdown("a<b> & c"))
    a&lt;b> &amp; c
    """
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|").replace("[", "\\[").replace("`", "\\`")
    return " ".join(text.split())


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
    escaped = replace(table, texts=table.texts.map(html.escape))
    head = "".join(f"<th>{html.escape(text)}</th>" for text in _headings(table))
    lines = [f"<table><thead><tr>{head}</tr></thead><tbody>"]
    for name, cells, _, is_first in _marked_rows(escaped, {1: "<b>{}</b>", 2: "<i>{}</i>"}):
        rule = ' class="rule"' if is_first and len(lines) > 1 else ""
        lines.append(f"<tr{rule}>" + "".join(f"<td>{text}</td>" for text in (html.escape(name), *cells)) + "</tr>")
    return "\n".join([*lines, "</tbody></table>"])


def _ranks_in_groups(means: pd.Series, groups: pd.Series, metric: str) -> pd.Series:
    """Rank 1, 2, ... of what is shown, among the methods of a group; 0 where there is nothing to rank."""
    if metric not in METRICS:
        return pd.Series(0, index=means.index)
    loss = METRICS[metric].loss(means.map(lambda value: float(_number(value))))
    ranks = loss.groupby(groups).rank(method="dense")
    return ranks.where(groups != "reference").fillna(0).astype(int)


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
    first = table.texts.index.name
    return ["method" if first in (None, "row") else str(first), *(heading(str(column)) for column in table.texts)]


def _marked_rows(table: Table, marks: dict[int, str]) -> Iterator[tuple[str, list[str], str, bool]]:
    """Name of each row, its cells with the mark of their rank, its group, and whether it is the first of that group."""
    last = None
    for name, cells, ranks, group in zip(
        table.texts.index, table.texts.to_numpy(), table.ranks.to_numpy(), table.groups, strict=True
    ):
        marked = [marks.get(rank, "{}").format(cell) for cell, rank in zip(cells, ranks, strict=True)]
        yield str(name), marked, group, group != last
        last = group
