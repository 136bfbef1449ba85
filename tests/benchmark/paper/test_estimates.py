"""Estimates of time and memory come from the networks themselves."""

import pytest

from sccountsdiff.benchmark.paper import HEART, ROWS, Budget
from sccountsdiff.benchmark.paper.estimates import BYTES_PER_ENTRY, estimates, machine_speed, operations
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
    assert table.loc["Blackout", "impute_hours"] == pytest.approx(of_cell * 19 * 3 * 6 * 1000 / 0.5e12 / 3600)
    assert table.loc["MAGIC"].isna().sum() == 2
    assert table.loc["MAGIC", "memory_gb"] * 2**30 == pytest.approx(9000 * 60 * BYTES_PER_ENTRY + 8 * 60 * 1000)


def test_this_machine_computes():
    assert machine_speed() > 1e8
