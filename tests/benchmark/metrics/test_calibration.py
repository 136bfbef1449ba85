"""Calibration of draws."""

import numpy as np
import pytest
from scipy import stats

from sccountsdiff.benchmark import metrics

N_DRAWS = 15


def test_pit_is_uniform_for_exact_draws(exact):
    truth, draws, sites, _ = exact
    values = metrics.pit(truth, draws, sites)
    assert values.shape == (sites.sum(),) and values.min() >= 0 and values.max() <= 1
    assert stats.kstest(values, "uniform").pvalue > 0.001
    assert metrics.pit_ks(truth, draws, sites) == pytest.approx(stats.kstest(values, "uniform").statistic)
    assert metrics.pit_ks(truth, draws[:1], sites) < 1.95 / np.sqrt(sites.sum()), "even for a single draw"
    np.testing.assert_array_equal(values, metrics.pit(truth, draws, sites))
    assert (values != metrics.pit(truth, draws, sites, seed=1)).any()


@pytest.mark.parametrize("change", [lambda m: m * 1.5, lambda m: m * 0.6])
def test_pit_shows_a_wrong_mean(exact, change):
    truth, _, sites, mean = exact
    wrong = np.random.default_rng(1).poisson(change(mean[sites]), (N_DRAWS, sites.sum()))
    assert metrics.pit_ks(truth, wrong, sites) > 5 / np.sqrt(sites.sum())


def test_pit_and_coverage_show_a_wrong_spread(exact):
    truth, draws, sites, mean = exact
    narrow = np.repeat(np.round(mean[sites])[None], N_DRAWS, axis=0)
    rng = np.random.default_rng(2)
    wide = rng.negative_binomial(0.5, 0.5 / (0.5 + mean[sites]), draws.shape)
    error = 4 * np.sqrt(0.8 * 0.2 / sites.sum())
    assert abs(metrics.coverage(truth, draws, sites, level=0.8) - 0.8) < error
    assert metrics.coverage_gap(truth, narrow, sites, level=0.8) < -3 * error
    assert metrics.coverage_gap(truth, wide, sites, level=0.8) > 3 * error
    for wrong in (narrow, wide):
        assert metrics.pit_ks(truth, wrong, sites) > 5 / np.sqrt(sites.sum())


def test_strata_find_what_cancels_overall(exact):
    truth, _, sites, mean = exact
    low = np.arange(40) < 24
    factor = np.where(low, 1.6, 0.85)
    wrong = np.random.default_rng(3).poisson((mean * factor)[sites], (N_DRAWS, sites.sum()))
    strata = np.where(low, "low", "high")
    by_stratum = metrics.pit_ks(truth, wrong, sites, gene_strata=strata)
    assert set(by_stratum) == {"low", "high"}
    values = metrics.pit(truth, wrong, sites)
    in_low = np.broadcast_to(low, sites.shape)[sites]
    assert by_stratum["low"] == pytest.approx(stats.kstest(values[in_low], "uniform").statistic)
    assert min(by_stratum.values()) > metrics.pit_ks(truth, wrong, sites)
    with pytest.raises(ValueError, match="gene_strata"):
        metrics.pit_ks(truth, wrong, sites, gene_strata=strata[:3])


def test_form_of_draws(exact):
    truth, draws, sites, _ = exact
    for function in (metrics.pit, metrics.pit_ks, metrics.coverage):
        for wrong in (draws[:, 1:], draws[0]):
            with pytest.raises(ValueError, match="row-major"):
                function(truth, wrong, sites)
    with pytest.raises(ValueError, match="level"):
        metrics.coverage(truth, draws, sites, level=90)


def test_the_worst_third_of_genes(exact):
    """Draws that are too low in a third of the genes and too high in another look better overall than in either."""
    rng = np.random.default_rng(0)
    rates = rng.permutation([0.5, 2.0, 8.0] * 4)
    sites = rng.random((400, 12)) < 0.6
    truth = rng.poisson(rates, sites.shape)
    factor = np.select([rates < 1, rates > 4], [2.0, 0.8], 1.0)
    draws = rng.poisson(rates * factor, (N_DRAWS, *sites.shape))[:, sites]
    by_third = metrics.pit_ks(truth, draws, sites, gene_strata=rates)
    worst = metrics.pit_ks_thirds(truth, draws, sites)
    assert worst == pytest.approx(max(by_third.values())) and worst > metrics.pit_ks(truth, draws, sites)
    truth, draws, sites, _ = exact
    assert metrics.pit_ks_thirds(truth, draws, sites) < 1.95 * np.sqrt(3 / sites.sum()) * 1.2
    sites = np.zeros((3, 4), dtype=bool)
    sites[:, 1] = True
    assert metrics.pit_ks_thirds(np.ones((3, 4)), np.ones((5, 3)), sites) > 0, "fewer genes than thirds"
