"""The model class and its parts."""

from sccountsdiff.model.imputer import CountsDiffImputer

__all__ = ["CountsDiffImputer"]
