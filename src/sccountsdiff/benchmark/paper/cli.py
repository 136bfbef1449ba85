"""The ``sccountsdiff benchmark paper`` command."""

from __future__ import annotations

import argparse
from pathlib import Path

from sccountsdiff.benchmark.cli import add_models, add_run_options
from sccountsdiff.benchmark.paper.published import compare
from sccountsdiff.benchmark.paper.recipes import RECIPES
from sccountsdiff.files import write_table

PASSED_ON = ("scale", "rows", "weights", "gene_column", "embedder", "seeds", "retry_failed")
"""What recipes are given as it is."""


def add_parser(kinds: argparse._SubParsersAction) -> None:
    """Add ``paper`` to the kinds of benchmarks.

    Examples
    --------
    >>> parser = argparse.ArgumentParser()
    >>> add_parser(parser.add_subparsers())
    >>> parser.parse_args(["paper", "fetus_mcar", "--data", "fetus.h5ad", "--scale", "0.05"]).scale
    0.05
    """
    paper = kinds.add_parser("paper", help="make a table of the paper, at full size or scaled down")
    paper.set_defaults(run=_make_table)
    add = paper.add_argument
    add("table", choices=tuple(RECIPES), metavar="TABLE", help=f"one of {', '.join(RECIPES)}")
    add("--data", required=True, metavar="FILE", help="the atlas, an .h5ad file")
    add("--scale", type=float, default=1.0, help="share of cells, genes and training steps (default: 1, all)")
    add("--rows", nargs="+", metavar="ROW", help="rows to make, as in the paper (default: all)")
    column = "column of obs with a covariate, nothing behind = to do without; may be repeated"
    add("--column", action="append", default=[], metavar="COVARIATE=COLUMN", help=column)
    add("--gene-column", help="column of var with the names of genes (default: its index)")
    add_run_options(paper, output=None, metrics="the paper's")
    add_models(paper)


def _make_table(arguments: argparse.Namespace) -> None:
    output = Path(arguments.output or arguments.table)
    options = {name: getattr(arguments, name) for name in PASSED_ON}
    if arguments.metrics:
        options["metrics"] = arguments.metrics
    recipe = RECIPES[arguments.table]
    table = recipe(arguments.data, output, columns=_columns(arguments.column), **options)
    comparison = compare(table, arguments.table)
    write_table(output / "comparison.csv", comparison, index=True)
    if len(comparison.columns):
        print(comparison.dropna(how="all", subset=[c for c in comparison if c[1] == "ours"]).round(4).to_string())
    failures = table[table["error"].notna() & table["metric"].isna()]
    for method, error in failures.drop_duplicates("method")[["method", "error"]].itertuples(index=False):
        print(f"{method.partition('(')[0]} failed. {error}")
    print(f"\nTables are in {output.resolve()}")


def _columns(pairs: list[str]) -> dict[str, str | None]:
    if wrong := [pair for pair in pairs if "=" not in pair]:
        raise ValueError(f"--column must be COVARIATE=COLUMN, found {wrong}.")
    return {covariate: column or None for covariate, _, column in (pair.partition("=") for pair in pairs)}
