"""The ``sccountsdiff benchmark speed`` command."""

from __future__ import annotations

import argparse
from pathlib import Path

from sccountsdiff.command import Outcome, whole


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``speed``.

    Examples
    --------
    >>> parser = argparse.ArgumentParser()
    >>> add_options(parser)
    >>> parser.parse_args(["--genes", "500"]).n_genes
    500
    """
    add = parser.add_argument
    add("--dataset", metavar="FILE", help="file with counts (default: simulated ones)")
    add("--genes", dest="n_genes", type=whole(1), default=2000, metavar="N", help="(default: 2000)")
    add("--cells", dest="n_cells", type=whole(1), default=1024, metavar="N", help="(default: 1024)")
    add("--batch-size", type=whole(1), default=128, metavar="N", help="cells in a minibatch (default: 128)")
    add("--methods", nargs="+", metavar="METHOD", help="methods to compare (default: all)")
    add("--tasks", nargs="+", metavar="TASK", help="what to time (default: all)")
    add("--repeats", type=whole(1), default=5, metavar="N", help="(default: 5)")
    add(
        "--max-epochs",
        type=whole(1),
        metavar="N",
        help="epochs of the task training (default: 20 of simulated counts, of a file what each method takes by default)",
    )
    add("--seed", type=whole(0), default=0, metavar="N", help="(default: 0)")
    add("--output", default="speed", help="folder for tables and figure (default: speed)")
    parser.set_defaults(run=_run_speed)


def _run_speed(arguments: argparse.Namespace) -> Outcome:
    from sccountsdiff.benchmark import speed

    names = ("dataset", "n_genes", "n_cells", "batch_size", "methods", "tasks", "repeats", "max_epochs", "seed")
    options = {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}
    found = speed.ratios(speed.run_speed(arguments.output, **options))
    values = {"command": "benchmark speed", "output": arguments.output, "ratios": found.to_dict("records")}
    where = f"Tables and figure are in {Path(arguments.output).resolve()}"
    return Outcome(f"{found.round(2).to_string(index=False)}\n\n{where}", values)
