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


def test_one_setting_has_no_legend_and_one_seed_the_error_of_the_bootstrap(table, ax):
    one = table[(table["schedule"] == "cosine") & (table["seed"] == 0)].drop(columns="schedule")
    pl.sweep(one, "pearson", ax=ax)
    assert ax.get_legend() is None and ax.get_ylabel() == "pearson ↑"
    assert [np.ptp(segment[:, 1]) for segment in ax.containers[0].lines[2][0].get_segments()] == [1, 1, 1]


def test_unknown_metrics_are_named(table):
    with pytest.raises(KeyError, match="no metric 'mae', but rmse, pearson"):
        pl.sweep(table, "mae", show=False)
