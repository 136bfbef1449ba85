"""A law of the remaining counts is mapped as a whole, whatever parameters it has."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from sccountsdiff.diffusion import MISSING, NOISED, OBSERVED, HurdlePrediction, MixturePrediction, Prediction
from sccountsdiff.diffusion.prediction import numbers


def test_mean_is_that_of_the_logarithm():
    mean = torch.tensor([[0.0, 0.5], [3.0, 2.0**40]])
    torch.testing.assert_close(Prediction(mean.log()).mean, mean)


def test_every_parameter_is_mapped():
    both = Prediction(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([4.0, 5.0, 6.0]))
    some = both.map(lambda parameter: parameter[1:])
    assert some.log_mean.tolist() == [2, 3] and some.log_dispersion.tolist() == [5, 6]
    assert both.log_mean.tolist() == [1, 2, 3], "the law itself stays"


def test_what_is_unknown_stays_unknown():
    assert Prediction(torch.zeros(3)).map(torch.exp).log_dispersion is None


def test_maps_compose():
    law = Prediction(torch.rand(4, 5), torch.rand(4, 5))
    first, second = (lambda parameter: 2 * parameter), (lambda parameter: parameter.flatten()[3:9])
    at_once, in_turn = law.map(lambda parameter: second(first(parameter))), law.map(first).map(second)
    assert torch.equal(at_once.log_mean, in_turn.log_mean)
    assert torch.equal(at_once.log_dispersion, in_turn.log_dispersion)


def test_a_law_with_further_parameters_keeps_its_kind():
    @dataclasses.dataclass(frozen=True)
    class ZeroInflated(Prediction):
        logit_zero: torch.Tensor | None = None

    law = ZeroInflated(torch.zeros(3), None, torch.tensor([1.0, 2.0, 3.0]))
    found = law.map(lambda parameter: parameter[:1])
    assert type(found) is ZeroInflated
    assert found.logit_zero.tolist() == [1] and found.log_mean.tolist() == [0] and found.log_dispersion is None


def test_a_law_does_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Prediction(torch.zeros(3)).log_mean = torch.ones(3)


def mixture() -> MixturePrediction:
    laws = [Prediction(torch.rand(4, 5), torch.rand(4, 5)) for _ in range(3)]
    return MixturePrediction.of(torch.rand(3, 4, 5).log_softmax(0), laws)


def test_laws_within_laws_are_mapped():
    law = mixture()
    some = law.map(lambda parameter: parameter[:2])
    assert [part.log_mean.shape for part in some.components] == [(2, 5)] * 3
    torch.testing.assert_close(some.any_of(0.3), law.any_of(0.3)[:2])
    hurdle = HurdlePrediction.of(Prediction(torch.rand(4, 5), torch.rand(4, 5)), torch.randn(4, 5))
    torch.testing.assert_close(hurdle.map(torch.t).any_of(0.3), hurdle.any_of(0.3).T)


def test_one_component_is_picked_as_often_as_it_weighs():
    law = mixture()
    u = (torch.arange(10_000) + 0.5) / 10_000
    means = torch.stack([law.pick(each.expand(4, 5)).mean for each in u])
    torch.testing.assert_close(means.mean(0), law.mean, rtol=1e-3, atol=0)


def test_moved_laws_have_the_mean_that_was_asked_for():
    asked = torch.randn(4, 5)
    plain = Prediction(torch.rand(4, 5), torch.rand(4, 5))
    for law in (plain, mixture(), HurdlePrediction.of(plain, torch.zeros(4, 5))):
        torch.testing.assert_close(law.moved_to(asked).log_mean, asked)
    moved, truncated = (HurdlePrediction.of(plain, torch.full((4, 5), -60.0)) for _ in range(2))
    moved = moved.moved_to(truncated.log_mean + 1)
    assert (moved.log_mean > truncated.log_mean).all()
    torch.testing.assert_close(moved.any_of(1.0), torch.ones(4, 5))  # still no zeros


def test_the_states_of_an_entry_are_told_apart():
    assert len({OBSERVED, NOISED, MISSING}) == 3


@pytest.mark.parametrize("log_zero_odds", [-50.0, -2.0, 0.0, 2.0])
def test_a_hurdle_moves_to_the_mean_that_is_asked_for(log_zero_odds):
    law = Prediction(torch.tensor([0.1, 1.0, 20.0]).log(), torch.zeros(3))
    hurdle = HurdlePrediction.of(law, torch.full((3,), log_zero_odds))
    wanted = hurdle.log_mean + torch.tensor([0.7, 0.3, -0.5])
    torch.testing.assert_close(hurdle.moved_to(wanted).log_mean, wanted, atol=1e-5, rtol=0)


def test_a_mixture_of_laws_with_and_without_dispersion_is_refused():
    one, half = torch.zeros(1), torch.tensor([0.5]).log()
    with pytest.raises(ValueError, match="all laws of a mixture have a dispersion, or none"):
        MixturePrediction.of([half, half], [Prediction(one), Prediction(one, one)])


def test_numbers_are_those_of_the_mask():
    mask = torch.rand(7, 5, generator=torch.Generator().manual_seed(0)) < 0.5
    for dtype in (torch.float32, torch.float64):
        assert torch.equal(numbers(mask, dtype), mask.to(dtype)) and torch.equal(
            numbers(mask.T, dtype), mask.T.to(dtype)
        )
