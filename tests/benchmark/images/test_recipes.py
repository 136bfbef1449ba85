"""Recipes hold every row of the paper, and every difference from its code has a reason."""

import re
from collections import Counter

import pandas as pd
import pytest

from sccountsdiff.benchmark.images import CONFIGS, RECIPES, difference_table, recipe_table
from sccountsdiff.benchmark.images.recipes import AUTHORS, REASONS
from sccountsdiff.benchmark.images.studies import ATTRITIONS, GUIDANCES, TABLE


def test_every_table_has_all_rows_of_the_paper():
    assert {name: len(recipe.rows) for name, recipe in RECIPES.items() if recipe.rows} == {
        "cifar10_table": 7, "cifar10_guidance": 15, "cifar10_attrition": 5, "celeba_30m": 2, "celeba_60m": 1,
        "celeba_sweep": 4,
    }  # fmt: skip
    best = RECIPES["celeba_60m"].rows[0]
    assert (best.trial.guidance, best.trial.attrition, best.n_images, best.frechet) == (1.5, 0.005, 50_000, 4.948)


def test_rows_without_condition_are_of_models_without_condition():
    for recipe in RECIPES.values():
        for row in recipe.rows:
            assert (row.trial.guidance is None) == (not CONFIGS[row.config].conditional)
            assert row.trial.guidance is not None or row.trial.attrition == 0


def test_table_1_has_the_same_trials_for_each_schedule():
    rows = Counter((CONFIGS[row.config].schedule, row.trial) for row in RECIPES["cifar10_table"].rows)
    assert rows == Counter(
        [("blackout", TABLE[0]), *((schedule, trial) for schedule in ("fisher", "cosine") for trial in TABLE)]
    )


def test_sweeps_of_the_command_are_those_of_the_paper():
    cosine = [row.trial for row in RECIPES["cifar10_guidance"].rows if row.config == "cifar10_cosine"]
    assert tuple(trial.guidance for trial in cosine) == GUIDANCES and {trial.attrition for trial in cosine} == {0.01}
    thinned = [row.trial for row in RECIPES["cifar10_attrition"].rows]
    assert tuple(trial.attrition for trial in thinned) == ATTRITIONS and {trial.guidance for trial in thinned} == {1.0}


def test_one_model_gives_one_number():
    """Guidance 1 with attrition 0.01 is a row of two tables of the paper, from the same model."""
    values = {
        (row.frechet, row.inception_score)
        for name in ("cifar10_guidance", "cifar10_attrition")
        for row in RECIPES[name].rows
        if row.config == "cifar10_cosine" and row.trial.guidance == 1.0 and row.trial.attrition == 0.01
    }
    assert len(values) == 1


def test_every_difference_has_a_reason_and_every_reason_a_difference():
    found = {
        (name, setting)
        for name, theirs in AUTHORS.items()
        for setting, value in theirs.items()
        if getattr(CONFIGS[name], setting) != value
    }
    assert found == set(REASONS)
    table = difference_table()
    assert set(zip(table["settings"], table["setting"], strict=True)) == found and table["why"].str.len().min() > 20


def test_blocks_batch_and_channels_are_the_authors():
    for name, theirs in AUTHORS.items():
        for setting in ("layers_per_block", "batch_size", "channels", "attention_at", "dropout", "head", "inputs"):
            assert getattr(CONFIGS[name], setting) == theirs[setting], (name, setting)


def test_the_table_shows_every_row_and_figure_with_its_settings():
    table = recipe_table()
    assert set(table["recipe"]) == set(RECIPES) and set(table["settings"]) <= set(CONFIGS)
    assert len(table) == sum(len(recipe.rows) or len(recipe.configs) for recipe in RECIPES.values())
    assert table["paper_frechet"].notna().sum() == 34
    curves = table[table["recipe"] == "cifar10_curves"]
    assert set(curves["steps"]) == {50_000} and set(curves["images"]) == {5000}


def test_changes_scale_a_recipe_down():
    settings = RECIPES["cifar10_curves"].settings(n_steps=10)
    assert {config.n_steps for config in settings.values()} == {10}
    assert {config.evaluate_every for config in settings.values()} == {5000}


@pytest.mark.parametrize("name", RECIPES)
def test_names_say_what_is_trained_on(name):
    recipe = RECIPES[name]
    assert re.match(recipe.dataset, name) and {CONFIGS[config].dataset for config in recipe.configs} == {recipe.dataset}
    assert bool(recipe.rows) != bool(recipe.figure) and isinstance(recipe_table(), pd.DataFrame)
