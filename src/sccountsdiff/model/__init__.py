"""The model class and its parts."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sccountsdiff.model.countsdiff_imputer import CountsDiffImputer

__all__ = ["CountsDiffImputer"]


# The command line reads the settings of sampling from here, and must not wait for torch and scvi-tools.
def __getattr__(name: str) -> Any:
    if name == "CountsDiffImputer":
        from sccountsdiff.model.countsdiff_imputer import CountsDiffImputer

        return CountsDiffImputer
    raise AttributeError(f"module 'sccountsdiff.model' has no attribute {name!r}")
