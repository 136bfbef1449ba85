"""Imputation methods to compare with, behind one interface: ``fit(train)`` and ``impute(test, sites)``."""

from sccountsdiff.benchmark.baselines.alra import ALRA
from sccountsdiff.benchmark.baselines.base import BASELINES, Baseline, get_baseline, list_methods, register_baseline
from sccountsdiff.benchmark.baselines.cells import Cells
from sccountsdiff.benchmark.baselines.countsdiff import (
    Blackout,
    CountsDiff,
    CountsDiffLogMean,
    CountsDiffMean,
    CountsDiffPaper,
)
from sccountsdiff.benchmark.baselines.dca import DCA
from sccountsdiff.benchmark.baselines.forest_diffusion import ForestDiffusion
from sccountsdiff.benchmark.baselines.gain import GAIN
from sccountsdiff.benchmark.baselines.gaussian_regression import GaussianRegression, GaussianRegressionDraw
from sccountsdiff.benchmark.baselines.hivae import HIVAE, HIVAEGaussian, HIVAEPoisson
from sccountsdiff.benchmark.baselines.knn import KNNMean
from sccountsdiff.benchmark.baselines.knn_smoothing import KNNSmoothing
from sccountsdiff.benchmark.baselines.magic import MAGIC
from sccountsdiff.benchmark.baselines.naive import (
    ConditionalMean,
    GeneMean,
    ScaledConditionalMean,
    ScaledGeneMean,
    Zero,
)
from sccountsdiff.benchmark.baselines.remdm import ReMDM, ReMDMMean
from sccountsdiff.benchmark.baselines.scgpt import SCGPT, SCGPTPretrained
from sccountsdiff.benchmark.baselines.scidpms import ScIDPMs
from sccountsdiff.benchmark.baselines.scvi import SCVIBaseline, SCVIDraw, SCVIRefined
from sccountsdiff.benchmark.baselines.sklearn_imputers import SklearnIterative, SklearnKNN
from sccountsdiff.benchmark.baselines.xtrimogene import XTrimoGene

__all__ = [
    "ALRA",
    "BASELINES",
    "DCA",
    "GAIN",
    "MAGIC",
    "SCGPT",
    "Baseline",
    "Blackout",
    "Cells",
    "ConditionalMean",
    "CountsDiff",
    "CountsDiffLogMean",
    "CountsDiffMean",
    "CountsDiffPaper",
    "ForestDiffusion",
    "GaussianRegression",
    "GaussianRegressionDraw",
    "GeneMean",
    "HIVAE",
    "HIVAEGaussian",
    "HIVAEPoisson",
    "KNNMean",
    "KNNSmoothing",
    "ReMDM",
    "ReMDMMean",
    "SCGPTPretrained",
    "SCVIBaseline",
    "SCVIDraw",
    "SCVIRefined",
    "ScIDPMs",
    "ScaledConditionalMean",
    "ScaledGeneMean",
    "SklearnIterative",
    "SklearnKNN",
    "XTrimoGene",
    "Zero",
    "get_baseline",
    "list_methods",
    "register_baseline",
]
