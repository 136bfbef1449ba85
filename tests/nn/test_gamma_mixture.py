"""The mixture of gammas takes in the noised count by Bayes' rule, and starts from the gene mean."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from sccountsdiff.diffusion import count_loss
from sccountsdiff.nn import GammaMixture, NegativeBinomial

COUNTS = np.arange(3000)


def prior_of(place, outputs, log_mean) -> np.ndarray:
    """Probabilities of all counts of an entry before any of it is seen."""
    (shift, *logits), shifts, log_thetas = (part[(slice(None), *place)].numpy() for part in outputs.chunk(3))
    weights = np.exp([0.0, *logits]) / np.exp([0.0, *logits]).sum()
    found = 0
    for k, weight in enumerate(weights):
        mu, theta = (2 * k + 1) / 3 * math.exp(log_mean + shift + shifts[k]), math.exp(1 + log_thetas[k])
        found = found + weight * stats.nbinom(theta, theta / (theta + mu)).pmf(COUNTS)
    return found


def test_is_bayes_rule(given_input, remaining_by_enumeration):
    outputs = torch.randn(9, 4, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    head = GammaMixture()
    found = head.predict(outputs, given_input)
    y = torch.full((4, 3), 2.0, dtype=torch.float64)
    loss = head.loss(y, found) - count_loss(y, found.log_mean)
    for place in np.ndindex(4, 3):
        expected = remaining_by_enumeration(place, prior_of(place, outputs, float(given_input.log_mean[place])))
        counts = np.arange(len(expected))
        assert float(found.mean[place]) == pytest.approx((expected * counts).sum(), rel=1e-6)
        for share in (0.1, 1.0):
            left = 1 - (expected * (1 - share) ** counts).sum()
            assert float(found.any_of(share)[place]) == pytest.approx(left, rel=1e-6)
        assert float(loss[place]) == pytest.approx(-math.log(2 * expected[2]), rel=1e-6), "but for log y!"


def test_one_component_is_the_negative_binomial(given_input):
    outputs = torch.randn(3, 4, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    given = replace(given_input, largest=torch.tensor([2.0, 9.0, 50.0], dtype=torch.float64))
    of_law = torch.stack([outputs[0] + outputs[1], outputs[2]])
    found, expected = GammaMixture(1).predict(outputs, given), NegativeBinomial().predict(of_law, given)
    torch.testing.assert_close(found.log_mean, expected.log_mean)
    torch.testing.assert_close(found.any_of(0.7), expected.any_of(0.7))


def test_untrained_and_with_nothing_seen_it_is_the_depth_scaled_mean(given_input):
    nothing = replace(given_input, xt=torch.zeros(4, 3), p=torch.zeros(4, 3))
    for n_components in (1, 2, 5):
        head = GammaMixture(n_components)
        found = head.predict(torch.zeros(head.n_outputs, 4, 3, dtype=torch.float64), nothing)
        torch.testing.assert_close(found.log_mean, nothing.log_mean + nothing.log_lost)


def test_gradients_are_finite(given_input):
    outputs = torch.randn(9, 4, 3, generator=torch.Generator().manual_seed(1)).requires_grad_()
    head = GammaMixture()
    given = replace(
        given_input, **{name: getattr(given_input, name).float() for name in ("log_mean", "xt", "p", "log_lost")}
    )
    head.loss(torch.tensor([0.0, 1.0, 50.0]).expand(4, 3), head.predict(outputs, given)).sum().backward()
    assert outputs.grad.isfinite().all() and outputs.grad.any()


def test_refuses_no_components():
    with pytest.raises(ValueError, match="`n_components` must be a whole number of at least 1"):
        GammaMixture(0)


@pytest.mark.parametrize("head", ["gamma_mixture", GammaMixture(2)], ids=["name", "object"])
def test_a_model_with_it(use_a_head, head):
    use_a_head(head)
