"""The model class and its parts."""

from sccountsdiff.model.countsdiff_imputer import CountsDiffImputer

__all__ = ["CountsDiffImputer"]
