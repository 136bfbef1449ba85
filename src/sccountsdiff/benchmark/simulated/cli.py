"""The ``sccountsdiff benchmark simulated`` command."""

from __future__ import annotations

import argparse
from pathlib import Path

from sccountsdiff.benchmark.simulated.report import summarise
from sccountsdiff.benchmark.simulated.study import run_study


def add_parser(kinds: argparse._SubParsersAction) -> None:
    """Add ``simulated`` to the kinds of benchmarks.

    Examples
    --------
    >>> parser = argparse.ArgumentParser()
    >>> add_parser(parser.add_subparsers())
    >>> parser.parse_args(["simulated"]).seeds
    [0, 1, 2]
    """
    about = "Gaussian, masked and count diffusion on simulated counts whose law is known"
    simulated = kinds.add_parser("simulated", help=about)
    simulated.add_argument("--output", default="simulated", help="folder for tables and figures (default: simulated)")
    simulated.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="repetitions (default: 0 1 2)")
    simulated.add_argument("--quick", action="store_true", help="a few steps and samples, to see that it runs")
    simulated.set_defaults(run=_run_simulated)


def _run_simulated(arguments: argparse.Namespace) -> None:
    study = run_study(arguments.output, seeds=arguments.seeds, quick=arguments.quick)
    print(summarise(study).round(4).to_string(index=False))
    print(f"\nTables, figures and simulated.md are in {Path(arguments.output).resolve()}")
