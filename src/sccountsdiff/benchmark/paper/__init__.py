"""The paper's tables on single-cell data as recipes, and the figures that it reports."""

from sccountsdiff.benchmark.paper.atlases import FETUS, HEART, Atlas, load_fetus, load_heart
from sccountsdiff.benchmark.paper.published import compare, published
from sccountsdiff.benchmark.paper.recipes import (
    RECIPES,
    Ablation,
    Comparison,
    Recipe,
    fetus_attrition,
    fetus_guidance,
    fetus_mcar,
    fetus_mcar_classifier,
    fetus_mnar,
    fetus_mnar_classifier,
    fetus_steps,
    heart_mcar,
    heart_mcar_classifier,
)
from sccountsdiff.benchmark.paper.rows import CLASSIFIER_ROWS, ROWS, Budget, Row

__all__ = [
    "CLASSIFIER_ROWS",
    "FETUS",
    "HEART",
    "RECIPES",
    "ROWS",
    "Ablation",
    "Atlas",
    "Budget",
    "Comparison",
    "Recipe",
    "Row",
    "compare",
    "fetus_attrition",
    "fetus_guidance",
    "fetus_mcar",
    "fetus_mcar_classifier",
    "fetus_mnar",
    "fetus_mnar_classifier",
    "fetus_steps",
    "heart_mcar",
    "heart_mcar_classifier",
    "load_fetus",
    "load_heart",
    "published",
]
