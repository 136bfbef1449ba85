import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import mean_poisson_deviance

from sccountsdiff.benchmark import metrics


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    mean = rng.gamma(1, 3, (200, 50)) + 0.1
    truth = rng.negative_binomial(2, 2 / (2 + mean))
    return truth, mean, rng.random(truth.shape) < 0.5


def test_poisson_loss_is_the_log_score_up_to_a_constant(data):
    truth, mean, sites = data
    score = lambda mu: -stats.poisson.logpmf(truth, mu)[sites].mean()
    difference = metrics.poisson_loss(truth, mean, sites) - metrics.poisson_loss(truth, mean * 2, sites)
    assert difference == pytest.approx(score(mean) - score(mean * 2))
    deviance = lambda mu: mean_poisson_deviance(truth[sites], mu[sites]) / 2
    assert difference == pytest.approx(deviance(mean) - deviance(mean * 2))


def test_the_true_mean_has_the_lowest_loss(data):
    truth, mean, sites = data
    best = metrics.poisson_loss(truth, mean, sites)
    assert best < min(metrics.poisson_loss(truth, mean * f, sites) for f in (0.7, 1.4))


def test_the_floor():
    truth, sites = np.array([[0, 3]]), np.ones((1, 2), dtype=bool)
    zero = np.zeros((1, 2))
    assert metrics.poisson_loss(truth, zero, sites) == pytest.approx(1e-6 - 1.5 * np.log(1e-6))
    assert metrics.poisson_loss(truth, zero, sites, floor=1.0) == 1
    assert np.isfinite(metrics.nb_log_score(truth, zero, sites))


def test_nb_agrees_with_scipy(data):
    truth, mean, sites = data
    theta = np.random.default_rng(1).gamma(2, 1, 50)
    for value in (2.0, theta, np.broadcast_to(theta, truth.shape)):
        expected = -stats.nbinom.logpmf(truth, value, value / (value + mean))[sites].mean()
        assert metrics.nb_log_score(truth, mean, sites, theta=value) == pytest.approx(expected)


def test_nb_finds_the_dispersion_that_made_the_data(data):
    truth, mean, sites = data
    fitted = metrics.nb_log_score(truth, mean, sites)
    assert fitted <= metrics.nb_log_score(truth, mean, sites, theta=2.0)
    assert fitted == pytest.approx(metrics.nb_log_score(truth, mean, sites, theta=2.0), abs=1e-3)
    assert fitted < metrics.nb_log_score(truth, mean, sites, theta=1e6) - 0.1, "better than Poisson"
    with pytest.raises(ValueError, match="theta"):
        metrics.nb_log_score(truth, mean, sites, theta=0.0)
