"""Imputation methods to compare with, behind one interface: ``fit(train)`` and ``impute(test, sites)``."""

from sccountsdiff.benchmark.baselines.base import (
    BASELINES,
    Baseline,
    get_baseline,
    list_methods,
    register_baseline,
)
from sccountsdiff.benchmark.baselines.countsdiff import Blackout, CountsDiff, CountsDiffMean, CountsDiffPaper
from sccountsdiff.benchmark.baselines.knn import KNNMean
from sccountsdiff.benchmark.baselines.naive import (
    ConditionalMean,
    GeneMean,
    ScaledConditionalMean,
    ScaledGeneMean,
    Zero,
)
from sccountsdiff.benchmark.baselines.scvi import SCVIBaseline, SCVIRefined

__all__ = [
    "BASELINES",
    "Baseline",
    "Blackout",
    "ConditionalMean",
    "CountsDiff",
    "CountsDiffMean",
    "CountsDiffPaper",
    "GeneMean",
    "KNNMean",
    "SCVIBaseline",
    "SCVIRefined",
    "ScaledConditionalMean",
    "ScaledGeneMean",
    "Zero",
    "get_baseline",
    "list_methods",
    "register_baseline",
]
