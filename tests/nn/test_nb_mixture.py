"""Mixtures of negative binomials take in the noised count by Bayes' rule, and start from the gene mean."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from sccountsdiff.diffusion import count_loss
from sccountsdiff.nn import HeadInput, NegativeBinomial, NegativeBinomialMixture
from sccountsdiff.nn.nb_mixture import SPREAD

COUNTS = np.arange(3000)


def numbers(*shape) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def prior_of(place, outputs, log_mean) -> np.ndarray:
    """Probabilities of all counts of an entry before any of it is seen, under two components."""
    shift, logit, log_ratio, *log_thetas = (float(value[place]) for value in outputs)
    weights, mu = [1 / (1 + math.exp(logit)), 1 / (1 + math.exp(-logit))], math.exp(log_mean + shift)
    first = mu / (weights[0] + weights[1] * math.exp(log_ratio))
    means = [first, first * math.exp(log_ratio)]
    thetas = [
        math.exp(1 + start + log_theta) for start, log_theta in zip((SPREAD / 2, -SPREAD / 2), log_thetas, strict=True)
    ]
    laws = [stats.nbinom(theta, theta / (theta + own)).pmf(COUNTS) for theta, own in zip(thetas, means, strict=True)]
    return sum(weight * law for weight, law in zip(weights, laws, strict=True))


def test_is_bayes_rule(given_input, remaining_by_enumeration):
    outputs, head = numbers(5, 4, 3), NegativeBinomialMixture()
    found = head.predict(outputs, given_input)
    y = torch.full((4, 3), 2.0, dtype=torch.float64)
    loss = head.loss(y, found) - count_loss(y, found.log_mean)
    for place in np.ndindex(4, 3):
        expected = remaining_by_enumeration(place, prior_of(place, outputs, float(given_input.log_mean[place])))
        counts = np.arange(len(expected))
        assert float(found.mean[place]) == pytest.approx((expected * counts).sum(), rel=1e-6)
        assert float(found.any_of(0.3)[place]) == pytest.approx(1 - (expected * 0.7**counts).sum(), rel=1e-6)
        assert float(loss[place]) == pytest.approx(-math.log(2 * expected[2]), rel=1e-6), "but for log y!"


def test_untrained_all_components_have_the_mean_of_the_gene(given_input):
    law = NegativeBinomialMixture().predict(
        torch.zeros(5, 4, 3), replace(given_input, xt=torch.zeros(4, 3), p=torch.zeros(4, 3))
    )
    for component in law.components:
        torch.testing.assert_close(component.log_mean, law.log_mean)


def test_one_component_is_the_negative_binomial(given_input):
    outputs = numbers(2, 4, 3)
    given = replace(given_input, largest=torch.tensor([2.0, 9.0, 50.0], dtype=torch.float64))
    found, expected = NegativeBinomialMixture(1).predict(outputs, given), NegativeBinomial().predict(outputs, given)
    torch.testing.assert_close(found.log_mean, expected.log_mean)
    torch.testing.assert_close(found.any_of(0.7), expected.any_of(0.7))


@pytest.mark.parametrize("n_components", [1, 2, 5])
def test_with_nothing_seen_the_mean_is_that_of_all_components(given_input, n_components):
    nothing = replace(given_input, xt=torch.zeros(4, 3), p=torch.zeros(4, 3))
    head = NegativeBinomialMixture(n_components)
    outputs = numbers(head.n_outputs, 4, 3)
    found = head.predict(outputs, nothing)
    torch.testing.assert_close(found.log_mean, nothing.log_mean + outputs[0] + nothing.log_lost)


def test_a_subclass_with_a_loss_of_its_own_is_trained_with_that(given_input):
    class Doubled(NegativeBinomialMixture):
        def loss(self, y, prediction):
            return 2 * super().loss(y, prediction)

    y, outputs = torch.full((4, 3), 2.0, dtype=torch.float64), numbers(5, 4, 3)
    found, once = (
        kind().total_loss(y, outputs, given_input, torch.ones_like(y)) for kind in (Doubled, NegativeBinomialMixture)
    )
    torch.testing.assert_close(found, 2 * once)


def test_refuses_no_components():
    with pytest.raises(ValueError, match="`n_components` must be a whole number of at least 1"):
        NegativeBinomialMixture(0)


@pytest.mark.parametrize("head", ["nb_mixture", NegativeBinomialMixture(3)], ids=["name", "object"])
def test_a_model_with_it(use_a_head, head):
    use_a_head(head)


@pytest.mark.parametrize("n_components", [1, 2, 3])
def test_without_noised_counts_the_law_is_what_bayes_rule_leaves_of_it(n_components, given_input, monkeypatch):
    """Which takes another way if nobody sees that there are none, as on a GPU."""
    head, outputs = NegativeBinomialMixture(n_components), numbers(3 * n_components - 1, 4, 3)
    given = replace(given_input, xt=torch.zeros(4, 3).double(), p=torch.zeros(4, 3).double(), log_dispersion=0.4)
    found = head.predict(outputs, given)
    monkeypatch.setattr(HeadInput, "is_without_noised", False)
    expected = head.predict(outputs, given)
    for ask in (
        lambda law: law.log_mean,
        lambda law: law.variance,
        lambda law: law.any_of(0.3),
        lambda law: law.log_zero,
    ):
        torch.testing.assert_close(ask(found), ask(expected))


def test_what_is_expected_of_a_subclass_is_the_mean_of_its_own_law(given_input):
    class Doubled(NegativeBinomialMixture):
        def predict(self, outputs, given):
            law = super().predict(outputs, given)
            return law.moved_to(law.log_mean + math.log(2))

    given, outputs = replace(given_input, xt=torch.zeros(4, 3), p=torch.zeros(4, 3)), numbers(5, 4, 3)
    ratio = Doubled().expect(outputs, given).mean / NegativeBinomialMixture().expect(outputs, given).mean
    torch.testing.assert_close(ratio, torch.full_like(ratio, 2.0))
