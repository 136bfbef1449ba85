"""The ``sccountsdiff benchmark paper`` command."""

from __future__ import annotations

import argparse
from pathlib import Path

from sccountsdiff.benchmark.paper.published import compare
from sccountsdiff.benchmark.paper.recipes import RECIPES


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
    paper.add_argument("table", choices=tuple(RECIPES), metavar="TABLE", help=f"one of {', '.join(RECIPES)}")
    paper.add_argument("--data", required=True, metavar="FILE", help="the atlas, an .h5ad file")
    paper.add_argument(
        "--scale", type=float, default=1.0, help="share of cells, genes and training steps (default: 1, all)"
    )
    paper.add_argument("--rows", nargs="+", metavar="ROW", help="rows to make, as in the paper (default: all)")
    paper.add_argument("--metrics", nargs="+", metavar="METRIC", help="columns to make (default: the paper's)")
    paper.add_argument("--weights", metavar="FOLDER", help="released weights of scGPT")
    paper.add_argument("--embedder", metavar="FOLDER", help="saved scvi-tools model for scFID (default: train one)")
    paper.add_argument(
        "--column",
        action="append",
        default=[],
        metavar="COVARIATE=COLUMN",
        help="column of obs with a covariate, nothing behind = to do without; may be repeated",
    )
    paper.add_argument("--gene-column", help="column of var with the names of genes (default: its index)")
    paper.add_argument("--seeds", type=int, nargs="+", default=[0])
    paper.add_argument("--retry-failed", action="store_true", help="try again what failed in an earlier run")
    paper.add_argument("--output", help="folder for results; continues what is there (default: name of the table)")
    paper.set_defaults(run=_make_table)


def _make_table(arguments: argparse.Namespace) -> None:
    output = Path(arguments.output or arguments.table)
    table = RECIPES[arguments.table](
        arguments.data,
        output,
        scale=arguments.scale,
        rows=arguments.rows,
        weights=arguments.weights,
        columns=_columns(arguments.column),
        gene_column=arguments.gene_column,
        embedder=arguments.embedder,
        seeds=arguments.seeds,
        retry_failed=arguments.retry_failed,
        **({"metrics": arguments.metrics} if arguments.metrics else {}),
    )
    comparison = compare(table, arguments.table)
    comparison.to_csv(output / "comparison.csv")
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
