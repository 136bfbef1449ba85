"""sccountsdiff: diffusion on the natural numbers for single-cell counts."""

from importlib.metadata import version

from sccountsdiff import datasets, diffusion, nn, pl
from sccountsdiff.model import CountsDiffImputer

__all__ = ["CountsDiffImputer", "datasets", "diffusion", "nn", "pl"]

__version__ = version("sccountsdiff")
