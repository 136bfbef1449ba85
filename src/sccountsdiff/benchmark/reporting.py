"""A readable account of a comparison: Markdown, and one HTML page that needs no other file."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from sccountsdiff.benchmark import pl, provenance
from sccountsdiff.benchmark.markdown import escape
from sccountsdiff.benchmark.metrics import METRICS
from sccountsdiff.benchmark.runner import COST_COLUMNS, JOB_COLUMNS
from sccountsdiff.benchmark.tables import (
    Table,
    row_name,
    summarise,
    to_html,
    to_markdown,
    to_table,
)
from sccountsdiff.files import write_bytes, write_text

METRIC_GROUPS = ("pointwise", "distributional", "predictive", "calibration", "downstream", "denoising")
LEGEND = (
    "Best of all methods in bold, what is within one standard error of it in italics. ↓ lower, ↑ higher, →0 nearer to zero "
    "is better. (n) behind a method: mean of n draws. Settings of a method are shown where they are not the default ones."
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
    about: Mapping[str, str] | None = None,
) -> Path:
    """Write ``report.md``, with its figures beside it, and ``report.html``, with its figures inside.

    It opens with a picture of the first comparison and with what was run. Methods are grouped as naive, specialised and
    generative. For each metric the best of all methods is bold, and those are italic that are within one standard error of
    it; values that read the same are marked alike. Behind each mean, in parentheses, stands its standard error over seeds, or
    the bootstrap standard error if there is one seed.

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
    about
        What was run, beyond what the results say, in any words: cells and genes, the command. Default: what the command
        line has noted in the folder of the results.

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
    noted = output if isinstance(results, pd.DataFrame) else Path(results).parent
    results = results if isinstance(results, pd.DataFrame) else pd.read_csv(results)
    if results.empty:
        raise ValueError("results is empty: there is nothing to report.")
    output = Path(output)
    output.mkdir(parents=True, exist_ok=True)
    about = _facts(results) | (provenance.load(noted) if about is None else dict(about))
    markdown, page, n_figures = [f"# {escape(title)}\n"], [f"<h1>{html.escape(title)}</h1>"], 0
    for block in _blocks(results, axes, about):
        if isinstance(block, Table):
            markdown.append(to_markdown(block))
            page.append(to_html(block))
        elif isinstance(block, Figure):
            n_figures += 1
            image, name = png(block), f"figure {n_figures}"
            write_bytes(output / f"figure-{n_figures}.png", image)
            markdown.append(f"![{name}](figure-{n_figures}.png)\n")
            page.append(f'<img alt="{name}" src="data:image/png;base64,{base64.b64encode(image).decode()}">')
        elif isinstance(block, dict):
            markdown += [f"- {escape(name)}: {escape(text)}" for name, text in block.items()] + [""]
            pairs = [f"<dt>{html.escape(name)}</dt><dd>{html.escape(text)}</dd>" for name, text in block.items()]
            page.append(f"<dl>{''.join(pairs)}</dl>")
        else:
            level, text = block
            markdown.append(f"{'#' * level + ' ' if level else ''}{escape(text)}\n")
            tag = f"h{level}" if level else "p"
            page.append(f"<{tag}>{html.escape(text)}</{tag}>")
    head = f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
    body = "\n".join(page)
    pages = {"report.md": "\n".join(markdown)}
    pages["report.html"] = f"{head}<style>\n{STYLE}</style></head><body>\n{body}\n</body></html>\n"
    for name, text in pages.items():
        write_text(output / name, text)
    return output / "report.html"


def _facts(results: pd.DataFrame) -> dict[str, str]:
    """What the results themselves say about how they were made."""
    columns = {"Data sets": "dataset", "Missingness": "missingness", "Seeds": "seed", "Methods": "method"}
    compared = results[results["group"] != "reference"]
    facts = {name: ", ".join(map(str, dict.fromkeys(compared[column]))) for name, column in columns.items()}
    if set(COST_COLUMNS) <= set(results):
        jobs = compared.drop_duplicates(JOB_COLUMNS)
        # One fit serves all numbers of samples and all patterns.
        fits = jobs.drop_duplicates(["dataset", "protocol", "method", "seed"])["fit_seconds"].sum()
        facts["Time of the methods"] = f"{fits + jobs['impute_seconds'].sum():.0f} s"
    return facts | provenance.surroundings()


def _blocks(
    results: pd.DataFrame, axes: tuple[str, str], about: dict[str, str]
) -> Iterator[tuple[int, str] | dict[str, str] | Table | Figure]:
    """Headings and paragraphs (level, text), lists, tables and figures, in order: a picture first, then what was run."""
    summary = summarise(results)
    keys = ["dataset", "protocol", "missingness"]
    figures = {
        which: _figure(results, axes, dict(zip(keys, which, strict=True)))
        for which, _ in summary.groupby(keys, sort=False)
    }
    opening = next((figure for figure in figures.values() if figure is not None), None)
    if opening is not None:
        yield opening
    yield 2, "What was run"
    yield about
    n_seeds = results["seed"].nunique()
    seeds, errors = ("seeds", "over seeds") if n_seeds > 1 else ("seed", "by bootstrap over cells")
    yield 0, f"Mean over {n_seeds} {seeds} (standard error {errors}). {LEGEND}"
    for which, part in summary.groupby(keys, sort=False):
        dataset, protocol, pattern = which
        yield 2, f"{dataset}, {pattern}" + (", observed entries only" if protocol == "paper" else "")
        if (figure := figures[which]) is not None and figure is not opening:
            yield figure
        group_of = {m: METRICS[m].group if m in METRICS else "other" for m in dict.fromkeys(part["metric"])}
        for group in dict.fromkeys([*METRIC_GROUPS, *group_of.values()]):
            if metrics := [metric for metric in group_of if group_of[metric] == group]:
                yield 3, group.capitalize()
                yield to_table(part[part["metric"].isin(metrics)], metrics)
    yield 2, "Time and memory"
    yield 0, COSTS_LEGEND
    yield _costs_table(results)
    failures = results[results["error"].notna()]
    if len(failures):
        yield 2, "Failures"
        yield _failures_table(failures)


def _figure(results: pd.DataFrame, axes: tuple[str, str], which: dict[str, str]) -> Figure | None:
    """Pointwise against distributional quality or, without these metrics, all metrics with the best marked."""
    shown = results[(results[list(which)] == pd.Series(which)).all(axis=1)]
    metrics = list(dict.fromkeys(shown["metric"].dropna()))
    if set(axes) <= set(metrics):
        figure = Figure(figsize=(9.5, 5), layout="constrained")
        pl.quality(results, *axes, **which, ax=figure.subplots())
        return figure
    rows = shown.dropna(subset=["metric"]).drop_duplicates(["method", "n_samples"])
    figure = Figure(figsize=(2.5 + 1.2 * len(metrics), 1.2 + 0.36 * len(rows)), layout="constrained")
    pl.metric_table(results, **which, ax=figure.subplots())
    return figure


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
