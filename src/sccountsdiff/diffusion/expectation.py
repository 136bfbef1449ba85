"""Expected logarithms of counts, and the estimate of a count that follows from them."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sccountsdiff.diffusion.prediction import Prediction
from sccountsdiff.diffusion.rounding import checked_mean

STEP = 0.7
"""Step of the trapezoidal rule, whose error falls as ``exp(-pi^2 / step)``: to about 1e-6."""

LINEAR = 0.05
"""Below the node where the integrand is so close to its tangent at 0, the rest is summed by hand."""

MOST_NODES = 120
"""More than any mean that passes for a count needs."""


def expected_log1p(prediction: Prediction, scale: Tensor | float = 1.0, beta: Tensor | float = 1.0) -> Tensor:
    """``E[log(1 + scale * b)]`` for births ``b ~ Bin(y, beta)`` under the predicted law of ``y``, entry by entry.

    ``log(1 + c b)`` is the integral of ``(1 - exp(-b w)) exp(-w / c) / w`` over ``w > 0``, and the expectation of
    ``1 - exp(-b w)`` is the probability that anything is left of ``b`` if each count is kept with probability
    ``1 - exp(-w)``, which all laws have in closed form. Over ``log w`` the trapezoidal rule needs a dozen nodes.

    Parameters
    ----------
    prediction
        Law of the remaining counts; that of one without a dispersion is Poisson.
    scale
        Factor of the counts, above 0.
    beta
        Birth probability.

    Returns
    -------
    The expectation, to a relative error of some 1e-5.

    Examples
    --------
    A count that is 0 or hardly ever 1 has a log of 0 or log 2:

    >>> import torch
    >>> from sccountsdiff.diffusion import Prediction, expected_log1p
    >>> round(expected_log1p(Prediction(torch.tensor(1e-6).log())).item() / 1e-6, 3)
    0.693
    """
    mean = beta * checked_mean(prediction)
    scale = torch.as_tensor(scale, dtype=mean.dtype, device=mean.device)
    log_w = math.log(14.0) + math.log(float(scale.max())) if scale.numel() else 0.0  # where exp(-w / c) has died away
    total = torch.zeros_like(mean)
    for _ in range(MOST_NODES):
        w = math.exp(log_w)
        term = prediction.any_of(-math.expm1(-w) * beta) * torch.exp(-w / scale)
        total = total + term
        lack = w * mean - term
        if bool((lack <= LINEAR * w * mean).all()):
            break
        log_w -= STEP
    # All nodes further down: the tangent, and the square that the last node lacks of it.
    return STEP * (total + w * mean / math.expm1(STEP) - lack / math.expm1(2 * STEP))


def log_mean(
    prediction: Prediction, n: Tensor | float = 0.0, beta: Tensor | float = 1.0, pseudo: Tensor | float = 1.0
) -> Tensor:
    """The guess of ``n + b``, with births ``b ~ Bin(y, beta)``, whose log has the least expected squared error.

    It is ``exp(E[log(pseudo + n + b)]) - pseudo``, which is below the mean: further, the wider the law.

    Parameters
    ----------
    prediction
        Law of the remaining counts.
    n
        Counts that are there already.
    beta
        Birth probability.
    pseudo
        What is added before the logarithm is taken: 1 for ``log1p`` of counts. For ``log1p`` of counts that are scaled
        to a total it is the total of the cell divided by that.

    Returns
    -------
    The guess of each entry.

    Examples
    --------
    >>> import torch
    >>> from sccountsdiff.diffusion import Prediction, log_mean
    >>> wide = Prediction(torch.tensor(100.0).log(), torch.tensor(1.0).log())
    >>> log_mean(wide).round().item()
    57.0
    """
    base = pseudo + torch.as_tensor(n, dtype=prediction.log_mean.dtype, device=prediction.log_mean.device)
    return n + base * torch.expm1(expected_log1p(prediction, 1 / base, beta))
