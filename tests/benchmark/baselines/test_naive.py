"""Averages that can be worked out by hand."""

import numpy as np
import pytest
from anndata import AnnData

from sccountsdiff.benchmark.baselines import ConditionalMean, GeneMean, ScaledConditionalMean, ScaledGeneMean, Zero

TRAIN = AnnData(
    np.array([[1, 10], [3, 20], [5, 60], [7, 10]], dtype=np.float32),
    obs={"type": ["a", "a", "a", "b"], "donor": ["x", "x", "y", "x"]},
)
TEST = AnnData(
    np.array([[2, 0], [2, 0], [2, 0]], dtype=np.float32), obs={"type": ["a", "b", "b"], "donor": ["x", "x", "y"]}
)
SECOND = np.array([[False, True]] * 3)


@pytest.mark.parametrize(
    ("method", "covariates", "expected"),
    [
        (Zero(), (), [0, 0, 0]),
        (GeneMean(), "type", [25, 25, 25]),
        (ConditionalMean(), "type", [30, 10, 10]),
        (ConditionalMean(), ("type", "donor"), [15, 10, 25]),  # no training cell is b and y: mean of all
        (ConditionalMean(), (), [25, 25, 25]),
        (ScaledGeneMean(pseudo_count=0), (), [12.5, 12.5, 12.5]),  # 2 seen of 4 expected
        (ScaledConditionalMean(pseudo_count=0), "type", [20, 20 / 7, 20 / 7]),
        (ScaledConditionalMean(pseudo_count=0), ("type", "donor"), [15, 20 / 7, 12.5]),
        (ScaledConditionalMean(pseudo_count=1), "type", [30 * 3 / 4, 10 * 3 / 8, 10 * 3 / 8]),
    ],
)
def test_known_answers(method, covariates, expected):
    answer = method.fit(TRAIN, covariates=covariates).impute(TEST, SECOND)
    np.testing.assert_allclose(answer[:, 1], expected, rtol=1e-6)
    np.testing.assert_array_equal(answer[:, 0], 2)


def test_scaling_is_exact_for_cells_that_are_multiples_of_the_mean():
    profile = np.array([4.0, 2.0, 8.0, 1.0])
    train = AnnData(np.stack([profile * 0.5, profile * 1.5]))
    test = AnnData(np.stack([profile * 3, profile * 7]))
    sites = np.array([[True, False, False, True], [False, True, True, True]])
    np.testing.assert_allclose(ScaledGeneMean(pseudo_count=0).fit(train).impute(test, sites), test.X)


def test_categorical_covariates_with_unused_and_unknown_categories():
    train, test = TRAIN.copy(), TEST.copy()
    train.obs["type"] = train.obs["type"].astype("category").cat.add_categories("c")
    test.obs["type"] = ["c", "a", "b"]
    test.obs["type"] = test.obs["type"].astype("category")
    answer = ConditionalMean().fit(train, covariates="type").impute(test, SECOND)
    np.testing.assert_allclose(answer[:, 1], [25, 30, 10])
