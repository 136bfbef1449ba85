import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from sccountsdiff import pl
from sccountsdiff.pl.figure import GREY, ORANGE

METHODS = {
    ("reference", "truth"): (0.0, 1.0, 0.0),
    ("naive", "zero"): (2.0, 0.1, -0.5),
    ("naive", "gene_mean"): (1.0, 0.3, 0.2),
    ("generative", "countsdiff"): (1.5, 0.4, 0.1),
}
METRICS = ("rmse", "spearman", "bias")  # lower, higher, nearer to zero is better


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
    def test_shows_values_and_marks_the_best_of_each_group(self, results, ax):
        pl.metric_table(results, ax=ax)
        assert [label.get_text() for label in ax.get_yticklabels()] == ["truth", "zero", "gene_mean", "countsdiff"]
        assert [label.get_text() for label in ax.get_xticklabels()] == ["rmse ↓", "spearman ↑", "bias →0"]
        texts = {(text.get_position()[1], text.get_position()[0]): text for text in ax.texts}
        assert texts[1, 0].get_text() == "2 (0.2)" and texts[3, 1].get_text() == "0.4 (0.2)"
        best = {place for place, text in texts.items() if text.get_weight() == "bold"}
        assert best == {(2, 0), (2, 1), (2, 2), (3, 0), (3, 1), (3, 2)}
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
    def test_must_be_said_where_there_are_several(self, results, plot, options, key):
        both = pd.concat([results, results.assign(**{key: "other", "value": 7.0})])
        with pytest.raises(ValueError, match=f"pass {key}=, one of .*'other'"):
            plot(both, **options)
        ax = plot(both, **{key: "other"}, **options)
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
