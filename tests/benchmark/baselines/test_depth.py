"""Depth of arrays and of tensors."""

import numpy as np
import pandas as pd
import pytest
import torch
from anndata import AnnData

from sccountsdiff.benchmark.baselines.depth import batch_depth, depth_factor


@pytest.fixture(scope="module")
def cells():
    rng = np.random.default_rng(0)
    obs = pd.DataFrame({"type": rng.choice(["x", "y"], 50), "age": rng.normal(40, 9, 50)}, index=map(str, range(50)))
    return AnnData(rng.poisson(3, (50, 4)).astype(np.float32), obs=obs)


@pytest.mark.parametrize("pseudo_count", [10.0, 0.0])
def test_depth_of_tensors_is_that_of_arrays(cells, pseudo_count):
    rng = np.random.default_rng(0)
    observed = rng.random(cells.shape) < 0.5
    observed[0] = False
    for expected in (rng.random(4), rng.random(cells.shape)):
        tensors = [torch.as_tensor(x) for x in (cells.X, observed, expected)]
        depth = batch_depth(*tensors, pseudo_count)
        np.testing.assert_allclose(depth, depth_factor(cells.X, observed, expected, pseudo_count), rtol=1e-5)
        assert depth[0] == 1


def test_exact_without_a_pseudo_count_and_only_observed_entries_count():
    counts = np.array([[6.0, 100.0, 2.0]])
    observed = np.array([[True, False, True]])
    assert depth_factor(counts, observed, np.array([1.0, 50.0, 3.0]), pseudo_count=0) == 2


def test_nothing_observed_or_nothing_expected_is_an_average_cell():
    counts, none = np.zeros((1, 2)), np.zeros((1, 2), dtype=bool)
    assert depth_factor(counts, none, np.ones(2)) == 1
    assert depth_factor(counts, ~none, np.zeros(2), pseudo_count=0) == 1
