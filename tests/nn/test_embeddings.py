"""Tokens for time, depth and covariates."""

import math

import pytest
import torch
from torch import nn

from sccountsdiff.nn import Conditioning, TimeEmbedding
from sccountsdiff.nn.embeddings import CategoryEmbedding

T = torch.tensor([0.1, 0.5, 0.5, 1.0])
DEPTH = torch.tensor([[1.0, 2.0, 3.0], [0.0, 1.0, 0.0], [0.0, 1.0, 0.0], [5.0, 1.0, -1.0]])
CATEGORIES = torch.tensor([[0, 1], [2, 0], [2, 1], [1, 0]])
CONTINUOUS = torch.tensor([[0.5], [-1.0], [-1.0], [2.0]])
NONE = torch.zeros(4, dtype=torch.bool)


@pytest.fixture
def conditioning() -> Conditioning:
    torch.manual_seed(0)
    return Conditioning(16, 3, (3, 2), 1)


def test_fourier_features():
    embedding = TimeEmbedding(8, n_frequencies=5)
    embedding.mlp = nn.Identity()
    frequencies = [0.5 * 100 ** (k / 4) * math.pi for k in range(5)]  # from half a turn to 50 of them
    expected = [[wave(f * t) for wave in (math.cos, math.sin) for f in frequencies] for t in T.tolist()]
    torch.testing.assert_close(embedding(T), torch.tensor(expected), rtol=0, atol=1e-4)


def test_no_two_times_look_the_same():
    embedding = TimeEmbedding(8).double()
    embedding.mlp = nn.Identity()
    features = embedding(torch.linspace(0, 1, 1001, dtype=torch.float64))
    distances = torch.cdist(features, features) + torch.eye(1001)
    assert distances.min() > 0.05
    nearby = embedding(torch.tensor([0.5, 0.50001], dtype=torch.float64))
    assert 0 < (nearby[0] - nearby[1]).abs().max() <= 1e-5 * 50 * math.pi * 1.001


def test_one_token_each(conditioning):
    tokens = conditioning(T, DEPTH, conditioning.covariates(CATEGORIES, CONTINUOUS), NONE)
    assert tokens.shape == (4, 2 + 2 + 1, 16)
    assert torch.equal(tokens[:, 0], conditioning.time(T))
    assert torch.equal(tokens[:, 1], conditioning.depth(DEPTH))
    for k in range(2):
        assert torch.equal(tokens[:, 2 + k], conditioning.categorical[k].weight[CATEGORIES[:, k]])
    assert torch.equal(tokens[:, 4], conditioning.continuous[0](CONTINUOUS))


def test_each_covariate_moves_its_own_token_only(conditioning):
    tokens = conditioning(T, DEPTH, conditioning.covariates(CATEGORIES, CONTINUOUS), NONE)
    # The second and the third cell differ in their second category alone.
    assert (tokens[1] != tokens[2]).any(1).tolist() == [False, False, False, True, False]
    shifted = conditioning(T, DEPTH, conditioning.covariates(CATEGORIES, CONTINUOUS + 1), NONE)
    assert (tokens != shifted).any(2).any(0).tolist() == [False, False, False, False, True]


def test_null_state_silences_covariates_cell_by_cell(conditioning):
    null = torch.tensor([True, False, True, False])
    tokens = conditioning(T, DEPTH, conditioning.covariates(CATEGORIES, CONTINUOUS), null)
    full = conditioning(T, DEPTH, conditioning.covariates(CATEGORIES, CONTINUOUS), NONE)
    assert not tokens[null, 2:].any()
    assert torch.equal(tokens[~null], full[~null])
    assert torch.equal(tokens[:, :2], full[:, :2])


def test_without_covariates():
    conditioning = Conditioning(16, 3)
    tokens = conditioning(T, DEPTH, conditioning.covariates(CATEGORIES[:, :0], CONTINUOUS[:, :0]), NONE)
    assert tokens.shape == (4, 2, 16)


def test_frozen_categories_say_the_same_and_are_not_trained(conditioning):
    free = conditioning(T, DEPTH, conditioning.covariates(CATEGORIES, CONTINUOUS), NONE)
    conditioning.freeze_known((2, 2))  # of 3, and of 2
    tokens = conditioning(T, DEPTH, conditioning.covariates(CATEGORIES, CONTINUOUS), NONE)
    assert torch.equal(tokens, free)
    tokens.sum().backward()
    first, second = conditioning.categorical
    assert isinstance(first, CategoryEmbedding)
    assert (first.weight.grad[:2] == 0).all() and (first.weight.grad[2] == (CATEGORIES[:, 0] == 2).sum()).all()
    assert second.weight.grad is None
    trained = [name for name, weights in conditioning.named_parameters() if weights.requires_grad]
    assert trained == ["categorical.0.weight"]
