"""Benchmark of imputation methods: missingness, metrics and methods, each a small registered thing."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sccountsdiff.benchmark import (
        baselines,
        datasets,
        downstream,
        images,
        metrics,
        missingness,
        paper,
        pl,
        preprocessing,
        simulated,
        sweeps,
        tables,
    )
    from sccountsdiff.benchmark.baselines import list_methods
    from sccountsdiff.benchmark.metrics import list_metrics
    from sccountsdiff.benchmark.reporting import report
    from sccountsdiff.benchmark.runner import run

_MODULE_OF = {"list_methods": "baselines", "list_metrics": "metrics", "report": "reporting", "run": "runner"}

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
    "pl",
    "preprocessing",
    "report",
    "run",
    "simulated",
    "sweeps",
    "tables",
]


# Some parts take seconds to import, and some need packages that others do without: each is loaded when it is asked for.
def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'sccountsdiff.benchmark' has no attribute {name!r}")
    module = import_module(f"sccountsdiff.benchmark.{_MODULE_OF.get(name, name)}")
    return getattr(module, name) if name in _MODULE_OF else module


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
