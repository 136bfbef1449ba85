"""Simulated counts: Gaussian, masked and count diffusion on negative binomials whose law is known (App. D.1)."""

from sccountsdiff.benchmark.simulated.countsdiff import CountsDiffusion
from sccountsdiff.benchmark.simulated.data import NegativeBinomialToy
from sccountsdiff.benchmark.simulated.gaussian import GaussianDiffusion
from sccountsdiff.benchmark.simulated.masked import MaskedDiffusion
from sccountsdiff.benchmark.simulated.networks import Budget
from sccountsdiff.benchmark.simulated.report import summarise, variance_table, write_report
from sccountsdiff.benchmark.simulated.rounding import rounding_study
from sccountsdiff.benchmark.simulated.study import Setting, Study, run_study

__all__ = [
    "Budget",
    "CountsDiffusion",
    "GaussianDiffusion",
    "MaskedDiffusion",
    "NegativeBinomialToy",
    "Setting",
    "Study",
    "rounding_study",
    "run_study",
    "summarise",
    "variance_table",
    "write_report",
]
