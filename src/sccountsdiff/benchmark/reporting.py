"""A readable account of a comparison: Markdown, and one HTML page that needs no other file."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from sccountsdiff.benchmark import pl
from sccountsdiff.benchmark.metrics import METRICS
from sccountsdiff.benchmark.runner import COST_COLUMNS, JOB_COLUMNS
from sccountsdiff.benchmark.tables import Table, escape_markdown, row_name, summarise, to_html, to_markdown, to_table
from sccountsdiff.files import replacing, write_text

METRIC_GROUPS = ("pointwise", "distributional", "predictive", "calibration", "downstream", "denoising")
LEGEND = (
    "Best in bold and second best in italics within each group. ↓ lower, ↑ higher, →0 nearer to zero is better. "
    "(n) behind a method: mean of n draws. Settings of a method are shown where they are not the default ones."
)
COSTS_LEGEND = (
    "Means over data sets, patterns and seeds. Fits shared by several methods count for each. Memory is the "
    "largest resident memory of the whole process, libraries included."
)
STYLE = files("sccountsdiff.benchmark").joinpath("report.css").read_text()


def report(
    results: pd.DataFrame | str | Path,
    output: str | Path,
    *,
    title: str = "Imputation benchmark",
    axes: tuple[str, str] = ("rmse", "energy_distance"),
) -> Path:
    """Write ``report.md``, with its figures beside it, and ``report.html``, with its figures inside.

    Methods are grouped as naive, specialised and generative. In each group and for each metric the best value is bold and
    the second best italic; values that read the same share their rank. Behind each mean, in parentheses, stands its
    standard error over seeds, or the bootstrap standard error if there is one seed.

    Parameters
    ----------
    results
        Table from :func:`~sccountsdiff.benchmark.run`, or the path of its ``results.csv``.
    output
        Folder to write to.
    title
        Heading.
    axes
        Metrics of the plot of pointwise against distributional quality.

    Returns
    -------
    Path of the HTML page.

    Examples
    --------
    >>> import sccountsdiff.benchmark as bm
    >>> from tempfile import TemporaryDirectory
    >>> table = bm.run(methods=["zero", "gene_mean"], metrics=["rmse", "energy_distance"], n_bootstrap=2, silent=True)
    >>> with TemporaryDirectory() as folder:
    ...     page = bm.report(table, folder)
    ...     sorted(path.name for path in page.parent.iterdir())
    ['figure-1.png', 'report.html', 'report.md']
    """
    results = results if isinstance(results, pd.DataFrame) else pd.read_csv(results)
    if results.empty:
        raise ValueError("results is empty: there is nothing to report.")
    output = Path(output)
    output.mkdir(parents=True, exist_ok=True)
    markdown, page, n_figures = [f"# {escape_markdown(title)}\n"], [f"<h1>{html.escape(title)}</h1>"], 0
    for block in _blocks(results, axes):
        if isinstance(block, Table):
            markdown.append(to_markdown(block))
            page.append(to_html(block))
        elif isinstance(block, Figure):
            n_figures += 1
            image, name = png(block), f"figure {n_figures}"
            with replacing(output / f"figure-{n_figures}.png") as beside:
                beside.write_bytes(image)
            markdown.append(f"![{name}](figure-{n_figures}.png)\n")
            page.append(f'<img alt="{name}" src="data:image/png;base64,{base64.b64encode(image).decode()}">')
        else:
            level, text = block
            markdown.append(f"{'#' * level + ' ' if level else ''}{escape_markdown(text)}\n")
            tag = f"h{level}" if level else "p"
            page.append(f"<{tag}>{html.escape(text)}</{tag}>")
    write_text(output / "report.md", "\n".join(markdown))
    head = f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
    body = "\n".join(page)
    target = output / "report.html"
    write_text(target, f"{head}<style>\n{STYLE}</style></head><body>\n{body}\n</body></html>\n")
    return target


def _blocks(results: pd.DataFrame, axes: tuple[str, str]) -> Iterator[tuple[int, str] | Table | Figure]:
    """Headings and paragraphs (level, text), tables and figures, in order."""
    summary = summarise(results)
    n_seeds = results["seed"].nunique()
    seeds, errors = ("seeds", "over seeds") if n_seeds > 1 else ("seed", "by bootstrap over cells")
    yield 0, f"Mean over {n_seeds} {seeds} (standard error {errors}). {LEGEND}"
    for (dataset, protocol, pattern), part in summary.groupby(["dataset", "protocol", "missingness"], sort=False):
        yield 2, f"{dataset}, {pattern}" + (", observed entries only" if protocol == "paper" else "")
        group_of = {m: METRICS[m].group if m in METRICS else "other" for m in dict.fromkeys(part["metric"])}
        for group in dict.fromkeys([*METRIC_GROUPS, *group_of.values()]):
            if metrics := [metric for metric in group_of if group_of[metric] == group]:
                yield 3, group.capitalize()
                yield to_table(part[part["metric"].isin(metrics)], metrics)
        if set(axes) <= set(part["metric"]):
            figure = Figure(figsize=(9.5, 5), layout="constrained")
            which = {"dataset": dataset, "protocol": protocol, "missingness": pattern}
            pl.quality(results, *axes, **which, ax=figure.subplots())
            yield figure
    yield 2, "Time and memory"
    yield 0, COSTS_LEGEND
    yield _costs_table(results)
    failures = results[results["error"].notna()]
    if len(failures):
        yield 2, "Failures"
        yield _failures_table(failures)


def _costs_table(results: pd.DataFrame) -> Table:
    finished = results[results["metric"].notna() & (results["group"] != "reference")].drop_duplicates(JOB_COLUMNS)
    means = finished.groupby(["group", "method", "n_samples"], sort=False)[COST_COLUMNS].mean()
    means.columns = ["fit [s]", "impute [s]", "peak memory [MB]"]
    rows = pd.Index([row_name(method, n) for _, method, n in means.index], name="method")
    texts = means.map(lambda value: f"{value:.3g}" if value < 100 else f"{value:.0f}").set_axis(rows)
    return _without_ranks(texts, means.index.get_level_values("group"))


def _failures_table(failures: pd.DataFrame) -> Table:
    columns = ["dataset", "missingness", "seed", "metric", "error"]
    texts = failures.set_index("method")[columns].drop_duplicates().fillna("").astype(str)
    texts["error"] = texts["error"].str.replace(r"\s+", " ", regex=True)
    return _without_ranks(texts, "")


def _without_ranks(texts: pd.DataFrame, groups: str | pd.Index) -> Table:
    return Table(texts, texts.map(lambda _: 0), pd.Series(groups, index=texts.index))


def png(figure: Figure) -> bytes:
    """A figure as the bytes of a PNG file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()
