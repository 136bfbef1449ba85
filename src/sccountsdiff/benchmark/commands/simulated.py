"""The ``sccountsdiff benchmark simulated`` command."""

from __future__ import annotations

import argparse
from pathlib import Path

from sccountsdiff.command import Outcome, whole


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``simulated``.

    Examples
    --------
    >>> parser = argparse.ArgumentParser()
    >>> add_options(parser)
    >>> parser.parse_args([]).seeds
    [0, 1, 2]
    """
    add = parser.add_argument
    add("--output", default="simulated", help="folder for tables and figures (default: simulated)")
    add("--seeds", type=whole(0), nargs="+", default=[0, 1, 2], metavar="N", help="repetitions (default: 0 1 2)")
    add("--quick", action="store_true", help="a few steps and samples, to see that it runs")
    parser.set_defaults(run=_run_simulated)


def _run_simulated(arguments: argparse.Namespace) -> Outcome:
    from sccountsdiff.benchmark.simulated.report import summarise
    from sccountsdiff.benchmark.simulated.study import run_study

    summary = summarise(run_study(arguments.output, seeds=arguments.seeds, quick=arguments.quick))
    where = f"Tables, figures and simulated.md are in {Path(arguments.output).resolve()}"
    values = {"command": "benchmark simulated", "output": arguments.output, "scores": summary.to_dict("records")}
    return Outcome(f"{summary.round(4).to_string(index=False)}\n\n{where}", values)
