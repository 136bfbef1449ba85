"""Figures of the study show the samples they are given."""

import numpy as np
import pandas as pd
import pytest

from sccountsdiff.benchmark.simulated import plots, rounding_study

RNG = np.random.default_rng(0)
SAMPLES = {name: RNG.poisson(1.0, (80, 3)).astype(float) for name in ("truth", "gaussian", "countsdiff")}


def test_variances_are_ratios_with_a_line_at_their_median():
    table = pd.DataFrame({"setting": "wide", "seed": 0, "dimension": range(3), "model": "masked"})
    (ax,) = plots.variances(table.assign(variance=[1.0, 2.0, 8.0], true_variance=2.0)).axes
    points, line = ax.collections
    assert sorted(points.get_offsets()[:, 1]) == [0.5, 1.0, 4.0]
    assert line.get_segments()[0][:, 1].tolist() == [1.0, 1.0]


def test_histograms_have_the_shares_of_the_counts():
    axes = plots.histograms(SAMPLES).axes
    bars = [bar.get_height() for bar in axes[1].patches]
    assert bars[:2] == pytest.approx([(SAMPLES["truth"][:, 1] == k).mean() for k in range(2)])
    assert len(axes[1].lines) == 2, "one for each model"


def test_density_integrates_to_one_and_every_model_has_a_panel():
    grid = np.linspace(-2, 4, 400)
    density = plots._density(SAMPLES["truth"], grid, 0.3)
    assert density.sum() * (grid[1] - grid[0]) ** 2 == pytest.approx(1, rel=1e-3)
    assert [ax.get_title().split()[0] for ax in plots.joint_density(SAMPLES).axes] == ["Gaussian", "CountsDiff"]


def test_roundings_show_samples_of_the_largest_number_of_steps():
    _, drawn = rounding_study(60, n_steps=(2, 5))
    axes = plots.roundings(drawn).axes
    assert len(axes) == 8
    for ax in axes:
        kind, name = ax.get_title().split(", ")
        zeros = (drawn[name, 5, kind] == 0).mean()
        assert ax.patches[0].get_height() == pytest.approx(zeros)
