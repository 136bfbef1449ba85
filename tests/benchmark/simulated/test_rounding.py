import numpy as np
import pytest

from sccountsdiff.benchmark.simulated import rounding_study
from sccountsdiff.benchmark.simulated.rounding import REGIMES, STUDIED, Regime, sample_rounded


@pytest.fixture(scope="module")
def study():
    return rounding_study(4000, n_steps=(20, 200))


def test_nearest_collapses_to_zero_at_low_counts_and_the_others_do_not(study):
    low = study[0].query("regime == 'low counts'").set_index(["rounding", "n_steps"])
    assert (low.loc["nearest", ["mean_ratio", "variance_ratio"]] == 0).all(axis=None)
    regime = REGIMES["low counts"]
    error = 4 * np.sqrt(regime.variance / 4000) / regime.mean
    for rounding in ("poisson", "random", "nb"):
        assert abs(low.loc[(rounding, 200), "mean_ratio"] - 1) < error, rounding


def test_only_nb_is_exact_in_a_few_steps(study):
    table = study[0].set_index(["regime", "n_steps", "rounding"]).sort_index()
    for name, regime in REGIMES.items():
        few = table.loc[(name, 20)]
        drawn = study[1][name, 20, "nb"]
        error = 4 * ((drawn - drawn.mean()) ** 2).std() / np.sqrt(len(drawn)) / regime.variance
        assert abs(few.loc["nb", "variance_ratio"] - 1) < error
        assert few.loc["random", "variance_ratio"] < 0.95 * few.loc["nb", "variance_ratio"]
        assert few.loc["nb", "wasserstein_1"] < few["wasserstein_1"].drop("nb").min()


def test_more_steps_bring_random_rounding_closer(study):
    wide = study[0].query("rounding == 'random'").pivot(index="regime", columns="n_steps", values="variance_ratio")
    assert ((1 - wide[200]).abs() < (1 - wide[20]).abs()).all()


def test_table_says_what_the_samples_are(study):
    table, samples = study
    assert len(table) == len(samples) == len(REGIMES) * 2 * len(STUDIED)
    for row in table.itertuples():
        drawn = samples[row.regime, row.n_steps, row.rounding]
        assert (drawn >= 0).all() and (drawn == np.round(drawn)).all()
        assert row.zeros == (drawn == 0).mean()
        assert row.mean_ratio == pytest.approx(drawn.mean() / REGIMES[row.regime].mean)


def test_regime_is_a_negative_binomial():
    regime = Regime(2.0, 0.7)
    x = np.arange(500)
    pmf = regime.pmf(500)
    assert pmf.sum() == pytest.approx(1, abs=1e-9)
    assert (pmf * x).sum() == pytest.approx(2.0) and (pmf * x**2).sum() - 4 == pytest.approx(regime.variance)


def test_seed_decides():
    draw = lambda seed: sample_rounded(REGIMES["higher counts"], "random", 50, 10, seed)
    np.testing.assert_array_equal(draw(0), draw(0))
    assert not np.array_equal(draw(0), draw(1))


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="positive mean"):
        Regime(0.0, 1.0)
    with pytest.raises(ValueError, match="`rounding`"):
        sample_rounded(REGIMES["low counts"], "up", 5, 2)
