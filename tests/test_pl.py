"""What is drawn, read back from the axes."""

from types import SimpleNamespace

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from sccountsdiff import pl

matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


@pytest.fixture
def ax():
    return plt.subplots()[1]


def test_history_marks_the_best_validation_epoch(ax):
    losses = {"train_loss": [3.0, 2.0, 1.0], "validation_loss": [3.0, 1.5, 2.0]}
    model = SimpleNamespace(history={k: pd.DataFrame({k: v}, dtype=object) for k, v in losses.items()})
    assert pl.history(model, ax=ax) is ax
    training, validation, kept = ax.get_lines()
    np.testing.assert_array_equal(training.get_ydata(), losses["train_loss"])
    np.testing.assert_array_equal(validation.get_ydata(), losses["validation_loss"])
    assert (kept.get_xdata()[0], kept.get_ydata()[0]) == (1, 1.5)


def test_history_without_validation(ax):
    model = SimpleNamespace(history={"train_loss": pd.DataFrame({"train_loss": [2.0, 1.0]})})
    pl.history(model, ax=ax)
    assert len(ax.get_lines()) == 1


def test_imputed_vs_truth_counts_every_site_once_and_nothing_else(ax):
    rng = np.random.default_rng(0)
    truth, imputed = rng.poisson(5, (20, 30)), rng.gamma(2, 3, (20, 30))
    sites = rng.random(truth.shape) < 0.4
    pl.imputed_vs_truth(truth, imputed, sites, ax=ax)
    mesh = ax.collections[0]
    assert np.ma.filled(mesh.get_array(), 0).sum() == sites.sum()


def test_calibration_draws_the_empirical_distribution_of_each_stratum(ax):
    values = np.array([0.1, 0.2, 0.3, 0.4, 0.9, 0.95])
    strata = pd.Categorical.from_codes([0, 0, 0, 0, 1, 1], ["low", "high"])
    pl.calibration(values, strata, ax=ax)
    diagonal, low, high = ax.get_lines()
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


def test_save_writes_and_own_figure_is_made(tmp_path):
    ax = pl.calibration(np.linspace(0, 1, 10), save=tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 1000
    assert ax.figure is not None
