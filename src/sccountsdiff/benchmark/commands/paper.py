"""The ``sccountsdiff benchmark paper`` command."""

from __future__ import annotations

import argparse
from importlib.resources import files
from pathlib import Path

from sccountsdiff.benchmark.cli import add_models, add_run_options, comparison_outcome
from sccountsdiff.command import Outcome
from sccountsdiff.files import write_table

PACKAGE = "sccountsdiff.benchmark"
PASSED_ON = ("scale", "rows", "tune", "allow_slow", "weights", "gene_column", "embedder", "seeds", "retry_failed")
"""What recipes are given as it is."""


TABLES = tuple(sorted(file.name.removesuffix(".csv") for file in files(PACKAGE).joinpath("paper", "tables").iterdir()))
"""Names of the tables, each of which the package has a copy of."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``paper``.

    Examples
    --------
    >>> parser = argparse.ArgumentParser()
    >>> add_options(parser)
    >>> parser.parse_args(["fetus_mcar", "--data", "fetus.h5ad", "--scale", "0.05"]).scale
    0.05
    """
    parser.set_defaults(run=_make_table)
    add = parser.add_argument
    add("table", choices=TABLES, metavar="TABLE", help=f"one of {', '.join(TABLES)}")
    add("--data", metavar="FILE", help="the atlas, an .h5ad file")
    add("--dry-run", action="store_true", help="check data, weights and packages, say what each row would take, stop")
    add("--scale", type=float, default=1.0, help="share of cells, genes and training steps (default: 1, all)")
    add("--rows", nargs="+", metavar="ROW", help="rows to make, as in the paper (default: all)")
    no_tuning = "leave the settings of ReMDM and CountsDiff as they are (default: choose them on validation cells)"
    add("--no-tuning", dest="tune", action="store_false", help=no_tuning)
    add("--allow-slow", action="store_true", help="start Forest-Diffusion even if it takes more than an hour")
    column = "column of obs with a covariate, nothing behind = to do without; may be repeated"
    add("--column", action="append", default=[], metavar="COVARIATE=COLUMN", help=column)
    add("--gene-column", help="column of var with the names of genes (default: its index)")
    add_run_options(parser, output=None, metrics="the paper's")
    add_models(parser)


def _make_table(arguments: argparse.Namespace) -> Outcome:
    columns = _columns(arguments.column)

    from sccountsdiff.benchmark.paper.published import compare
    from sccountsdiff.benchmark.paper.recipes import RECIPES

    if arguments.dry_run:
        recipe = RECIPES[arguments.table]
        asked = {name: getattr(arguments, name) for name in ("gene_column", "rows", "weights")}
        checked = recipe.check(arguments.data, columns=columns, **asked)
        estimates = recipe.estimates(scale=arguments.scale, rows=arguments.rows, tune=arguments.tune)
        values = {
            "command": "benchmark paper",
            "estimates": estimates.reset_index().to_dict("records"),
            "found": checked,
        }
        found = [f"{what}: {text}" for what, text in checked.items()]
        return Outcome("\n".join([*found, estimates.round(2).to_string(na_rep="-")]), values)
    if arguments.data is None:
        raise ValueError("--data is needed: the file of the atlas.")
    output = Path(arguments.output or arguments.table)
    options = {name: getattr(arguments, name) for name in PASSED_ON}
    if arguments.metrics:
        options["metrics"] = arguments.metrics
    table = RECIPES[arguments.table](arguments.data, output, columns=columns, **options)
    comparison = compare(table, arguments.table)
    write_table(output / "comparison.csv", comparison, index=True)
    parts = []
    if len(comparison.columns):
        ours = [column for column in comparison if column[1] == "ours"]
        parts.append(comparison.dropna(how="all", subset=ours).round(4).to_string())
    return comparison_outcome("paper", table, parts, f"Tables are in {output.resolve()}", output)


def _columns(pairs: list[str]) -> dict[str, str | None]:
    if wrong := [pair for pair in pairs if "=" not in pair]:
        raise ValueError(f"--column must be COVARIATE=COLUMN, found {wrong}.")
    return {covariate: column or None for covariate, _, column in (pair.partition("=") for pair in pairs)}
