"""Packages that only some parts of the benchmark need."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

EXTRAS = {
    "benchmark": ("igraph", "leidenalg", "sklearn", "torchmetrics", "xgboost"),
    "forest": ("ForestDiffusion", "catboost", "lightgbm", "xgboost"),
    "images": ("PIL", "diffusers", "sklearn", "torchmetrics", "yaml"),
}
"""What each extra of the package must bring, by the names under which it is imported."""


def optional_import(module: str, purpose: str, extra: str = "benchmark") -> ModuleType:
    """Import a module, or say which extra of the package brings it.

    Examples
    --------
    >>> optional_import("math", "counting").floor(2.5)
    2
    >>> optional_import("no_such_module", "counting")
    Traceback (most recent call last):
    ...
    ImportError: counting needs the package 'no_such_module'; install it with pip install "sccountsdiff[benchmark]".
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        raise ImportError(
            f'{purpose} needs the package {package!r}; install it with pip install "sccountsdiff[{extra}]".'
        ) from error


def missing_packages(extra: str) -> list[str]:
    """Packages of an extra that are not installed; an unknown name stands for a package itself.

    Examples
    --------
    >>> missing_packages("no_such_module"), missing_packages("math")
    (['no_such_module'], [])
    """
    return [module for module in EXTRAS.get(extra, (extra,)) if find_spec(module) is None]
