"""sccountsdiff: diffusion on the natural numbers for single-cell counts."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from sccountsdiff.log import set_up_logging

if TYPE_CHECKING:
    from sccountsdiff import benchmark, datasets, diffusion, io, nn, pl, tl
    from sccountsdiff.model import CountsDiffImputer

__all__ = ["CountsDiffImputer", "benchmark", "datasets", "diffusion", "io", "nn", "pl", "tl"]

__version__ = version("sccountsdiff")

set_up_logging()


# PyTorch and scvi-tools take seconds to import: parts are loaded when they are first asked for.
def __getattr__(name: str) -> Any:
    if name == "CountsDiffImputer":
        return import_module("sccountsdiff.model").CountsDiffImputer
    if name in __all__:
        return import_module(f"sccountsdiff.{name}")
    raise AttributeError(f"module 'sccountsdiff' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
