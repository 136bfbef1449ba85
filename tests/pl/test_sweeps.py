import numpy as np
import pandas as pd
import pytest

from sccountsdiff import pl


@pytest.fixture
def table():
    rows = [
        {"schedule": s, "attrition": a, "seed": seed, "metric": metric, "value": 10 * i + j + seed, "se": 0.5}
        for i, s in enumerate(["cosine", "fisher"])
        for j, a in enumerate([0.0, 0.005, 0.5])
        for seed in (0, 2)
        for metric in ("rmse", "pearson")
    ]
    return pd.DataFrame(rows)


def test_a_line_for_each_schedule_with_errors_over_seeds(table, ax):
    pl.sweep(table, "rmse", ax=ax)
    cosine, fisher = ax.containers
    np.testing.assert_array_equal(cosine.lines[0].get_ydata(), [1, 2, 3])
    np.testing.assert_array_equal(fisher.lines[0].get_ydata(), [11, 12, 13])
    # Values 0 and 2 have standard deviation sqrt(2), and standard error 1.
    assert [segment[:, 1].tolist() for segment in cosine.lines[2][0].get_segments()] == [[0, 2], [1, 3], [2, 4]]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["0", "0.005", "0.5"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("attrition", "rmse ↓")
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["cosine", "fisher"]
    assert cosine.lines[0].get_color() != fisher.lines[0].get_color()


@pytest.mark.parametrize("failed", [("cosine", 0.0), ("cosine", 0.005), ("fisher", 0.005), ("fisher", 0.5)])
def test_a_variant_that_failed_leaves_a_gap_and_the_others_in_their_places(table, ax, failed):
    is_failed = (table["schedule"] == failed[0]) & (table["attrition"] == failed[1])
    pl.sweep(table[~is_failed], "rmse", ax=ax)
    assert [label.get_text() for label in ax.get_xticklabels()] == ["0", "0.005", "0.5"]
    for container, name, values in zip(ax.containers, ["cosine", "fisher"], [[1, 2, 3], [11, 12, 13]], strict=True):
        lost = [name == failed[0] and attrition == failed[1] for attrition in (0.0, 0.005, 0.5)]
        x, y = container.lines[0].get_data()
        np.testing.assert_array_equal(x, [0, 1, 2])
        np.testing.assert_array_equal(np.asarray(y, dtype=float), np.where(lost, np.nan, values))


def test_numbers_stand_in_their_order_and_names_in_that_of_the_table(ax):
    table = pd.DataFrame({"n_steps": [10, 2, 5], "metric": "rmse", "value": [3.0, 1.0, 2.0], "se": 0.1, "seed": 0})
    pl.sweep(table, "rmse", ax=ax)
    assert [label.get_text() for label in ax.get_xticklabels()] == ["2", "5", "10"]
    np.testing.assert_array_equal(ax.containers[0].lines[0].get_ydata(), [1, 2, 3])
    ax.clear()
    pl.sweep(table.rename(columns={"n_steps": "rounding"}).assign(rounding=["random", "nb", "nearest"]), "rmse", ax=ax)
    assert [label.get_text() for label in ax.get_xticklabels()] == ["random", "nb", "nearest"]


def test_patterns_have_lines_of_their_own(table, ax):
    both = [table.assign(missingness=name, value=table["value"] + shift) for name, shift in (("mcar", 0), ("mar", 100))]
    pl.sweep(pd.concat(both), "rmse", ax=ax)
    assert ax.get_legend().get_title().get_text() == "missingness, schedule"
    lines = {
        text.get_text(): container.lines[0].get_ydata().tolist()
        for text, container in zip(ax.get_legend().get_texts(), ax.containers, strict=True)
    }
    assert lines == {
        "mcar, cosine": [1, 2, 3],
        "mcar, fisher": [11, 12, 13],
        "mar, cosine": [101, 102, 103],
        "mar, fisher": [111, 112, 113],
    }


def test_one_setting_has_no_legend_and_one_seed_the_error_of_the_bootstrap(table, ax):
    one = table[(table["schedule"] == "cosine") & (table["seed"] == 0)].drop(columns="schedule")
    pl.sweep(one, "pearson", ax=ax)
    assert ax.get_legend() is None and ax.get_ylabel() == "pearson ↑"
    assert [np.ptp(segment[:, 1]) for segment in ax.containers[0].lines[2][0].get_segments()] == [1, 1, 1]


def test_unknown_metrics_are_named(table):
    with pytest.raises(KeyError, match="no metric 'mae', but rmse, pearson"):
        pl.sweep(table, "mae", show=False)
