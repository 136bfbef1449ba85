"""What the tests of the mathematics share: the schedules and attritions to hold for, and a test of a law."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats

from sccountsdiff.diffusion import Blackout, Cap, Cosine, Fisher, Max, PerStep, Rescale, Schedule


class Cubic(Schedule):
    """A user's schedule: nothing but its curve."""

    def _curve(self, t):
        return (1 - t) ** 3


SCHEDULES = {
    "cosine": Cosine(),
    "fisher": Fisher(),
    "blackout": Blackout(n_grid=11),
    "user-defined": Cubic(),
}
ATTRITIONS = {
    "none": Rescale(0.0),
    "small": Rescale(0.005),
    "large": Rescale(0.7),
    "cap": Cap(0.15),
    "max": Max(),
    "per step": PerStep(torch.tensor([0.9, 0.0, 0.5, 1.0, 0.2, 0.7, 0.1, 0.3])),
}


@pytest.fixture(params=SCHEDULES.values(), ids=SCHEDULES)
def schedule(request) -> Schedule:
    return request.param


@pytest.fixture(params=ATTRITIONS.values(), ids=ATTRITIONS)
def attrition(request):
    return request.param


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.fixture(scope="session")
def assert_follows() -> Callable:
    """Mean, variance and every probability of a discrete law, each within five of its standard errors."""

    def check(draws, law) -> None:
        draws = np.asarray(draws, dtype=float).ravel()
        n = len(draws)
        assert (draws == draws.round()).all() and (draws >= 0).all()
        if law.var() == 0:
            assert (draws == law.mean()).all()
            return
        mean, variance, excess = law.mean(), law.var(), float(law.stats("k"))
        rare = 5 / n  # a handful of draws of what is too rare for a normal law
        se = np.sqrt(variance / n)
        assert draws.mean() == pytest.approx(mean, abs=5 * se + rare)
        se = variance * np.sqrt((excess + 2) / n)  # the fourth central moment is (excess + 3) variance^2
        assert ((draws - mean) ** 2).mean() == pytest.approx(variance, abs=5 * se + rare)
        values = np.arange(law.ppf(1 - 1e-9) + 1)
        pmf, observed = law.pmf(values), np.bincount(draws.astype(int), minlength=len(values))
        assert len(observed) == len(values), "a draw outside of the support"
        often = pmf * n >= 25
        pmf = np.append(pmf[often], (1 - pmf[often].sum()).clip(0))  # the rare ones together
        observed = np.append(observed[often], observed[~often].sum()) / n
        se = np.sqrt(pmf * (1 - pmf) / n)
        assert (np.abs(observed - pmf) <= 5 * se + rare).all()

    return check


@pytest.fixture(scope="session")
def negative_binomial() -> Callable:
    """Scipy's negative binomial with this mean and inverse dispersion."""
    return lambda mean, theta: stats.nbinom(theta, theta / (theta + mean))
