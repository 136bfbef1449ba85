"""The paper's study of images: CountsDiff on pixels, which are counts from 0 to 255."""

from sccountsdiff.benchmark.images import celeba, cifar10, digits  # each registers its set
from sccountsdiff.benchmark.images.config import CONFIGS, ImageConfig, load_config, save_config
from sccountsdiff.benchmark.images.data import (
    ArrayImages,
    CountImages,
    Splits,
    first_images,
    load_images,
    pixel_moments,
)
from sccountsdiff.benchmark.images.features import Classifier, Inception, load_inception, train_classifier
from sccountsdiff.benchmark.images.generation import generate
from sccountsdiff.benchmark.images.model import ImageDiffusion, heldout_losses, load_model
from sccountsdiff.benchmark.images.network import ImageDenoiser
from sccountsdiff.benchmark.images.planning import describe, plan
from sccountsdiff.benchmark.images.plots import plot_histories, save_grid
from sccountsdiff.benchmark.images.recipes import RECIPES, ImageRecipe, PaperRow, difference_table, recipe_table
from sccountsdiff.benchmark.images.run import run_images, run_recipe
from sccountsdiff.benchmark.images.scores import ImageEvaluator, inception_score
from sccountsdiff.benchmark.images.training import train

__all__ = [
    "CONFIGS",
    "RECIPES",
    "ArrayImages",
    "Classifier",
    "CountImages",
    "ImageConfig",
    "ImageDenoiser",
    "ImageDiffusion",
    "Inception",
    "ImageEvaluator",
    "ImageRecipe",
    "PaperRow",
    "Splits",
    "describe",
    "difference_table",
    "first_images",
    "generate",
    "heldout_losses",
    "inception_score",
    "load_config",
    "load_images",
    "load_inception",
    "load_model",
    "pixel_moments",
    "plan",
    "plot_histories",
    "recipe_table",
    "run_images",
    "run_recipe",
    "save_config",
    "save_grid",
    "train",
    "train_classifier",
]
