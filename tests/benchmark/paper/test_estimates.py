"""Estimates of time and memory come from the networks themselves."""

import pytest

from sccountsdiff.benchmark.paper import HEART, RECIPES, ROWS, Budget
from sccountsdiff.benchmark.paper.estimates import BYTES_PER_ENTRY, COLUMNS, Work, estimates, machine_speed, operations
from sccountsdiff.benchmark.paper.settings import stand_in

BUDGET = Budget(HEART, 10_000)
ROW = {row.name: row for row in ROWS}


def test_operations_of_a_transformer_are_those_of_its_layers():
    """Two for each weight and token, and four for each pair of tokens, channel and layer."""
    n_genes, width = 60, 128
    found = operations(ROW["ReMDM"].method(BUDGET), stand_in(n_genes, HEART))
    tokens = n_genes + 1
    layers = 3 * (2 * tokens * 12 * width**2 + 4 * tokens**2 * width)
    assert layers < found < 1.8 * layers  # and the classes of the masked entries
    blackout = operations(ROW["Blackout"].method(BUDGET), stand_in(n_genes, HEART))
    assert blackout == pytest.approx(layers, rel=0.1)


def test_hours_are_steps_by_operations():
    cells = stand_in(60, HEART)
    table = estimates([ROW["Blackout"], ROW["MAGIC"]], BUDGET, 60, speed=1e12)
    of_cell = operations(ROW["Blackout"].method(BUDGET), cells)
    steps = 50_000 // 16 * 16 * 512
    assert table.loc["Blackout", "fit_hours"] == pytest.approx(3 * of_cell * steps / 0.5e12 / 3600, rel=0.01)
    assert table.loc["Blackout", "impute_hours"] == pytest.approx(of_cell * 19 * 6 * 1000 / 0.5e12 / 3600)
    assert table.loc["MAGIC", list(COLUMNS)].isna().all()
    a100, here = table.loc["Blackout", "hours_A100"], table.loc["Blackout", ["fit_hours", "impute_hours"]].sum()
    assert a100 * 19.5 * 0.3 == pytest.approx(here * 0.5)  # makers' peaks and what is reached of them; 1e12 here
    assert table.loc["Blackout", "parameters"] > 1e5 and table.loc["Blackout", "trainings"] == 1
    assert table.loc["MAGIC", "memory_gb"] * 2**30 == pytest.approx(9000 * 60 * BYTES_PER_ENTRY + 8 * 60 * 1000)


def test_the_choice_on_validation_cells_and_guidance_are_counted():
    """A second training, a draw in each of eight settings, its own once; two of guidance take two passes a step."""
    with_choice, without = (
        estimates([ROW["CountsDiff"]], BUDGET, 20, 1e12, lambda row, tune=tune: Work.of_row(row, tune)).iloc[0]
        for tune in (True, False)
    )
    assert with_choice["fit_hours"] == 2 * without["fit_hours"]
    assert without["passes"] == 6 * 19
    assert with_choice["passes"] == 6 * 19 + 19 + 9 + 38 + 3 * 19 + 2 * 19 + 2 * 2 * 19


def test_sweeps_are_trained_for_each_schedule_and_draw_in_each_setting():
    attrition, guidance, steps = (
        RECIPES[name].estimates(scale=0.001, speed=1e12).iloc[0]
        for name in ("fetus_attrition", "fetus_guidance", "fetus_steps")
    )
    assert (attrition["trainings"], guidance["trainings"], steps["trainings"]) == (3, 3, 1)
    assert attrition["passes"] == 2 * 3 * 5 * 19  # at guidance 0.5
    assert guidance["passes"] == 3 * (2 + 2 * 5) * 19  # only 0 and 1 take one pass a step
    assert steps["passes"] == 2 * (29 + 19 + 14 + 9 + 6 + 4 + 2 + 1)


def test_sweeps_impute_a_part_of_the_validation_cells():
    full = RECIPES["fetus_steps"].estimates(speed=1e12).iloc[0]
    of_cell = full["mflop_per_cell"] * 1e6
    assert full["impute_hours"] == pytest.approx(of_cell * full["passes"] * 5000 / 0.5e12 / 3600)


def test_this_machine_computes():
    assert machine_speed() > 1e8
