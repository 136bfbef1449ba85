"""The mathematics of CountsDiff: torch only, in the paper's symbols."""

from sccountsdiff.diffusion.attrition import Attrition, Cap, Max, PerStep, Rescale, get_attrition, max_attrition
from sccountsdiff.diffusion.bernoulli import bernoulli
from sccountsdiff.diffusion.continuous import PoissonCounts
from sccountsdiff.diffusion.expectation import expected_log1p, log_mean
from sccountsdiff.diffusion.guidance import guide
from sccountsdiff.diffusion.hiding import draw_observed
from sccountsdiff.diffusion.losses import count_loss, law_loss, log_likelihood, nb_loss, nll_weight
from sccountsdiff.diffusion.noising import NoisedCounts, draw_noised
from sccountsdiff.diffusion.outcome import Outcome
from sccountsdiff.diffusion.prediction import (
    MISSING,
    NOISED,
    OBSERVED,
    Denoiser,
    HurdlePrediction,
    MixturePrediction,
    Prediction,
    indicators,
)
from sccountsdiff.diffusion.process import birth_probability, survivors, thin
from sccountsdiff.diffusion.repaint import show_observed
from sccountsdiff.diffusion.rounding import ROUNDINGS, draw_births
from sccountsdiff.diffusion.sampling import sample
from sccountsdiff.diffusion.schedules import Blackout, Cosine, Fisher, Schedule, get_schedule, register_schedule
from sccountsdiff.diffusion.walk import Move, follow, reverse_walk, step_times

__all__ = [
    "MISSING",
    "OBSERVED",
    "NOISED",
    "ROUNDINGS",
    "Attrition",
    "Blackout",
    "Cap",
    "Cosine",
    "Denoiser",
    "Fisher",
    "HurdlePrediction",
    "Max",
    "MixturePrediction",
    "Move",
    "NoisedCounts",
    "Outcome",
    "PerStep",
    "PoissonCounts",
    "Prediction",
    "Rescale",
    "Schedule",
    "bernoulli",
    "birth_probability",
    "count_loss",
    "draw_births",
    "draw_noised",
    "draw_observed",
    "expected_log1p",
    "follow",
    "get_attrition",
    "get_schedule",
    "guide",
    "indicators",
    "law_loss",
    "log_likelihood",
    "log_mean",
    "max_attrition",
    "nb_loss",
    "nll_weight",
    "register_schedule",
    "reverse_walk",
    "sample",
    "show_observed",
    "step_times",
    "survivors",
    "thin",
]
