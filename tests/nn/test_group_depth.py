"""Depths of groups of genes: closed forms of the normal law, and what is not seen."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sccountsdiff.nn import GroupDepth

CENTRE, COVARIANCE = np.array([0.1, -0.2]), np.array([[0.3, 0.2], [0.2, 0.5]])


@pytest.fixture
def depth():
    depth = GroupDepth(torch.tensor([0, 0, 1, 1, 1]))
    depth.centre.copy_(torch.from_numpy(CENTRE))
    depth.covariance.copy_(torch.from_numpy(COVARIANCE))
    return depth


def test_sums_and_their_way_back(depth):
    values = torch.arange(10.0).reshape(2, 5)
    assert depth.sums(values).tolist() == [[1.0, 9.0], [11.0, 24.0]]
    assert depth.to_genes(depth.sums(values))[0].tolist() == [1.0, 1.0, 9.0, 9.0, 9.0]


def test_nothing_seen_is_the_mean_depth_of_all_cells(depth):
    nothing = torch.zeros(1, 2)
    np.testing.assert_allclose(depth(nothing, nothing)[0], CENTRE + np.diag(COVARIANCE) / 2, rtol=1e-5)


def test_is_the_mean_cell_until_it_is_fitted():
    nothing = torch.zeros(3, 2)
    torch.testing.assert_close(GroupDepth(torch.tensor([0, 1]))(nothing, nothing), nothing)


def test_much_seen_is_the_ratio(depth):
    found, expected = torch.tensor([[3e6, 1e6]]), torch.tensor([[1e6, 2e6]])
    np.testing.assert_allclose(depth(found, expected).exp()[0], [3, 0.5], rtol=1e-4)


def test_one_group_tells_of_the_other_as_normal_numbers_do(depth):
    log_depth = 0.7
    found = torch.tensor([[1e7 * np.exp(log_depth), 0.0]])
    slope = COVARIANCE[0, 1] / COVARIANCE[0, 0]
    mean = CENTRE[1] + slope * (log_depth - CENTRE[0])
    variance = COVARIANCE[1, 1] - slope * COVARIANCE[0, 1]
    np.testing.assert_allclose(depth(found, torch.tensor([[1e7, 0.0]]))[0, 1], mean + variance / 2, atol=1e-4)


def test_little_seen_is_between_both(depth):
    found, expected = (
        torch.tensor([[1e7, 1.0], [1e7, 10.0], [1e7, 100.0]]),
        torch.tensor([[1e7, 0.2], [1e7, 2.0], [1e7, 20.0]]),
    )
    factors = depth(found, expected)[:, 1].exp()
    assert (factors.diff() > 0).all() and factors[-1] < 5


def test_fit_finds_the_law_from_cells_that_lack_groups():
    """Each group is missing in some cells, none in all: standard errors of moments of some thousand cells are about 0.01."""
    rng = np.random.default_rng(0)
    logs = rng.multivariate_normal(CENTRE, COVARIANCE, 8000)
    expected = 1e5 * (rng.random((8000, 2)) < 0.75)
    expected[expected.sum(1) == 0] = 1e5
    depth = GroupDepth(torch.tensor([0, 1]))
    depth.fit(torch.from_numpy(expected * np.exp(logs)), torch.from_numpy(expected))
    np.testing.assert_allclose(depth.centre, CENTRE, atol=0.04)
    np.testing.assert_allclose(depth.covariance, COVARIANCE, atol=0.04)


def test_depths_of_unseen_groups_have_the_right_sum():
    """What users look at first: totals of a modality that is predicted from another are right on average."""
    rng = np.random.default_rng(1)
    true = np.exp(rng.multivariate_normal(CENTRE, COVARIANCE, 20_000))
    expected = torch.full((20_000, 2), 1e4)
    depth = GroupDepth(torch.tensor([0, 1]))
    depth.fit(torch.from_numpy(true) * expected, expected)
    expected[:, 1] = 0
    predicted = depth((torch.from_numpy(true) * expected).float(), expected)[:, 1].exp()
    standard_error = true[:, 1].std() / 20_000**0.5
    assert abs(predicted.mean() - true[:, 1].mean()) < 4 * standard_error + 0.01 * true[:, 1].mean()
    assert np.corrcoef(predicted, true[:, 1])[0, 1] > 0.4


def test_law_is_saved_and_groups_are_not(depth):
    assert set(depth.state_dict()) == {"centre", "covariance", "log_level", "log_dispersion"}


def test_only_groups_of_which_nothing_is_seen_are_corrected(depth):
    depth.log_dispersion.copy_(torch.tensor([-0.5, -1.0]))
    depth.log_level.copy_(torch.tensor([0.25, 0.5]))
    observed = torch.tensor([[1.0, 0, 0, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 0, 0]])
    level, dispersion = depth.corrections(observed)
    assert dispersion.tolist() == [[0, 0, -1, -1, -1], [-0.5, -0.5, 0, 0, 0], [-0.5, -0.5, -1, -1, -1]]
    torch.testing.assert_close(level[:, [0, 4]], -dispersion[:, [0, 4]] / 2)
