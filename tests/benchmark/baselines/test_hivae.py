"""HI-VAE: likelihoods, the evidence lower bound and its parts, gaps, draws, what is learned."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from sccountsdiff.benchmark.baselines.base import Cells
from sccountsdiff.benchmark.baselines.hivae import HIVAEGaussian, HIVAEPoisson, categorical_kl, gaussian_kl

SMALL = {"n_hidden": 64, "lr": 1e-2, "n_warmup_steps": 10, "batch_size": 64}
BOTH = pytest.mark.parametrize("kind", [HIVAEPoisson, HIVAEGaussian])


@pytest.fixture(scope="module")
def fitted(low_rank):
    return {kind: kind(max_epochs=40, **SMALL).fit(low_rank.train) for kind in (HIVAEPoisson, HIVAEGaussian)}


def network_of(kind, counts, observed=None, **kwargs):
    """An untrained network."""
    torch.manual_seed(0)
    observed = np.ones(counts.shape, dtype=bool) if observed is None else observed
    return kind(**kwargs)._network(Cells(counts, observed, pd.DataFrame(index=range(len(counts)))))


@BOTH
def test_beats_the_mean(low_rank, fitted, kind):
    answer = fitted[kind].impute(low_rank.test, low_rank.sites)
    error = np.sqrt(np.mean((answer - low_rank.test.X)[low_rank.sites] ** 2))
    assert error < 0.6 * low_rank.rmse_of_gene_mean


@BOTH
def test_one_likelihood_per_gene_from_its_own_numbers(low_rank, kind):
    """A gene's parameters depend on its own numbers from the decoder and on the component, on nothing else."""
    network = network_of(kind, low_rank.train.X, n_latent=3, n_gene_latent=4)
    z, s = torch.randn(5, 3), torch.eye(10)[:5]
    with torch.no_grad():
        before = network.parameters_of(z, s)
        network.decoder[-1].bias[8:12] += 1  # the numbers of the third gene
        after = network.parameters_of(z, s)
    changed = (before != after).any(dim=(0, 2))
    assert changed.nonzero().flatten().tolist() == [2]
    assert (network.parameters_of(z, s) != network.parameters_of(z, s.roll(1, 0))).any()


def test_poisson_likelihood_is_that_of_scipy(low_rank):
    counts = low_rank.train.X[:20]
    network = network_of(HIVAEPoisson, low_rank.train.X)
    parameters = torch.randn(20, 50, 1) * 3
    rate = network.rate(parameters).double().numpy()
    expected = stats.poisson.logpmf(counts + 1, rate)
    np.testing.assert_allclose(
        network.log_likelihood(torch.as_tensor(counts), parameters), expected, rtol=2e-4, atol=1e-3
    )
    np.testing.assert_allclose(network.expected(parameters), (rate - 1).clip(0), rtol=1e-4, atol=1e-5)
    at_zero = network.expected(torch.zeros(1, 50, 1))[0]
    np.testing.assert_allclose(at_zero, low_rank.train.X.mean(axis=0), rtol=1e-3, atol=1e-3)


def test_gaussian_likelihood_is_that_of_scipy(low_rank):
    counts = low_rank.train.X[:20]
    network = network_of(HIVAEGaussian, low_rank.train.X)
    parameters = torch.randn(20, 50, 2)
    mean, variance = (moment.double().numpy() for moment in network.moments(parameters))
    expected = stats.norm.logpdf(counts, mean, np.sqrt(variance))
    np.testing.assert_allclose(
        network.log_likelihood(torch.as_tensor(counts), parameters), expected, rtol=1e-4, atol=1e-4
    )
    standard = torch.zeros(1, 50, 2)
    standard[..., 1] = np.log(np.e - 1)  # softplus of it is 1
    mean, variance = network.moments(standard)
    np.testing.assert_allclose(mean[0], low_rank.train.X.mean(axis=0), rtol=1e-4)
    np.testing.assert_allclose(variance[0], low_rank.train.X.var(axis=0), rtol=1e-3)


def test_divergences_against_closed_forms_and_monte_carlo():
    torch.manual_seed(0)
    mean, log_var, prior = torch.randn(4, 3), torch.randn(4, 3), torch.randn(4, 3)
    normal = torch.distributions.Normal
    q, p = normal(mean, (log_var / 2).exp()), normal(prior, 1.0)
    torch.testing.assert_close(gaussian_kl(mean, log_var, prior), torch.distributions.kl_divergence(q, p).sum(dim=1))
    logits = torch.randn(4, 6)
    uniform, law = torch.distributions.Categorical(torch.ones(4, 6)), torch.distributions.Categorical(logits=logits)
    torch.testing.assert_close(categorical_kl(logits), torch.distributions.kl_divergence(law, uniform))

    # Both together are the divergence of the joint law of (s, z) from the mixture.
    means, n = torch.randn(6, 3), 200_000
    centers, widths = torch.randn(6, 3), 0.5 * torch.randn(6, 3)
    weights = torch.distributions.Categorical(logits=logits[0])
    s = weights.sample((n,))
    z = centers[s] + (widths[s] / 2).exp() * torch.randn(n, 3)
    log_ratio = weights.log_prob(s) + normal(centers[s], (widths[s] / 2).exp()).log_prob(z).sum(dim=1)
    log_ratio -= -np.log(6) + normal(means[s], 1.0).log_prob(z).sum(dim=1)
    together = categorical_kl(logits[:1]) + (weights.probs * gaussian_kl(centers, widths, means)).sum()
    assert abs(log_ratio.mean() - together.item()) < 4 * log_ratio.std() / np.sqrt(n)


def test_bound_in_closed_form(low_rank):
    """A likelihood that ignores z, and a sure component: the bound is the log-likelihood less both divergences."""
    counts = torch.as_tensor(low_rank.train.X[:8])
    network = network_of(HIVAEPoisson, low_rank.train.X, n_components=3, n_latent=2).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()  # all parameters of the likelihood are 0, q(z) is standard normal
        observed = torch.rand(counts.shape) < 0.5
        network.component[-1].bias[1] = 100.0
        network.prior_mean.weight[:, 1] = torch.tensor([3.0, 4.0])
        bound = network.elbo(counts, observed, observed)
    rate = (low_rank.train.X.mean(axis=0, dtype=float) + 1) * (1 + 1e-4)
    log_p = np.sum(stats.poisson.logpmf(low_rank.train.X[:8] + 1, rate), axis=1, where=observed.numpy())
    np.testing.assert_allclose(bound, log_p - np.log(3) - (3**2 + 4**2) / 2, rtol=1e-5)


@BOTH
def test_missing_entries_do_not_matter(low_rank, fitted, kind):
    network, counts = fitted[kind].network, torch.as_tensor(low_rank.train.X[:30])
    torch.manual_seed(0)
    observed = torch.rand(counts.shape) < 0.5
    disturbed = torch.where(observed, counts, 500.0)
    bounds = []
    for x in (counts, disturbed):
        torch.manual_seed(1)
        with torch.no_grad():
            bounds.append(network.elbo(x, observed, observed))
    assert torch.equal(*bounds)
    torch.manual_seed(1)
    with torch.no_grad():
        assert (network.elbo(counts, torch.ones_like(observed), observed) < bounds[0]).all(), (
            "more entries, less likely"
        )
    # Moments of the genes are over observed entries as well.
    observed = np.random.default_rng(0).random(low_rank.train.shape) < 0.7
    moments = network_of(kind, np.where(observed, low_rank.train.X, 0), observed)
    np.testing.assert_allclose(moments.count_mean, np.mean(low_rank.train.X, axis=0, where=observed), rtol=1e-4)


@BOTH
def test_draws_spread_around_the_answer(low_rank, fitted, kind):
    method, sites = fitted[kind], low_rank.sites
    single = method.impute(low_rank.test, sites)[sites]
    draws = method.impute(low_rank.test, sites, n_samples=60)[:, sites]
    assert np.corrcoef(draws.mean(axis=0), single)[0, 1] > 0.95
    if kind is HIVAEPoisson:
        assert (draws == np.round(draws)).all()
        assert draws.var(axis=0, ddof=1).mean() > 0.9 * single.mean(), "at least Poisson noise"
    else:
        assert (draws.std(axis=0) > 0).mean() > 0.95
    assert np.array_equal(method.impute(low_rank.test, sites)[sites], single), "a single answer is not random"


@BOTH
def test_training_on_cells_with_gaps(low_rank, kind):
    rng = np.random.default_rng(0)
    observed = rng.random(low_rank.train.shape) < 0.8
    method = kind(max_epochs=2, **SMALL).fit(low_rank.train, observed=observed)
    answer = method.impute(low_rank.test, low_rank.sites, observed=rng.random(low_rank.test.shape) < 0.8)
    assert np.isfinite(answer).all()


def test_components_find_the_types_of_cells(low_rank, fitted):
    """Cells of one type mostly share their component, or at least latent means that are closer than between types."""
    network, kinds = fitted[HIVAEPoisson].network, low_rank.test.obs["type"].to_numpy()
    counts = torch.as_tensor(low_rank.test.X)
    everything = torch.ones_like(counts, dtype=torch.bool)
    with torch.no_grad():
        s = network.component_logits(counts, everything).softmax(dim=1)
        z, _ = network.latent_posterior(counts, everything, s)
    z = np.concatenate([z.numpy(), s.numpy()], axis=1)
    same = kinds[:, None] == kinds
    distance = np.linalg.norm(z[:, None] - z, axis=2)
    assert distance[same].mean() < 0.6 * distance[~same].mean()


def test_bound_is_that_of_the_authors_code_for_its_layers(low_rank):
    """One linear layer each: components, mean and log-variance of z, numbers of genes; and the KL terms as written there."""
    sizes = {"n_hidden": 0, "n_latent": 4, "n_components": 3, "n_gene_latent": 1}
    counts, n = low_rank.train.X[:6], low_rank.train.n_vars
    network = network_of(HIVAEPoisson, counts, **sizes).eval()
    shapes = [tuple(part[0].weight.shape) for part in (network.component, network.latent, network.decoder)]
    assert shapes == [(3, n), (8, n + 3), (n, 4)]
    x, observed = torch.as_tensor(counts), torch.ones(counts.shape, dtype=torch.bool)
    with torch.no_grad():
        torch.manual_seed(1)
        found = network.elbo(x, observed, observed)
        torch.manual_seed(1)
        logits = network.component_logits(x, observed)
        s = torch.nn.functional.gumbel_softmax(logits, network.temperature, hard=True)
        mu, log_var = network.latent_posterior(x, observed, s)
        z = mu + torch.randn_like(mu) * (log_var / 2).exp()
        rate = network.rate(network.parameters_of(z, s))
        log_p = ((x + 1) * rate.log() - rate - torch.lgamma(x + 2)).sum(1)
        log_pi = logits.log_softmax(1)
        kl_s = (log_pi.exp() * log_pi).sum(1) + np.log(3)
        kl_z = 0.5 * (log_var.exp() + (network.prior_mean(s) - mu) ** 2 - log_var - 1).sum(1)
    torch.testing.assert_close(found, log_p - kl_z - kl_s, rtol=1e-3, atol=1e-3)
