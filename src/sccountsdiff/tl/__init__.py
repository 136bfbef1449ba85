"""Tools in the manner of scanpy: they train a model and write what it says into the AnnData, in one call."""

from sccountsdiff.tl.one_call import denoise, impute

__all__ = ["denoise", "impute"]
