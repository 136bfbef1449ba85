"""Counts to hide entries of."""

import numpy as np
import pytest


@pytest.fixture(scope="module")
def counts():
    rng = np.random.default_rng(0)
    return rng.negative_binomial(1, 0.2, (403, 17))


@pytest.fixture(scope="module")
def valid(counts):
    return np.random.default_rng(1).random(counts.shape) < 0.7
