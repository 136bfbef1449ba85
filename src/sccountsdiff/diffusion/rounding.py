"""From a real-valued prediction to whole births (Section 3.5 and its ablations)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor

from sccountsdiff.checks import one_of
from sccountsdiff.diffusion.host import host_sees
from sccountsdiff.diffusion.prediction import HurdlePrediction, MixturePrediction, Prediction
from sccountsdiff.diffusion.process import binomial
from sccountsdiff.registry import Registry

Rounding: TypeAlias = Callable[[Prediction, Tensor, Tensor, torch.Generator | None], Tensor]
"""Births from a prediction, its mean, the birth probability and a source of randomness."""


ROUNDINGS: Registry[Rounding] = Registry("rounding")

MEAN_ROUNDINGS = ("random", "nearest", "poisson")
"""Those that need only the mean; others draw from the predicted law, and belong to a head."""

LARGEST_MEAN = 2.0**53
"""Counts up to here are taken as data; a prediction beyond has run away."""


def draw_births(
    prediction: Prediction, beta: Tensor, rounding: str, generator: torch.Generator | None = None
) -> Tensor:
    """Draw the births of one reverse step, each of the remaining counts being born with probability ``beta``.

    Parameters
    ----------
    prediction
        Law of the remaining counts.
    beta
        Birth probability (:func:`birth_probability`).
    rounding
        ``"random"``: ``Bin(y, beta)`` with ``y`` the mean rounded up or down at random so that its expectation stays
        (the paper). ``"nearest"``: ``y`` rounded to the nearest integer. ``"poisson"``: ``Poisson(beta * mean)``.
        ``"nb"``: negative binomial with mean ``beta * mean`` and the predicted dispersion, which is the exact law of
        a thinned negative binomial. ``"mixture"`` and ``"hurdle"``: the same for a :class:`MixturePrediction` and a
        :class:`HurdlePrediction` of negative binomials.
    generator
        Source of randomness.

    Returns
    -------
    Whole numbers of births, in the shape of the prediction.

    Examples
    --------
    >>> import torch
    >>> from sccountsdiff.diffusion import Prediction, draw_births
    >>> remaining = Prediction(torch.tensor([2.4, 3.0]).log())
    >>> draw_births(remaining, torch.tensor(1.0), "nearest").tolist()
    [2.0, 3.0]
    """
    one_of("rounding", rounding, ROUNDINGS.names())
    mean = checked_mean(prediction)
    return ROUNDINGS[rounding](prediction, mean, torch.as_tensor(beta, dtype=mean.dtype, device=mean.device), generator)


def _worth_drawing(alive: Tensor) -> tuple[Tensor | slice, ...]:
    """Where there is anything to draw, as far as the host sees it; on a device, which would have to be waited for, everywhere."""
    return alive.nonzero(as_tuple=True) if host_sees(alive) else (slice(None),) * alive.ndim


def checked_mean(prediction: Prediction) -> Tensor:
    """The predicted mean; an error if it is no number or has run away, which would make draws of nonsense."""
    mean = prediction.mean
    check_mean(mean)
    return mean


def check_mean(mean: Tensor) -> None:
    """Refuse expected counts that are no number or have run away; a device is waited for."""
    if mean.numel() and not float(mean.max()) <= LARGEST_MEAN:  # NaN compares as False
        raise ValueError(
            f"The network predicts a count of {float(mean.max()):g}: it has run away. Use less `guidance` (1 is the "
            "conditional model) or, if that is not the reason, train again with a smaller learning rate."
        )


@ROUNDINGS.register("random")
def _random(prediction: Prediction, mean: Tensor, beta: Tensor, generator: torch.Generator | None) -> Tensor:
    floor = mean.floor()
    up = torch.rand(mean.shape, generator=generator, device=mean.device, dtype=mean.dtype) < mean - floor
    return binomial(floor + up, beta, generator)


@ROUNDINGS.register("nearest")
def _nearest(prediction: Prediction, mean: Tensor, beta: Tensor, generator: torch.Generator | None) -> Tensor:
    return binomial(mean.round(), beta, generator)


@ROUNDINGS.register("poisson")
def _poisson(prediction: Prediction, mean: Tensor, beta: Tensor, generator: torch.Generator | None) -> Tensor:
    return torch.poisson(beta * mean, generator=generator)


@ROUNDINGS.register("nb")
def _negative_binomial(prediction: Prediction, mean: Tensor, beta: Tensor, generator: torch.Generator | None) -> Tensor:
    if prediction.log_dispersion is None:
        raise ValueError("`rounding='nb'` needs a model that predicts a dispersion (`head='nb'`).")
    mean = beta * mean
    # A Poisson process on [0, 1] whose rate is Gamma(theta) with the given mean. Its first event comes after time tau
    # with probability (1 + tau mean / theta)^-theta; most entries have none, and cost one uniform number. The others
    # have one event, and those of the rest of the time, given that the rate has shown one event by tau.
    # (torch.distributions takes no generator.)
    theta = prediction.log_dispersion.exp()
    log_v = torch.rand(mean.shape, generator=generator, device=mean.device, dtype=mean.dtype).log()
    has_any = log_v > -theta * torch.log1p(mean / theta)
    some = _worth_drawing(has_any)
    rate = _rate_after_first(theta[some], mean[some], log_v[some], generator)
    births = torch.zeros_like(mean)
    births[some] = _given_any(has_any[some], 1.0, rate, generator)
    return births


def _given_any(has_any: Tensor, first: Tensor | float, rate: Tensor, generator: torch.Generator | None) -> Tensor:
    """The first event, if there is any, and those after it; without any, the rate may not even be a number."""
    events = first + torch.poisson(torch.where(has_any, rate, 0.0), generator=generator)
    return torch.where(has_any, events, 0.0)


def _rate_after_first(theta: Tensor, mean: Tensor, log_v: Tensor, generator: torch.Generator | None) -> Tensor:
    """Expected events after the first one, which comes where the probability that there is none yet is ``v``."""
    inverse_scale = theta / mean
    tau = (inverse_scale * torch.expm1(-log_v / theta)).clamp(0, 1)
    return torch._standard_gamma(theta + 1, generator=generator) * (1 - tau) / (inverse_scale + tau)


@ROUNDINGS.register("mixture")
def _mixture(prediction: Prediction, mean: Tensor, beta: Tensor, generator: torch.Generator | None) -> Tensor:
    if not isinstance(prediction, MixturePrediction):
        raise ValueError("`rounding='mixture'` needs a model that predicts a mixture (`head='gamma_mixture'`).")
    picked = prediction.pick(torch.rand(mean.shape, generator=generator, device=mean.device, dtype=mean.dtype))
    return _negative_binomial(picked, picked.mean, beta, generator)


@ROUNDINGS.register("hurdle")
def _hurdle(prediction: Prediction, mean: Tensor, beta: Tensor, generator: torch.Generator | None) -> Tensor:
    if not isinstance(prediction, HurdlePrediction) or prediction.law is None:
        raise ValueError("`rounding='hurdle'` needs a model that predicts a hurdle (`head='truncated_nb'`).")
    # Where there is any event at all, the first one comes as under the law given that it has one. Thinned, the first is
    # kept with probability beta, and of the others what a Poisson process keeps.
    positive = torch.sigmoid(-prediction.logit_zero)
    u = torch.rand(mean.shape, generator=generator, device=mean.device, dtype=mean.dtype)
    has_any = u < positive
    some = _worth_drawing(has_any)
    uniform = partial(torch.rand, u[some].shape, generator=generator, device=mean.device, dtype=mean.dtype)
    law = prediction.law.map(lambda value: value[some]).given_positive(uniform())
    if law.log_dispersion is None:
        raise ValueError("`rounding='hurdle'` needs a law with a dispersion.")
    log_v = torch.log1p(-law.any_of(1.0) * (u[some] / positive[some]))
    rate = _rate_after_first(law.log_dispersion.exp(), law.mean, log_v, generator)
    beta = beta.expand_as(mean)[some]
    first = (uniform() < beta).to(mean.dtype)
    births = torch.zeros_like(mean)
    births[some] = _given_any(has_any[some], first, beta * rate, generator)
    return births
