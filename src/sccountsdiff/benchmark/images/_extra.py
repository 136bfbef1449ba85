"""The packages that images need beyond the core."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from sccountsdiff.benchmark._optional import missing_packages


def extra(module: str) -> ModuleType:
    """Import a module of the ``images`` extra, or say how to install it.

    Examples
    --------
    >>> extra("math").floor(2.5)
    2
    >>> extra("no_such_module")
    Traceback (most recent call last):
    ...
    ImportError: Images need no_such_module; install it with pip install "sccountsdiff[images]".
    """
    package = module.partition(".")[0]
    if missing_packages(package):
        raise ImportError(f'Images need {package}; install it with pip install "sccountsdiff[images]".')
    return import_module(module)
