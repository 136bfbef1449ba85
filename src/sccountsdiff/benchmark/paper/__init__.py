"""The paper's tables on single-cell data as recipes, and the figures that it reports."""

from sccountsdiff.benchmark.paper.atlases import FETUS, HEART, Atlas, load_fetus, load_heart
from sccountsdiff.benchmark.paper.published import compare, published
from sccountsdiff.benchmark.paper.recipes import RECIPES, Ablation, Comparison, Recipe
from sccountsdiff.benchmark.paper.rows import CLASSIFIER_ROWS, ROWS, Budget, Row
from sccountsdiff.benchmark.paper.settings import settings_table

__all__ = ["FETUS", "HEART", "Atlas", "load_fetus", "load_heart", "compare", "published"]
__all__ += ["RECIPES", "Ablation", "Comparison", "Recipe", "CLASSIFIER_ROWS", "ROWS", "Budget", "Row", "settings_table"]

globals().update(RECIPES)
__all__ += RECIPES
