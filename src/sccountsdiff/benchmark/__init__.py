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
        outcomes,
        paper,
        pl,
        preprocessing,
        simulated,
        speed,
        sweeps,
        tables,
        tuning,
    )
    from sccountsdiff.benchmark.baselines import list_methods
    from sccountsdiff.benchmark.metrics import list_metrics
    from sccountsdiff.benchmark.reporting import report
    from sccountsdiff.benchmark.runner import run
    from sccountsdiff.benchmark.tuning import tune

_MODULES = ["baselines", "datasets", "downstream", "images", "metrics", "missingness"]
_MODULES += ["outcomes", "paper", "pl", "preprocessing", "simulated", "speed", "sweeps", "tables", "tuning"]
_MODULE_OF = {"list_methods": "baselines", "list_metrics": "metrics", "report": "reporting", "run": "runner"}
_MODULE_OF["tune"] = "tuning"

__all__ = [*_MODULES, *_MODULE_OF]


# Some parts take seconds to import, and some need packages that others do without: each is loaded when it is asked for.
def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(import_module(f"sccountsdiff.benchmark.{_MODULE_OF[name]}"), name)
    if name in _MODULES:
        return import_module(f"sccountsdiff.benchmark.{name}")
    raise AttributeError(f"module 'sccountsdiff.benchmark' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
