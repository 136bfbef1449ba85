import numpy as np
import pytest
from scipy import stats

from sccountsdiff.benchmark import metrics


@pytest.mark.parametrize(("name", "second"), [("spearman", stats.spearmanr), ("pearson", stats.pearsonr)])
def test_correlations_agree_with_scipy(name, second, odd_cells, by_cell):
    def or_zero(truth, imputed):
        return 0 if np.ptp(imputed) == 0 else second(truth, imputed).statistic

    assert getattr(metrics, name)(*odd_cells) == pytest.approx(by_cell(or_zero, *odd_cells, leave_out=(6, 8)))


@pytest.mark.parametrize("correlation", [metrics.spearman, metrics.pearson])
def test_known_answers(correlation, odd_cells):
    truth, _, sites = odd_cells
    assert correlation(truth, truth, sites) == pytest.approx(1)
    assert correlation(truth, -1.0 * truth, sites) == pytest.approx(-1)
    assert correlation(truth, np.ones(truth.shape), sites) == 0, "a constant says nothing about the order of genes"
    assert np.isnan(correlation(np.ones((2, 3)), truth[:2, :3], np.ones((2, 3), dtype=bool)))


def test_spearman_is_of_ranks(odd_cells):
    truth, imputed, sites = odd_cells
    assert metrics.spearman(truth, imputed**3, sites) == pytest.approx(metrics.spearman(truth, imputed, sites))
    assert metrics.pearson(truth, imputed**3, sites) != pytest.approx(metrics.pearson(truth, imputed, sites), abs=1e-3)
