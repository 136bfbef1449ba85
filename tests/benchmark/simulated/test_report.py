"""Tables of the study count what they say."""

import numpy as np
import pandas as pd
import pytest

from sccountsdiff.benchmark.simulated import Budget, Setting, run_study, summarise, variance_table
from sccountsdiff.benchmark.simulated.report import closest, frame_to_markdown
from sccountsdiff.benchmark.simulated.study import COMPARED

TINY = Budget(n_train=200, n_gradient_steps=5, n_samples=60, n_sampling_steps=4, batch_size=16, n_rounded=50)


@pytest.fixture(scope="module")
def tiny():
    return run_study(seeds=[0, 1], settings={"one": Setting()}, budget=TINY, silent=True)


def test_summary_counts_every_dimension_once(tiny):
    table = summarise(tiny).set_index("model")
    assert table["closest"].sum() == 20 and table.loc["truth", "closest"] == 0
    assert (table["smallest"] <= table["variance_ratio"]).all() and (table["variance_ratio"] <= table["largest"]).all()
    first = variance_table(tiny, "one", 0)
    assert list(first.columns) == ["dimension", "truth", *COMPARED] and len(first) == 10
    masked = tiny.marginal.query("seed == 0 and model == 'masked'")
    np.testing.assert_array_equal(first["masked"], masked["variance"])
    np.testing.assert_array_equal(first["truth"], masked["true_variance"])


def test_closest_is_by_absolute_difference_and_ignores_other_models():
    rows = [("gaussian", 0.1), ("masked", 1.8), ("countsdiff", 0.3), ("truth", 1.0), ("countsdiff, bare softplus", 1.0)]
    table = pd.DataFrame(rows, columns=["model", "variance"]).assign(
        setting="a", seed=0, dimension=0, true_variance=1.0
    )
    assert closest(table).to_dict() == {("a", "countsdiff"): 1}


def test_a_table_in_markdown_has_all_rows_and_three_digits():
    table = pd.DataFrame({"model": ["a", "b"], "value": [0.12345, 2.0], "n": [7, 8]})
    lines = frame_to_markdown(table).splitlines()
    assert lines == ["| model | value | n |", "|---|---|---|", "| a | 0.123 | 7 |", "| b | 2 | 8 |"]
