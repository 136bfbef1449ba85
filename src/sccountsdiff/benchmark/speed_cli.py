"""The ``sccountsdiff benchmark speed`` command."""

from __future__ import annotations

import argparse
from pathlib import Path

from sccountsdiff.benchmark.speed import SUBJECTS, TASKS, ratios, run_speed


def add_parser(kinds: argparse._SubParsersAction) -> None:
    """Add ``speed`` to the kinds of benchmarks.

    Examples
    --------
    >>> parser = argparse.ArgumentParser()
    >>> add_parser(parser.add_subparsers())
    >>> parser.parse_args(["speed", "--genes", "500"]).n_genes
    500
    """
    speed = kinds.add_parser("speed", help="time of training and imputing, method by method in turns")
    add = speed.add_argument
    add("--genes", dest="n_genes", metavar="N", type=int, default=2000, help="(default: 2000)")
    add("--cells", dest="n_cells", metavar="N", type=int, default=1024, help="(default: 1024)")
    add("--batch-size", type=int, default=128, help="cells in a minibatch (default: 128)")
    add("--methods", nargs="+", metavar="METHOD", help=f"some of {', '.join(SUBJECTS)} (default: all)")
    add("--tasks", nargs="+", metavar="TASK", default=TASKS, help=f"some of {', '.join(TASKS)} (default: all)")
    add("--repeats", type=int, default=5, help="(default: 5)")
    add("--max-epochs", type=int, default=20, help="epochs of the task training (default: 20)")
    add("--seed", type=int, default=0)
    add("--output", default="speed", help="folder for tables and figure (default: speed)")
    speed.set_defaults(run=_run_speed)


def _run_speed(arguments: argparse.Namespace) -> None:
    options = {name: value for name, value in vars(arguments).items() if name not in ("run", "output")}
    table = run_speed(arguments.output, **options)
    print(ratios(table).round(2).to_string(index=False))
    print(f"\nTables and figure are in {Path(arguments.output).resolve()}")
