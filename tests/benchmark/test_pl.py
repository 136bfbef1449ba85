import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from sccountsdiff.benchmark import pl
from sccountsdiff.pl.figure import GREY, ORANGE

METHODS = {
    ("reference", "truth"): (0.0, 1.0, 0.0),
    ("naive", "zero"): (2.0, 0.1, -0.5),
    ("naive", "gene_mean"): (1.0, 0.3, 0.2),
    ("generative", "countsdiff"): (1.5, 0.4, 0.1),
}
METRICS = ("rmse", "spearman", "bias")  # lower, higher, nearer to zero is better


@pytest.fixture
def ax():
    mpl.use("agg")
    yield plt.subplots()[1]
    plt.close("all")


@pytest.fixture
def results():
    return pd.DataFrame(
        [
            {"dataset": "toy", "protocol": "all", "missingness": "mcar", "method": method, "group": group,
             "n_samples": 1, "seed": 0, "metric": metric, "value": value, "se": 0.25}
            for (group, method), values in METHODS.items()
            for metric, value in zip(METRICS, values, strict=True)
        ]
    )  # fmt: skip


class TestTable:
    def test_shows_values_and_marks_the_best(self, results, ax):
        pl.metric_table(results, ax=ax)
        assert [label.get_text() for label in ax.get_yticklabels()] == ["truth", "zero", "gene_mean", "countsdiff"]
        assert [label.get_text() for label in ax.get_xticklabels()] == ["rmse ↓", "spearman ↑", "bias →0"]
        texts = {(text.get_position()[1], text.get_position()[0]): text for text in ax.texts}
        assert texts[1, 0].get_text() == "2 (0.2)" and texts[3, 1].get_text() == "0.4 (0.2)"
        best = {place for place, text in texts.items() if text.get_weight() == "bold"}
        assert best == {(2, 0), (3, 1), (3, 2)}
        boxes = {
            (round(box.get_y() + 0.46), round(box.get_x() + 0.48)) for box in ax.patches if isinstance(box, Rectangle)
        }
        assert boxes == best

    def test_colours_are_ranks_over_all_methods_but_references(self, results, ax):
        pl.metric_table(results, ax=ax)
        goodness = np.ma.filled(ax.images[0].get_array(), np.nan)
        assert np.isnan(goodness[0]).all()
        np.testing.assert_array_equal(goodness[1:], [[0, 0, 0], [1, 0.5, 0.5], [0.5, 1, 1]])

    def test_type_is_readable_on_every_colour(self, results, ax):
        pl.metric_table(results, ax=ax)
        darkest = ax.images[0].cmap(ax.images[0].norm(1.0))
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in darkest[:3]]
        luminance = np.dot([0.2126, 0.7152, 0.0722], linear)
        assert (luminance + 0.05) / 0.05 > 4.5, "contrast of black type, as the web guidelines ask for"

    def test_columns_are_as_asked_for(self, results, ax):
        pl.metric_table(results, ["bias", "rmse"], ax=ax)
        assert [label.get_text() for label in ax.get_xticklabels()] == ["bias →0", "rmse ↓"]
        goodness = np.ma.filled(ax.images[0].get_array(), np.nan)
        np.testing.assert_array_equal(goodness[1:], [[0, 0], [0.5, 1], [1, 0.5]])

    def test_a_metric_without_direction_has_no_colour(self, results, ax):
        pl.metric_table(results.replace("bias", "beauty"), ["beauty", "rmse"], ax=ax)
        goodness = np.ma.filled(ax.images[0].get_array(), np.nan)
        assert np.isnan(goodness[:, 0]).all() and not np.isnan(goodness[1:, 1]).any()


class TestQuality:
    def test_each_method_is_a_point_with_its_errors(self, results, ax):
        pl.quality(results, "rmse", "spearman", ax=ax)
        points = [tuple(np.ravel(bars.lines[0].get_data())) for bars in ax.containers]
        assert sorted(points) == [(1.0, 0.3), (1.5, 0.4), (2.0, 0.1)], "references are left out"
        x_bars, y_bars = ax.containers[0].lines[2]
        for bars, axis in ((x_bars, 0), (y_bars, 1)):
            assert np.ptp(bars.get_segments()[0][:, axis]) == pytest.approx(0.5)
        legend = [text.get_text() for text in ax.get_legend().get_texts()]
        assert legend == ["1  zero", "2  gene_mean", "3  countsdiff"], "in the order of the table"
        # The number beside a point is the one in the legend.
        by_number = {name.split()[0]: name.split()[1] for name in legend}
        places = {method: METHODS[group, method][:2] for group, method in METHODS}
        for text in ax.texts:
            assert text.xy == places[by_number[text.get_text()]]
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("rmse ↓", "spearman ↑")

    def test_groups_have_colours_and_methods_shapes(self, results, ax):
        pl.quality(results, "rmse", "spearman", ax=ax)
        lines = [bars.lines[0] for bars in ax.containers]
        assert sorted(to_hex(line.get_color()) for line in lines) == sorted([GREY, GREY, ORANGE])
        assert len({line.get_marker() for line in lines}) == 3

    def test_numbers_of_draws_are_told_apart(self, results, ax):
        more = results[results["method"] == "countsdiff"].assign(n_samples=5, value=0.75)
        pl.quality(pd.concat([results, more]), "rmse", "spearman", ax=ax)
        assert any("countsdiff (5)" in text.get_text() for text in ax.get_legend().get_texts())
        assert len(ax.containers) == 4


@pytest.mark.parametrize("plot", [pl.metric_table, pl.quality])
class TestWhichComparison:
    @pytest.fixture
    def options(self, plot):
        return {"show": False} | ({"x": "rmse", "y": "bias"} if plot is pl.quality else {})

    @pytest.mark.parametrize("key", ["dataset", "protocol", "missingness"])
    def test_must_be_said_where_there_are_several(self, results, plot, options, key, ax):
        both = pd.concat([results, results.assign(**{key: "other", "value": 7.0})])
        with pytest.raises(ValueError, match=f"pass {key}=, one of .*'other'"):
            plot(both, **options)
        plot(both, **{key: "other"}, ax=ax, **options)
        if plot is pl.metric_table:
            assert {text.get_text() for text in ax.texts} == {"7 (0.2)"}
        else:
            assert all(tuple(np.ravel(bars.lines[0].get_data())) == (7, 7) for bars in ax.containers)

    def test_must_be_there(self, results, plot, options):
        with pytest.raises(KeyError, match="dataset='heart' is not in `results`, which has 'toy'"):
            plot(results, dataset="heart", **options)

    def test_metrics_must_be_there(self, results, plot, options):
        asked = {"y": "mae"} if plot is pl.quality else {"metrics": ["mae"]}
        with pytest.raises(KeyError, match="no value of 'mae', but of rmse, spearman, bias"):
            plot(results, **{**options, **asked})


@pytest.fixture
def swept():
    rows = [
        {"schedule": s, "attrition": a, "seed": seed, "metric": metric, "value": 10 * i + j + seed, "se": 0.5}
        for i, s in enumerate(["cosine", "fisher"])
        for j, a in enumerate([0.0, 0.005, 0.5])
        for seed in (0, 2)
        for metric in ("rmse", "pearson")
    ]
    return pd.DataFrame(rows)


def test_a_line_for_each_schedule_with_errors_over_seeds(swept, ax):
    pl.sweep(swept, "rmse", ax=ax)
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
def test_a_variant_that_failed_leaves_a_gap_and_the_others_in_their_places(swept, ax, failed):
    is_failed = (swept["schedule"] == failed[0]) & (swept["attrition"] == failed[1])
    pl.sweep(swept[~is_failed], "rmse", ax=ax)
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


def test_patterns_have_lines_of_their_own(swept, ax):
    both = [swept.assign(missingness=name, value=swept["value"] + shift) for name, shift in (("mcar", 0), ("mar", 100))]
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


def test_one_setting_has_no_legend_and_one_seed_the_error_of_the_bootstrap(swept, ax):
    one = swept[(swept["schedule"] == "cosine") & (swept["seed"] == 0)].drop(columns="schedule")
    pl.sweep(one, "pearson", ax=ax)
    assert ax.get_legend() is None and ax.get_ylabel() == "pearson ↑"
    assert [np.ptp(segment[:, 1]) for segment in ax.containers[0].lines[2][0].get_segments()] == [1, 1, 1]


def test_unknown_metrics_are_named(swept):
    with pytest.raises(KeyError, match="no metric 'mae', but rmse, pearson"):
        pl.sweep(swept, "mae", show=False)
