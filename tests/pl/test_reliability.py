import numpy as np
import pandas as pd
import pytest

from sccountsdiff import pl
from sccountsdiff.benchmark import metrics

STRATA = pd.Categorical.from_codes([0, 0, 0, 0, 1, 1], ["low", "high", "none"])
VALUES = np.array([0.1, 0.2, 0.3, 0.4, 0.9, 0.95])


def test_calibration_draws_the_empirical_distribution_of_each_stratum(ax):
    pl.calibration(VALUES, STRATA, ax=ax)
    diagonal, low, high = ax.get_lines()  # a stratum without entries has no line
    assert [low.get_label(), high.get_label()] == ["low", "high"]
    np.testing.assert_array_equal(diagonal.get_xdata(), diagonal.get_ydata())
    at = dict(zip(low.get_xdata().round(2), low.get_ydata(), strict=True))
    assert (at[0.25], at[0.5]) == (0.5, 1.0)
    assert high.get_ydata()[80] == 0


def test_uniform_values_lie_on_the_diagonal(ax):
    values = np.random.default_rng(0).random(10_000)
    pl.calibration(values, ax=ax)
    line = ax.get_lines()[1]
    # Kolmogorov's 99.99 % quantile is 2.23 / sqrt(n).
    assert np.abs(line.get_ydata() - line.get_xdata()).max() < 2.23 / np.sqrt(10_000)


def drawn_coverage(ax):
    """Level by stratum, as drawn; error bars are the second artist of each container."""
    points = np.array([bars.lines[0].get_ydata() for bars in ax.containers])
    errors = np.array(
        [[np.ptp(segment[:, 1]) / 2 for segment in bars.lines[2][0].get_segments()] for bars in ax.containers]
    )
    return points, errors


def test_coverage_is_that_of_the_metric_stratum_by_stratum(ax):
    rng = np.random.default_rng(0)
    sites = np.ones((60, 4), dtype=bool)
    truth, draws = rng.poisson(3, sites.shape), rng.poisson(3, (20, sites.size))
    draws[:, ::2] //= 2  # a spread too narrow for genes 0 and 2
    strata = np.tile(["narrow", "right"], sites.size // 2)
    pl.coverage(metrics.pit(truth, draws, sites), strata, levels=[0.5, 0.9], ax=ax)
    points, errors = drawn_coverage(ax)
    assert [label.get_text() for label in ax.get_xticklabels()] == ["narrow", "right"]
    values = metrics.pit(truth, draws, sites)
    for i, level in enumerate([0.5, 0.9]):
        overall = metrics.coverage(truth, draws, sites, level=level)
        assert points[i].mean() == pytest.approx(overall), "strata of equal size average to the whole"
        for j, name in enumerate(["narrow", "right"]):
            inside = np.abs(values[strata == name] - 0.5) <= level / 2
            assert points[i, j] == pytest.approx(inside.mean())
            assert errors[i, j] == pytest.approx(2 * inside.std() / np.sqrt(inside.size))
    nominal = [line.get_ydata()[0] for line in ax.get_lines() if line.get_linestyle() == "--"]
    assert nominal == [0.5, 0.9]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["50%", "90%"]
    assert ax.get_ylim() == (0, 1)


def test_coverage_without_strata(ax):
    pl.coverage(np.linspace(0, 1, 1001), levels=[0.8], ax=ax)
    assert drawn_coverage(ax)[0] == pytest.approx(0.8, abs=2e-3)


@pytest.mark.parametrize("plot", [pl.calibration, pl.coverage])
@pytest.mark.parametrize(
    ("values", "strata", "message"),
    [(VALUES, ["low"], "1 entries, but `pit` has 6"), (np.ones((2, 2)), None, r"shape \(2, 2\)"), ([], None, "shape")],
)
def test_refuses_what_does_not_fit(plot, values, strata, message):
    with pytest.raises(ValueError, match=message):
        plot(values, strata, show=False)


def test_refuses_levels_that_are_none():
    with pytest.raises(ValueError, match="between 0 and 1, found 90"):
        pl.coverage(VALUES, levels=[0.5, 90], show=False)
