"""The hurdle takes in the noised count by Bayes' rule, and is the negative binomial where zeros have no odds of their own."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from sccountsdiff.diffusion import count_loss
from sccountsdiff.nn import GammaMixture, NegativeBinomial, TruncatedGammaMixture, TruncatedNegativeBinomial

COUNTS = np.arange(3000)


@pytest.mark.parametrize("log_odds", [-40.0, -2.0, 1.5])
def test_is_bayes_rule(given_input, remaining_by_enumeration, log_odds):
    outputs = torch.randn(3, 4, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    outputs[2] = log_odds
    head = TruncatedNegativeBinomial()
    found = head.predict(outputs, given_input)
    losses = {}
    for n in (0.0, 2.0):
        y = torch.full((4, 3), n, dtype=torch.float64)
        losses[int(n)] = head.loss(y, found) - count_loss(y, found.log_mean)
    for place in np.ndindex(4, 3):
        mu = math.exp(given_input.log_mean[place] + outputs[(0, *place)])
        theta = math.exp(1 + outputs[(1, *place)])
        prior = stats.nbinom(theta, theta / (theta + mu)).pmf(COUNTS)
        prior[0] *= math.exp(log_odds)
        expected = remaining_by_enumeration(place, prior / prior.sum())
        counts = np.arange(len(expected))
        assert float(found.mean[place]) == pytest.approx((expected * counts).sum(), rel=1e-6)
        for share in (0.1, 1.0):
            left = 1 - (expected * (1 - share) ** counts).sum()
            assert float(found.any_of(share)[place]) == pytest.approx(left, rel=1e-6)
        for n, loss in losses.items():
            assert float(loss[place]) == pytest.approx(-math.log(math.factorial(n) * expected[n]), rel=1e-5)


def test_starts_as_the_negative_binomial(given_input):
    outputs = torch.randn(3, 4, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    outputs[2] = 0
    found, expected = (
        TruncatedNegativeBinomial().predict(outputs, given_input),
        NegativeBinomial().predict(outputs[:2], given_input),
    )
    torch.testing.assert_close(found.log_mean, expected.log_mean)
    torch.testing.assert_close(found.any_of(0.3), expected.any_of(0.3))


def test_gradients_are_finite_for_all_odds(given_input):
    given = replace(
        given_input, **{name: getattr(given_input, name).float() for name in ("log_mean", "xt", "p", "log_lost")}
    )
    head = TruncatedNegativeBinomial()
    for log_odds in (-60.0, 0.0, 60.0):
        outputs = torch.zeros(3, 4, 3)
        outputs[2] = log_odds
        outputs.requires_grad_()
        head.loss(torch.tensor([0.0, 1.0, 50.0]).expand(4, 3), head.predict(outputs, given)).sum().backward()
        assert outputs.grad.isfinite().all() and outputs.grad.any()


def test_a_mixture_without_odds_of_its_own_for_zeros_is_the_mixture(given_input):
    outputs = torch.randn(10, 4, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    outputs[-1] = 0
    found, expected = (
        TruncatedGammaMixture().predict(outputs, given_input),
        GammaMixture().predict(outputs[:-1], given_input),
    )
    torch.testing.assert_close(found.any_of(0.3), expected.any_of(0.3))
    outputs[-1] = -60
    found = TruncatedGammaMixture().predict(outputs, given_input)
    unseen = given_input.xt == 0
    torch.testing.assert_close(found.any_of(1.0)[unseen], torch.ones_like(outputs[0])[unseen])
    torch.testing.assert_close(found.any_of(0.3)[~unseen], expected.any_of(0.3)[~unseen])


@pytest.mark.parametrize("head", ["truncated_nb", "truncated_mixture"])
@pytest.mark.parametrize("setup", [{}, {"zeros": "missing"}], ids=["all counts", "without zeros"])
def test_a_model_with_it(use_a_head, head, setup):
    use_a_head(head, **setup)
