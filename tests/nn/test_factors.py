import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal

from sccountsdiff.nn import Factors, factor_posterior, fit_factors
from sccountsdiff.nn.factors import BOUND


def normal_values(n_cells, seed):
    """Loadings and noise of eight genes, and values of cells that follow them."""
    rng = np.random.default_rng(seed)
    loadings, noise = rng.normal(size=(8, 2)), rng.uniform(0.2, 0.6, 8)
    values = rng.normal(size=(n_cells, 2)) @ loadings.T + rng.normal(size=(n_cells, 8)) * np.sqrt(noise)
    observed = rng.random(values.shape) < 0.6
    return (torch.from_numpy(array) for array in (loadings, noise, values, observed))


def test_the_posterior_is_that_of_the_joint_normal_distribution():
    """With nothing, something and everything observed."""
    loadings, noise, values, observed = normal_values(30, seed=0)
    observed[0], observed[1] = False, True
    mean, root = factor_posterior(values * observed, observed.double(), loadings, noise)
    covariance = torch.cholesky_inverse(root)
    for i, seen in enumerate(observed):
        of_genes = loadings[seen] @ loadings[seen].T + torch.diag(noise[seen])
        weights = torch.linalg.solve(of_genes, loadings[seen]).T
        torch.testing.assert_close(mean[i], weights @ values[i, seen])
        torch.testing.assert_close(covariance[i], torch.eye(2).double() - weights @ loadings[seen])


def test_one_row_stands_for_all_cells():
    loadings, noise, values, _ = normal_values(30, seed=1)
    one, _ = factor_posterior(values, torch.ones(1, 8).double(), loadings, noise)
    each, _ = factor_posterior(values, torch.ones(30, 8).double(), loadings, noise)
    torch.testing.assert_close(one, each)


def test_complete_data_are_fitted_as_data_of_which_all_is_observed():
    _, _, values, _ = normal_values(300, seed=2)
    for short, long in zip(fit_factors(values, None, 2), fit_factors(values, torch.ones(300, 8) > 0, 2), strict=True):
        torch.testing.assert_close(short, long)


def test_the_covariance_of_incomplete_data_is_found():
    loadings, noise, values, observed = normal_values(5000, seed=3)
    fitted, fitted_noise = fit_factors(values * observed, observed, n_factors=2, n_rounds=100)
    covariance = loadings @ loadings.T + torch.diag(noise)
    scale = covariance.diagonal().sqrt()
    difference = (fitted @ fitted.T + torch.diag(fitted_noise) - covariance) / torch.outer(scale, scale)
    assert difference.abs().max() < 0.07  # the standard error of a variance from 3,000 values is 0.026


def test_no_round_lowers_the_likelihood():
    """What expectation maximisation promises, here without a prior."""
    _, _, values, observed = normal_values(60, seed=4)

    def log_likelihood(n_rounds):
        loadings, noise = fit_factors(values * observed, observed, n_factors=2, n_rounds=n_rounds, prior_cells=0)
        covariance = (loadings @ loadings.T + torch.diag(noise)).numpy()
        return sum(
            multivariate_normal.logpdf(values[i, seen].numpy(), cov=covariance[np.ix_(seen, seen)])
            for i, seen in enumerate(observed.numpy())
            if seen.any()
        )

    likelihoods = [log_likelihood(n) for n in range(1, 12)]
    assert (np.diff(likelihoods) > 0).all()


@pytest.fixture(scope="module")
def counts():
    """Counts of 20 genes that follow two factors, in cells of one depth."""
    draw = torch.Generator().manual_seed(0)
    z, loadings = torch.randn(800, 2, generator=draw), torch.randn(2, 20, generator=draw)
    return torch.poisson((4 + 0.7 * z @ loadings).clamp_min(0.3) ** 2, generator=draw), z


def test_factors_are_found_from_half_of_the_entries(counts):
    """Up to a rotation: what is left of the true factors after regression on the found ones."""
    x, z = counts
    factors = Factors(20, 2)
    factors.fit(x, torch.zeros(800, 1))
    observed = (torch.rand(x.shape, generator=torch.Generator().manual_seed(1)) < 0.5).float()
    found = factors(x * observed, observed, torch.zeros(800, 1))
    fit = found @ torch.linalg.lstsq(found, z).solution
    assert ((fit - z).var(0) / z.var(0)).max() < 0.3


def test_of_a_cell_of_which_nothing_is_seen_factors_are_zero(counts):
    factors = Factors(20, 2)
    factors.fit(counts[0], torch.zeros(800, 1))
    assert factors(torch.zeros(1, 20), torch.zeros(1, 20), torch.zeros(1, 1)).abs().max() == 0


def test_a_cell_unlike_all_others_is_drawn_in(counts):
    factors = Factors(20, 2)
    factors.fit(counts[0], torch.zeros(800, 1))
    found = factors(torch.full((1, 20), 1e6), torch.ones(1, 20), torch.zeros(1, 1))
    assert torch.isfinite(found).all() and found.abs().max() <= BOUND


def test_before_the_fit_factors_have_no_effect():
    assert Factors(20, 2)(torch.full((3, 20), 5.0), torch.ones(3, 20), torch.zeros(3, 1)).abs().max() == 0


def test_fewer_cells_than_factors():
    factors = Factors(20, 6)
    factors.fit(torch.poisson(torch.full((3, 20), 5.0)), torch.zeros(3, 1))
    assert torch.isfinite(factors.loadings).all() and factors.loadings[:, 3:].abs().max() == 0


def test_factors_of_incomplete_data_are_those_of_complete_data(counts):
    x, _ = counts
    missing = torch.rand(x.shape, generator=torch.Generator().manual_seed(2)) < 0.3
    incomplete, complete = Factors(20, 2), Factors(20, 2)
    incomplete.fit(x.masked_fill(missing, 0), torch.zeros(800, 1), missing)
    complete.fit(x, torch.zeros(800, 1))
    difference = incomplete.loadings @ incomplete.loadings.T - complete.loadings @ complete.loadings.T
    # Roots have a standard deviation near 1; from 560 cells a covariance has a standard error of about 0.06.
    assert difference.abs().max() < 0.3


def test_loaded_factors_are_the_same(counts):
    x, depth = counts[0], torch.zeros(800, 1)
    factors, loaded = Factors(20, 2), Factors(20, 2)
    factors.fit(x, depth)
    loaded.load_state_dict(factors.state_dict())
    observed = (torch.rand(x.shape, generator=torch.Generator().manual_seed(1)) < 0.5).float()
    assert torch.equal(loaded(x, observed, depth), factors(x, observed, depth))


def test_depth_may_be_told_last(counts):
    """The equations of the observed entries are those of counts at any depth."""
    x = counts[0][:50]
    factors = Factors(20, 2)
    factors.fit(counts[0], torch.zeros(800, 1))
    observed = (torch.rand(x.shape, generator=torch.Generator().manual_seed(1)) < 0.5).float()
    equations = factors.equations(x, observed)
    for depth in (0.3, 1.0, 4.0):
        log_depth = torch.full((50, 1), depth).log()
        residuals = (torch.sqrt(x / depth) - factors.centre) * observed
        mean, _ = factor_posterior(residuals, observed, factors.loadings, factors.noise)
        torch.testing.assert_close(
            factors.solve(equations, log_depth), BOUND * torch.tanh(mean / BOUND), atol=1e-4, rtol=1e-4
        )
