import numpy as np
import pytest
from sklearn import metrics as sk

from sccountsdiff.benchmark import metrics
from sccountsdiff.benchmark.metrics.inputs import mean_at_sites


@pytest.mark.parametrize(
    ("name", "second"),
    [
        ("rmse", sk.root_mean_squared_error),
        ("mae", sk.mean_absolute_error),
        ("bias", lambda t, p: np.mean(p) - np.mean(t)),
    ],
)
def test_errors_agree_with_a_loop_over_scikit_learn(name, second, odd_cells, by_cell):
    assert getattr(metrics, name)(*odd_cells) == pytest.approx(by_cell(second, *odd_cells))


def test_r2_agrees_with_scikit_learn(odd_cells, by_cell):
    assert metrics.r2(*odd_cells) == pytest.approx(by_cell(sk.r2_score, *odd_cells, leave_out=(6, 8)))


def test_known_answers(odd_cells):
    truth, _, sites = odd_cells
    for name in ("rmse", "mae", "bias"):
        assert getattr(metrics, name)(truth, truth, sites) == 0
    assert metrics.r2(truth, truth, sites) == pytest.approx(1)
    mean = np.repeat(mean_at_sites(truth.astype(float), sites)[:, None], 40, axis=1)
    mean[5] = 0  # nothing hidden: no mean
    assert metrics.r2(truth, mean, sites) == pytest.approx(0)
    assert metrics.bias(truth, truth + 2, sites) == metrics.rmse(truth, truth - 2, sites) == 2


def test_undefined_everywhere_is_nan():
    truth, sites = np.ones((2, 3)), np.ones((2, 3), dtype=bool)
    assert np.isnan(metrics.r2(truth, truth, sites))


def test_log_error_and_ratio_of_sums_are_over_all_sites(odd_cells):
    truth, imputed, sites = odd_cells
    logs = np.log1p(truth[sites].astype(float)), np.log1p(imputed[sites])
    assert metrics.log_mse(truth, imputed, sites) == pytest.approx(sk.mean_squared_error(*logs))
    assert metrics.ratio_of_sums(truth, imputed, sites) == pytest.approx(imputed[sites].sum() / truth[sites].sum())
    assert metrics.log_mse(truth, truth, sites) == 0 and metrics.ratio_of_sums(truth, 2.0 * truth, sites) == 2
    assert np.isnan(metrics.ratio_of_sums(0 * truth, imputed, sites))
    assert metrics.get_metric("ratio_of_sums").loss(np.array([0.5, 1.0, 2.0])).tolist() == [0.5, 0.0, 1.0]
