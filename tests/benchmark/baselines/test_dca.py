"""DCA: likelihood, depth, what is learned."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from anndata import AnnData
from scipy.special import expit
from scipy.stats import nbinom

from sccountsdiff.benchmark.baselines.dca import DCA
from sccountsdiff.benchmark.baselines.torch_training import Batch

SMALL = {"max_epochs": 40, "lr": 5e-3, "n_warmup_steps": 10}


@pytest.fixture(scope="module")
def method(low_rank):
    return DCA(**SMALL).fit(low_rank.train)


def batch_of(counts):
    n = len(counts)
    empty = torch.zeros(n, 0)
    return Batch(torch.as_tensor(counts), torch.ones(counts.shape).bool(), empty.long(), empty, torch.zeros(n).bool())


def test_beats_the_mean(low_rank, method):
    answer = method.impute(low_rank.test, low_rank.sites)
    error = np.sqrt(np.mean((answer - low_rank.test.X)[low_rank.sites] ** 2))
    assert error < 0.9 * low_rank.rmse_of_gene_mean


def test_loss_is_the_zero_inflated_negative_binomial_of_scipy(low_rank, method):
    network, counts = method.network, low_rank.train.X[:30]
    batch = batch_of(counts)
    with torch.no_grad():
        loss = network.loss(batch).item()
        depth = (counts.sum(axis=1, keepdims=True) + 10) / (low_rank.train.X.mean(axis=0).sum() + 10)
        h = network.encode(batch)
        mean = network.profile(h).double().numpy() * depth
        theta = np.log1p(np.exp(network.raw_dispersion(h).double().numpy())).clip(1e-4, 1e4)
        extra = expit(network.zero_logits(h).double().numpy())
    probability = (1 - extra) * nbinom.pmf(counts, theta, theta / (theta + mean)) + extra * (counts == 0)
    np.testing.assert_allclose(loss, -np.log(probability).mean(), rtol=1e-4)


def test_input_of_the_network_is_standardised_and_does_not_know_the_depth(low_rank, method, monkeypatch):
    network, counts = method.network, torch.as_tensor(low_rank.train.X)
    inputs_of_body = []
    handle = network.body.register_forward_pre_hook(lambda _, inputs: inputs_of_body.append(inputs[0]))
    everything = torch.ones_like(counts, dtype=torch.bool)
    with torch.no_grad():
        network.encode(batch_of(counts))
        depth = network.values.depth(counts, everything)
        monkeypatch.setattr(network.values, "depth", lambda counts, observed: 5 * depth)
        network.encode(batch_of(5 * counts))
    handle.remove()
    np.testing.assert_allclose(inputs_of_body[0].mean(dim=0), 0.0, atol=1e-4)
    np.testing.assert_allclose(inputs_of_body[0].std(dim=0, correction=0), 1.0, rtol=1e-3)
    torch.testing.assert_close(inputs_of_body[1], inputs_of_body[0], rtol=1e-4, atol=1e-4)


def test_profiles_are_brought_to_the_observed_depth(low_rank, method):
    """Each cell's profile is multiplied by its observed total over what the profile expects there, both plus 10."""
    test, observed = low_rank.test, ~low_rank.sites
    counts = np.where(observed, test.X, 0)
    batch = replace(batch_of(counts), observed=torch.as_tensor(observed))
    with torch.no_grad():
        h = method.network.encode(batch)
        profile = method.network.profile(h).numpy()
    factor = (counts.sum(axis=1) + 10) / ((profile * observed).sum(axis=1) + 10)
    expected = np.where(observed, test.X, profile * factor[:, None])
    np.testing.assert_allclose(method.impute(test, low_rank.sites), expected, rtol=1e-4)


def test_the_mean_is_that_of_counts_without_extra_zeros():
    """With a third of a constant set to 0, the answer is the constant and not two thirds of it."""
    rng = np.random.default_rng(0)
    counts = rng.poisson(20.0, (200, 12)).astype(np.float32)
    counts[rng.random(counts.shape) < 1 / 3] = 0
    method = DCA(n_hidden=(8,), max_epochs=30, lr=2e-2, n_warmup_steps=10, patience=None).fit(AnnData(counts))
    with torch.no_grad():
        profile = method.network.profile(method.network.encode(batch_of(counts))).numpy()
    assert 18 < profile.mean() < 23, "13.3 would count the zeros"


def test_silent_genes_and_empty_cells(low_rank):
    train = low_rank.train.copy()
    train.X[:, 3] = 0
    train.X[5] = 0
    method = DCA(**SMALL | {"max_epochs": 2}).fit(train)
    sites = np.ones(low_rank.test.shape, dtype=bool)
    assert method.impute(low_rank.test, sites)[:, 3].max() < 0.1
