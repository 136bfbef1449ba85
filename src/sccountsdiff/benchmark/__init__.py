"""Benchmark of imputation methods: missingness, metrics and methods, each a small registered thing."""

from sccountsdiff.benchmark import (
    baselines,
    datasets,
    downstream,
    images,
    metrics,
    missingness,
    paper,
    preprocessing,
    simulated,
    sweeps,
    tables,
)
from sccountsdiff.benchmark.baselines import list_methods
from sccountsdiff.benchmark.metrics import list_metrics
from sccountsdiff.benchmark.report import report
from sccountsdiff.benchmark.run import run

__all__ = [
    "baselines",
    "datasets",
    "downstream",
    "images",
    "list_methods",
    "list_metrics",
    "metrics",
    "missingness",
    "paper",
    "preprocessing",
    "report",
    "run",
    "simulated",
    "sweeps",
    "tables",
]
