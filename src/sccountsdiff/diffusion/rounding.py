"""From a real-valued prediction to whole births (Section 3.5 and its ablations)."""

from __future__ import annotations

import torch
from torch import Tensor

from sccountsdiff.checks import one_of
from sccountsdiff.diffusion.prediction import Prediction
from sccountsdiff.diffusion.process import binomial

ROUNDINGS = ("random", "nearest", "poisson", "nb")

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
        a thinned negative binomial.
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
    one_of("rounding", rounding, ROUNDINGS)
    mean = checked_mean(prediction)
    beta = torch.as_tensor(beta, dtype=mean.dtype, device=mean.device)
    if rounding == "random":
        floor = mean.floor()
        up = torch.rand(mean.shape, generator=generator, device=mean.device, dtype=mean.dtype) < mean - floor
        return binomial(floor + up, beta, generator)
    if rounding == "nearest":
        return binomial(mean.round(), beta, generator)
    if rounding == "poisson":
        return torch.poisson(beta * mean, generator=generator)
    return _negative_binomial(beta * mean, prediction.log_dispersion, generator)


def checked_mean(prediction: Prediction) -> Tensor:
    """The predicted mean; an error if it is no number or has run away, which would make draws of nonsense."""
    mean = prediction.mean
    if mean.numel() and not float(mean.max()) <= LARGEST_MEAN:  # NaN compares as False
        raise ValueError(
            f"The network predicts a count of {float(mean.max()):g}: it has run away. Use less `guidance` (1 is the "
            "conditional model) or, if that is not the reason, train again with a smaller learning rate."
        )
    return mean


def _negative_binomial(mean: Tensor, log_dispersion: Tensor | None, generator: torch.Generator | None) -> Tensor:
    if log_dispersion is None:
        raise ValueError("`rounding='nb'` needs a model that predicts a dispersion (`head='nb'`).")
    # A Poisson process on [0, 1] whose rate is Gamma(theta) with the given mean. Its first event comes after time tau
    # with probability (1 + tau mean / theta)^-theta; most entries have none, and cost one uniform number. The others
    # have one event, and those of the rest of the time, given that the rate has shown one event by tau.
    # (torch.distributions takes no generator.)
    theta = log_dispersion.exp()
    log_v = torch.rand(mean.shape, generator=generator, device=mean.device, dtype=mean.dtype).log()
    alive = (log_v > -theta * torch.log1p(mean / theta)).nonzero(as_tuple=True)
    theta, log_v = theta[alive], log_v[alive]
    inverse_scale = theta / mean[alive]
    tau = (inverse_scale * torch.expm1(-log_v / theta)).clamp(0, 1)
    rate = torch._standard_gamma(theta + 1, generator=generator) * (1 - tau) / (inverse_scale + tau)
    births = torch.zeros_like(mean)
    births[alive] = 1 + torch.poisson(rate, generator=generator)
    return births
