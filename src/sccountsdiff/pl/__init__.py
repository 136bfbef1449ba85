"""Plots: each draws into matplotlib axes and returns them; ``ax``, ``show`` and ``save`` as in scanpy."""

from sccountsdiff.pl.embedding import uncertainty
from sccountsdiff.pl.genes import gene_pair
from sccountsdiff.pl.hidden import imputed_vs_truth
from sccountsdiff.pl.reliability import calibration, coverage
from sccountsdiff.pl.schedules import loss_weight, survival
from sccountsdiff.pl.training import history
from sccountsdiff.pl.walks import forward_walk, reverse_walk

__all__ = [
    "calibration",
    "coverage",
    "forward_walk",
    "gene_pair",
    "history",
    "imputed_vs_truth",
    "loss_weight",
    "reverse_walk",
    "survival",
    "uncertainty",
]
