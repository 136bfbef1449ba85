import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as sk

from sccountsdiff.benchmark import metrics
from sccountsdiff.benchmark.metrics import inputs


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    truth = rng.negative_binomial(1, 0.2, (60, 40))
    imputed = truth * rng.random(truth.shape) + rng.poisson(1, truth.shape)
    sites = rng.random(truth.shape) < 0.4
    sites[5] = False  # a cell with nothing hidden
    truth[6] = 3  # a cell whose truth is constant
    imputed[7] = 0.1  # a cell whose prediction is constant (and not a binary fraction)
    sites[8] = False
    sites[8, 2] = True  # a cell with a single site
    return truth, imputed, sites


def by_cell(function, truth, imputed, sites, leave_out=()):
    cells = [i for i in range(len(truth)) if sites[i].any() and i not in leave_out]
    return np.mean([function(truth[i, sites[i]], imputed[i, sites[i]]) for i in cells])


@pytest.mark.parametrize(
    ("name", "second"),
    [
        ("rmse", sk.root_mean_squared_error),
        ("mae", sk.mean_absolute_error),
        ("bias", lambda t, p: np.mean(p) - np.mean(t)),
    ],
)
def test_errors_agree_with_a_loop_over_scikit_learn(name, second, data):
    assert getattr(metrics, name)(*data) == pytest.approx(by_cell(second, *data))


def test_r2_agrees_with_scikit_learn(data):
    assert metrics.r2(*data) == pytest.approx(by_cell(sk.r2_score, *data, leave_out=(6, 8)))


@pytest.mark.parametrize(("name", "second"), [("spearman", stats.spearmanr), ("pearson", stats.pearsonr)])
def test_correlations_agree_with_scipy(name, second, data):
    def or_zero(truth, imputed):
        return 0 if np.ptp(imputed) == 0 else second(truth, imputed).statistic

    assert getattr(metrics, name)(*data) == pytest.approx(by_cell(or_zero, *data, leave_out=(6, 8)))


def test_known_answers(data):
    truth, _, sites = data
    assert (
        metrics.rmse(truth, truth, sites) == metrics.mae(truth, truth, sites) == metrics.bias(truth, truth, sites) == 0
    )
    for name in ("r2", "spearman", "pearson"):
        assert getattr(metrics, name)(truth, truth, sites) == pytest.approx(1)
    mean = np.repeat(inputs.masked_mean(truth.astype(float), sites)[:, None], 40, axis=1)
    mean[5] = 0  # nothing hidden: no mean
    assert metrics.r2(truth, mean, sites) == pytest.approx(0)
    assert metrics.spearman(truth, mean, sites) == metrics.pearson(truth, mean, sites) == 0
    assert metrics.bias(truth, truth + 2, sites) == metrics.rmse(truth, truth - 2, sites) == 2


def test_only_sites_count(data):
    truth, imputed, sites = data
    elsewhere = np.where(sites, imputed, 1e6)
    for name in ("rmse", "mae", "bias", "r2", "spearman", "pearson", "poisson_loss", "nb_log_score", "energy_distance"):
        function = getattr(metrics, name)
        assert function(truth, imputed, sites) == function(truth, elsewhere, sites)


def test_blocks_of_cells_do_not_matter(data, monkeypatch):
    whole = {name: getattr(metrics, name)(*data) for name in ("rmse", "spearman", "r2")}
    monkeypatch.setattr(inputs.blocks, "__defaults__", (7,))
    for name, value in whole.items():
        assert getattr(metrics, name)(*data) == pytest.approx(value)


def test_undefined_everywhere_is_nan():
    truth, sites = np.ones((2, 3)), np.ones((2, 3), dtype=bool)
    assert np.isnan(metrics.spearman(truth, truth, sites)) and np.isnan(metrics.r2(truth, truth, sites))


def test_input_is_refused_clearly(data):
    truth, imputed, sites = data
    bad = imputed.copy()
    bad[0, 0] = np.nan
    for message, arguments in [
        ("same shape", (truth, imputed[:3], sites)),
        ("imputed has NaN", (truth, bad, sites)),
        ("boolean", (truth, imputed, sites.astype(int))),
        ("boolean", (truth, imputed, sites[:3])),
        ("False everywhere", (truth, imputed, sites & False)),
        ("empty", (truth[:0], imputed[:0], sites[:0])),
    ]:
        for function in (metrics.rmse, metrics.spearman, metrics.energy_distance, metrics.poisson_loss):
            with pytest.raises(ValueError, match=message):
                function(*arguments)
