"""``ax``, ``show`` and ``save`` mean the same in every plot."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_rgb

from sccountsdiff import pl
from sccountsdiff.pl.figure import CYCLE

VALUES = np.linspace(0, 1, 10)


def test_axes_of_others_are_drawn_into_and_not_shown(ax, figures):
    assert pl.calibration(VALUES, ax=ax) is ax
    assert len(plt.get_fignums()) == 1 and not figures


@pytest.mark.parametrize(("options", "is_shown"), [({}, True), ({"show": False}, False), ({"show": True}, True)])
def test_own_figure_is_shown_unless_told_otherwise(figures, options, is_shown):
    pl.calibration(VALUES, **options)
    assert bool(figures) == is_shown


def test_saved_figure_is_written_and_only_shown_on_request(tmp_path, figures):
    pl.calibration(VALUES, save=tmp_path / "figure.png")
    assert plt.imread(tmp_path / "figure.png").ndim == 3 and not figures
    pl.calibration(VALUES, save=tmp_path / "figure.png", show=True)
    assert figures


def test_lines_differ_in_lightness_or_blueness_and_so_for_all_kinds_of_colour_vision():
    # Red and green are merged by the most common deficiencies; what remains is lightness and blue against yellow.
    red, green, blue = np.array([to_rgb(colour) for colour in CYCLE]).T
    light, yellow = 0.3 * red + 0.6 * green + 0.1 * blue, (red + green) / 2 - blue
    distance = np.hypot(*(np.subtract.outer(values, values) for values in (light, yellow)))
    assert distance[np.triu_indices(len(CYCLE), 1)].min() > 0.1
