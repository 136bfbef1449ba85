"""What the page on simulated counts says of the saved results is what they say."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sccountsdiff.benchmark.simulated import NegativeBinomialToy
from sccountsdiff.benchmark.simulated.report import closest
from sccountsdiff.benchmark.simulated.study import COMPARED, MODELS, SETTINGS

DOCS = Path(__file__).parents[1] / "docs"
SLOW, FAST = "wide", "wide, fast learning"


def read(name: str) -> pd.DataFrame:
    return pd.read_csv(DOCS / "benchmarks" / "results" / f"simulated_{name}.csv")


@pytest.fixture(scope="module")
def page():
    return " ".join((DOCS / "simulated.md").read_text().split())


@pytest.fixture(scope="module")
def summary():
    return read("summary").set_index(["setting", "model"])


@pytest.fixture(scope="module")
def rounding():
    return read("rounding").set_index(["regime", "n_steps", "rounding"])


@pytest.fixture(scope="module")
def marginal():
    table = read("marginal")
    return table.assign(ratio=table["variance"] / table["true_variance"])


def test_saved_run_is_the_whole_study():
    joint = read("joint")
    runs = joint.groupby(["setting", "seed"], sort=False)["model"].agg(list)
    assert runs.index.tolist() == [(name, seed) for name in SETTINGS for seed in (0, 1, 2)]
    for (name, _), models in runs.items():
        assert models == ["truth", *SETTINGS[name].models]
    sizes = joint[joint["model"].isin(MODELS)].groupby(["setting", "seed"])["n_parameters"]
    assert (sizes.max() / sizes.min() < 1.03).all()


def test_saved_toys_are_those_of_their_seeds(marginal):
    for (name, seed), part in marginal.groupby(["setting", "seed"]):
        toy = NegativeBinomialToy.draw(seed, mean_range=SETTINGS[name].mean_range)
        for _, rows in part.groupby("model"):
            np.testing.assert_allclose(rows["true_variance"], np.diag(toy.covariance), rtol=1e-3)


def test_summary_is_that_of_the_saved_runs(summary, marginal):
    keys = ["setting", "model"]
    means = read("joint").groupby(keys)[["joint_swd", "joint_mmd"]].mean()
    pd.testing.assert_frame_equal(summary[["joint_swd", "joint_mmd"]], means.loc[summary.index], rtol=2e-3)
    median = marginal.groupby(keys)["ratio"].median().loc[summary.index]
    np.testing.assert_allclose(summary["variance_ratio"], median, rtol=2e-3)
    assert summary["closest"].to_dict() == closest(marginal).reindex(summary.index).fillna(0).to_dict()


def test_countsdiff_has_the_lowest_sliced_wasserstein_distance_everywhere():
    table = read("joint").pivot(index=["setting", "seed"], columns="model", values="joint_swd")[list(COMPARED)]
    assert len(table) == 9 and (table.idxmin(axis=1) == "countsdiff").all()


def test_stated_means(page, summary, marginal):
    stated = summary.loc["stated"]
    assert f"({stated.joint_swd['countsdiff']:.4f} against {stated.joint_swd['truth']:.4f})" in page
    assert f"its variance is {stated.variance_ratio['masked']:.1f} times the true one in the median" in page
    assert stated.smallest["masked"] > 1  # too large in all dimensions
    assert f"({stated.variance_ratio['gaussian']:.2f} in the median, down to {stated.smallest['gaussian']:.2f})" in page
    by_seed = [closest(marginal[marginal["seed"] == seed])["stated", "countsdiff"] for seed in (0, 1, 2)]
    first, second, third = by_seed
    assert f"in {sum(by_seed)} of 30 dimensions: {first}, {second} and {third} of ten" in page
    assert min(by_seed) >= 8


def test_plain_gaussian_diffusion_collapses(page, summary, marginal):
    plain = summary.xs("gaussian, plain", level="model")
    assert plain.largest["stated"] < 1  # in all dimensions
    assert f"Plain DDPM has {plain.variance_ratio['stated']:.2f} with the stated means" in page
    assert f"in all 30 dimensions, {plain.variance_ratio[SLOW]:.2f} with the wider means" in page
    assert (plain.variance_ratio < summary.xs("gaussian", level="model").variance_ratio[plain.index]).all()
    assert plain.joint_swd[SLOW] > 1000


def test_wide_means(page, summary, marginal):
    slow = summary.loc[SLOW]
    assert f"with the wider means {slow.variance_ratio['gaussian']:.2f}" in page
    too_large = marginal[(marginal["setting"] == SLOW) & (marginal["model"] == "gaussian")]["ratio"] > 1
    assert 0.4 <= too_large.mean() <= 0.6
    gaussian, countsdiff = slow.closest["gaussian"], slow.closest["countsdiff"]
    assert f"closest variance in {gaussian} of 30 dimensions and CountsDiff in {countsdiff}" in page
    assert f"too small for the wider means ({slow.variance_ratio['countsdiff']:.2f})" in page
    assert slow.joint_swd["countsdiff, bare softplus"] > 100 * slow.joint_swd["countsdiff"]


def test_fast_learning(page, summary):
    slow, fast = summary.loc[SLOW].loc["masked"], summary.loc[FAST].loc["masked"]
    assert f"ratio falls from {slow.variance_ratio:.1f} to {fast.variance_ratio:.1f}" in page
    assert f"from {slow.joint_swd:.2f} to {fast.joint_swd:.2f}" in page
    assert f"its joint MMD ({fast.joint_mmd:.5f}) is the lowest of the three" in page
    assert summary.loc[FAST].joint_mmd[list(COMPARED)].idxmin() == "masked"
    assert f"lowest sliced Wasserstein distance, {summary.loc[FAST].joint_swd['countsdiff']:.3f}" in page


def test_figures_of_the_paper(page):
    lines = [line for line in (DOCS / "simulated.md").read_text().splitlines() if line.startswith("| ")][1:]
    table = np.array([[float(cell) for cell in line.strip("| ").split("|")] for line in lines])
    assert table.shape == (10, 5)
    gaussian, _, countsdiff = np.median(table[:, 2:] / table[:, [1]], axis=0)
    assert f"The paper's variances are {gaussian:.2f} of the true ones in the median" in page
    assert f"as in the paper ({countsdiff:.2f})" in page
    largest = NegativeBinomialToy([0.5], [0.2]).covariance[0, 0]
    assert f"the largest possible one is {largest:.1f}, the table goes up to {table[:, 1].max()}" in page


def test_variance_table_is_that_of_the_first_run(marginal):
    table = read("variance").set_index("dimension")
    first = marginal[(marginal["setting"] == "stated") & (marginal["seed"] == 0)]
    for model in COMPARED:
        np.testing.assert_allclose(table[model], first[first["model"] == model]["variance"], rtol=1e-3)


def test_rounding(page, rounding):
    kept = rounding["variance_ratio"]
    low, high = "low counts", "higher counts"
    assert (rounding.xs((low, "nearest"), level=("regime", "rounding"))["zeros"] == 1).all()
    text = f"{kept[low, 200, 'random']:.2f} and {kept[high, 200, 'random']:.2f} of it are left"
    assert text in page
    poisson = {f"{kept[regime, 200, 'poisson']:.2f}" for regime in (low, high)}
    assert poisson == {"0.99"} and "Poisson keeps 0.99 of both" in page
    few = f"higher counts keep {kept[high, 20, 'random']:.2f} with random and {kept[high, 20, 'poisson']:.2f} with Poisson"
    assert few in page
    assert f"at any number of steps: {kept[high, 20, 'nb']:.2f} in 20 steps" in page
