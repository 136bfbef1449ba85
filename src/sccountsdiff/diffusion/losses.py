"""Training losses and the likelihood bound (Section 3.2)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sccountsdiff.diffusion.host import host_sees
from sccountsdiff.diffusion.prediction import MISSING, HurdlePrediction, MixturePrediction, Prediction
from sccountsdiff.diffusion.process import thin
from sccountsdiff.diffusion.schedules import Schedule

PIECE = 2**16
"""Entries that are computed at a time on a CPU: what is computed for each then stays in the cache of a core."""


def count_loss(y: Tensor, log_y_hat: Tensor) -> Tensor:
    """``y_hat - y log y_hat`` for each entry (Eq. 6, without its weight); least where ``y_hat`` is the mean of ``y``.

    Parameters
    ----------
    y
        Counts still to come, ``x_0 - x_t``.
    log_y_hat
        Logarithm of their prediction.

    Returns
    -------
    The loss of each entry.

    Examples
    --------
    >>> import torch
    >>> from sccountsdiff.diffusion import count_loss
    >>> count_loss(torch.tensor([0.0, 3.0]), torch.tensor([0.0, 0.0])).tolist()
    [1.0, 1.0]
    """
    return log_y_hat.exp() - y * log_y_hat


def nb_loss(y: Tensor, log_mean: Tensor, log_dispersion: Tensor) -> Tensor:
    """Negative log-likelihood of a negative binomial for each entry, without the constant ``log y!``.

    Parameters
    ----------
    y
        Counts.
    log_mean
        Logarithm of the mean.
    log_dispersion
        Logarithm of the inverse dispersion theta: the variance is ``mean + mean^2 / theta``.

    Returns
    -------
    The loss of each entry.

    Examples
    --------
    >>> import torch
    >>> from sccountsdiff.diffusion import nb_loss
    >>> round(nb_loss(torch.tensor(0.0), torch.tensor(0.0), torch.tensor(0.0)).item(), 4)  # log 2
    0.6931
    """
    return _NegativeBinomialLoss.apply(*torch.broadcast_tensors(y, log_mean, log_dispersion))


def law_loss(y: Tensor, law: Prediction) -> Tensor:
    """Negative log-likelihood of a predicted law for each entry, without the constant ``log y!``.

    Parameters
    ----------
    y
        Counts.
    law
        Their law: Poisson if it has no dispersion, negative binomial if it has one, a mixture or a hurdle of such.

    Returns
    -------
    The loss of each entry.

    Examples
    --------
    A mixture of a law with itself is that law:

    >>> import torch
    >>> from sccountsdiff.diffusion import MixturePrediction, Prediction, law_loss
    >>> law, half = Prediction(torch.tensor(0.3), torch.tensor(1.0)), torch.tensor(0.5).log()
    >>> torch.allclose(
    ...     law_loss(torch.tensor(4.0), MixturePrediction.of([half, half], [law, law])),
    ...     law_loss(torch.tensor(4.0), law),
    ... )
    True
    """
    if isinstance(law, MixturePrediction):
        terms = [w - law_loss(y, part) for w, part in zip(law.log_weights, law.components, strict=True)]
        return -torch.logsumexp(torch.stack(terms), dim=0)
    if isinstance(law, HurdlePrediction) and law.law is not None:
        return torch.where(y > 0, law_loss(y, law.law) - law.log_lift, -law.log_zero)
    if law.log_dispersion is None:
        return count_loss(y, law.log_mean)
    return nb_loss(y, law.log_mean, law.log_dispersion)


def log_gamma_ratio(theta: Tensor, y: Tensor) -> Tensor:
    """``log Gamma(theta + y) - log Gamma(theta)``, to 1e-7, without the cancellation where theta is large.

    Only theta has a gradient.
    """
    return _LogGammaRatio.apply(*torch.broadcast_tensors(theta, y))


# Derivatives by hand, computed with the values: automatic ones take three times as many passes over the entries.


class _NegativeBinomialLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y: Tensor, log_mean: Tensor, log_theta: Tensor) -> Tensor:
        loss, by_mean, by_theta = in_pieces(_negative_binomial, y, log_mean, log_theta)
        ctx.save_for_backward(by_mean if ctx.needs_input_grad[1] else None, by_theta)
        return loss

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return None, *(None if slope is None else gradient * slope for slope in ctx.saved_tensors)


class _LogGammaRatio(torch.autograd.Function):
    @staticmethod
    def forward(ctx, theta: Tensor, y: Tensor) -> Tensor:
        ratio, slope = in_pieces(gamma_ratio, theta, y)
        ctx.save_for_backward(slope)
        return ratio

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * ctx.saved_tensors[0], None


def in_pieces(function: Callable[..., tuple[Tensor, ...]], *inputs: Tensor) -> tuple[Tensor, ...]:
    """What an elementwise function gives, computed piece by piece on a CPU: what lies between then stays in its cache.

    Not where gradients are recorded: all that lies between is then kept.
    """
    first = inputs[0]
    if not host_sees(first) or torch.is_grad_enabled() or first.ndim == 0 or first.numel() <= PIECE:
        return function(*inputs)
    n_rows = max(1, PIECE * len(first) // first.numel())
    pieces = [function(*rows) for rows in zip(*(values.split(n_rows) for values in inputs), strict=True)]
    return tuple(torch.cat(values) for values in zip(*pieces, strict=True))


def _negative_binomial(y: Tensor, log_mean: Tensor, log_theta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The loss and its derivatives by the two logarithms."""
    theta, log_ratio = log_theta.exp(), log_mean - log_theta
    softplus = torch.nn.functional.softplus(log_ratio)
    ratio, slope = gamma_ratio(theta, y)
    total = theta + y
    by_mean = torch.sigmoid(log_ratio).mul_(total).sub_(y)
    by_theta = (softplus - slope).mul_(theta).sub_(by_mean)
    loss = softplus.mul_(total).addcmul_(y, log_ratio, value=-1).sub_(ratio)
    return loss, by_mean, by_theta


def gamma_ratio(theta: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """``log Gamma(theta + y) - log Gamma(theta)`` and its derivative by theta, both exactly 0 where y is.

    ``Gamma(z) = Gamma(z + 4) / (z (z + 1) (z + 2) (z + 3))``, and beyond 4 three terms of Stirling's series do. The gamma
    function itself is slower by far, and of two large numbers that are close the difference is lost.
    """
    theta = theta.clamp_max(1e18)  # whose square is still a number; the law is Poisson long before
    after = theta + y
    low, high = (theta + 4).reciprocal_(), (after + 4).reciprocal_()
    log_ratio = torch.log1p(y * low)
    s, t = theta * (theta + 3), after * (after + 3)  # z (z + 3), and (z + 1) (z + 2) is 2 more
    s2, t2 = s + 2, t + 2
    l2, lh, h2 = low * low, low * high, high * high
    # Of the series: (h - l) / 12 - (h^3 - l^3) / 360 + (h^5 - l^5) / 1260, divided by h - l, and its derivative.
    difference, cubic = high - low, l2 + lh + h2
    series = (l2 * l2 + h2 * h2).addcmul_(lh, cubic).mul_(1 / 1260).sub_(cubic, alpha=1 / 360).add_(1 / 12)
    value = (s / t).mul_(s2 / t2).log_().addcmul_(after + 3.5, log_ratio).addcmul_(difference, series)
    value.addcmul_(y, low.log().add_(1), value=-1)
    slopes = (l2 * l2 + h2 * h2).addcmul_(l2, h2).mul_(-1 / 252).add_(l2 + h2, alpha=1 / 120).sub_(1 / 12)
    slope = log_ratio.addcmul_(difference, slopes.mul_(low + high).sub_(0.5))
    slope.addcmul_(2 * theta + 3, s.reciprocal_().add_(s2.reciprocal_()))
    slope.addcmul_(2 * after + 3, t.reciprocal_().add_(t2.reciprocal_()), value=-1)
    return value, slope


def nll_weight(schedule: Schedule, t: Tensor) -> Tensor:
    """``-p'(t) / (1 - p(t))``: with this weight and uniform times Eq. 6 is the negative log-likelihood (App. B.4).

    Under the cosine schedule it grows as ``2 / t`` towards t = 0, so that losses vary more than with ``-p'(t)``.

    Parameters
    ----------
    schedule
        Survival schedule.
    t
        Times within (0, 1).

    Returns
    -------
    The weight of each time.

    Examples
    --------
    >>> from sccountsdiff.diffusion import Fisher, nll_weight
    >>> round(nll_weight(Fisher(), 0.5).item(), 2)  # d/dt of the logit, 30, times p = 1/2
    15.0

    To train with it, make it the ``weight`` of a schedule:

    >>> from sccountsdiff import CountsDiffImputer
    >>> from sccountsdiff.diffusion import Cosine
    >>> class LikelihoodCosine(Cosine):
    ...     def weight(self, t):
    ...         return nll_weight(self, t)
    >>> model = CountsDiffImputer(adata, schedule=LikelihoodCosine())
    """
    return schedule.rate(t) / (1 - schedule.survival(t))


def log_likelihood(
    denoise: Callable[[Tensor, Tensor, Tensor], Prediction],
    schedule: Schedule,
    x0: Tensor,
    status: Tensor,
    *,
    n_times: int = 64,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Monte-Carlo estimate of a lower bound of ``log P(x0)``, in nats per cell; exact for an exact denoiser.

    With ``u = 1 - p(t)`` and the intensity ``l = y_hat / u`` the negative bound is
    ``log x0! + int_0^1 E[l - (y / u) log l] du``: the terms of the path likelihood that do not depend on the network
    have been integrated by hand. ``u = v^2`` with ``v`` stratified keeps the variance finite at ``u = 0``.

    Parameters
    ----------
    denoise
        Prediction for ``(x, status, t)``.
    schedule
        Survival schedule.
    x0
        Counts, ``(cells, genes)``.
    status
        :data:`MISSING` entries do not count.
    n_times
        Time points, one network pass each.
    generator
        Source of randomness.

    Returns
    -------
    The estimate for each cell, ``(cells,)``.

    Examples
    --------
    Three genes without a count, each Poisson with mean 2:

    >>> import torch
    >>> from sccountsdiff.diffusion import Cosine, Prediction, log_likelihood
    >>> def denoise(x, status, t):
    ...     lost = 1 - Cosine().survival(t)
    ...     return Prediction((2 * lost).log()[:, None].expand_as(x).to(x))
    >>> log_likelihood(denoise, Cosine(), torch.zeros(1, 3), torch.zeros(1, 3)).round().tolist()
    [-6.0]
    """
    counts = status != MISSING
    total = torch.lgamma(x0 + 1)
    for k in range(n_times):
        v = (k + torch.rand(len(x0), generator=generator, device=x0.device, dtype=x0.dtype)) / n_times
        v = v.clamp_min(1e-4)
        t = schedule.time_of(1 - v.double() ** 2).clamp_min(1e-30)  # p(t) may jump at 0, and u must not be 0
        u = 1 - schedule.survival(t)  # what p(t) gives back, also on a grid
        xt = thin(x0, (1 - u).to(x0.dtype)[:, None], generator)
        log_l = denoise(xt, status, t.to(x0.dtype)).log_mean - u.log().to(x0.dtype)[:, None]
        y_over_u = (x0 - xt) / u.to(x0.dtype)[:, None]
        total = total + 2 * v[:, None] / n_times * (log_l.exp() - y_over_u * log_l)
    return -(total * counts).sum(1)
