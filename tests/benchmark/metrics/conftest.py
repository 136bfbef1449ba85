"""Cells with everything that makes a statistic of a cell undefined, and a loop over cells to compare with."""

import numpy as np
import pytest


@pytest.fixture(scope="session")
def odd_cells():
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


@pytest.fixture(scope="session")
def by_cell():
    def mean(function, truth, imputed, sites, leave_out=()):
        cells = [i for i in range(len(truth)) if sites[i].any() and i not in leave_out]
        return np.mean([function(truth[i, sites[i]], imputed[i, sites[i]]) for i in cells])

    return mean


@pytest.fixture(scope="session")
def exact():
    """Truth and draws from the same Poisson distributions, most of them low: many ties."""
    rng = np.random.default_rng(0)
    mean = np.broadcast_to(np.geomspace(0.05, 20, 40), (300, 40))
    sites = rng.random(mean.shape) < 0.5
    return rng.poisson(mean), rng.poisson(mean[sites], (15, sites.sum())), sites, mean
