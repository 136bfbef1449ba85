import numpy as np
import pytest

from sccountsdiff import pl
from sccountsdiff.diffusion import Blackout, Fisher, Schedule


def test_survival_falls_from_one_to_zero(ax):
    pl.survival(["cosine", "fisher"], ax=ax)
    for line in ax.get_lines():
        p = line.get_ydata()
        assert p[0] == 1 and p[-1] == 0 and (np.diff(p) <= 0).all()
    cosine = ax.get_lines()[0]
    np.testing.assert_allclose(cosine.get_ydata(), np.cos(np.pi / 2 * cosine.get_xdata()) ** 2, atol=1e-12)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["cosine", "fisher"]
    assert ax.get_xlim() == (0, 1)


def test_weights_have_mean_one_over_time(ax):
    pl.loss_weight(ax=ax)
    for line in ax.get_lines():
        assert np.trapezoid(line.get_ydata(), line.get_xdata()) == pytest.approx(1, abs=1e-4)


def test_schedules_of_one_s_own(ax):
    class Linear(Schedule):
        def _curve(self, t):
            return 1 - t

    pl.survival(Linear(), ax=ax)
    line = ax.get_lines()[0]
    np.testing.assert_allclose(line.get_ydata(), 1 - line.get_xdata())
    assert line.get_label() == "Linear(n_grid=None)"


def test_unknown_names_are_refused_before_a_figure_is_made():
    with pytest.raises(KeyError, match="did you mean 'cosine'"):
        pl.survival(["cosin"])


def test_a_grid_does_not_change_the_curve(ax):
    pl.survival([Fisher(), Blackout()], ax=ax)
    first, second = ax.get_lines()
    np.testing.assert_array_equal(first.get_ydata(), second.get_ydata())
