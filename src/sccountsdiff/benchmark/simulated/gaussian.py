"""Gaussian diffusion (DDPM) on ``log1p`` counts, with the cosine schedule."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from sccountsdiff.benchmark.simulated.networks import CountModel
from sccountsdiff.diffusion import Cosine, reverse_walk

LEAST_SIGNAL = 1e-3
"""Smallest ``a`` that a prediction of the noise is divided by: at t = 1 it says nothing about ``x_0``."""

LARGEST_LOG = math.log(2**24)
"""Largest log count of a sample: without clipping, predictions may diverge and their exponential overflow."""


class GaussianDiffusion(CountModel):
    """DDPM: ``x_t = sqrt(a) x_0 + sqrt(1 - a) e`` with ``a(t) = cos^2(pi t / 2)``.

    The network predicts the velocity ``v = sqrt(a) e - sqrt(1 - a) x_0``: a target of the same size at all times, which
    came out better here than predicting the noise or ``x_0``. Predictions of ``x_0`` are clipped to the range of the
    training data; samples go back to the count scale and are rounded to the nearest count.

    Parameters
    ----------
    counts
        Training counts, ``(samples, dimensions)``.
    n_hidden
        Hidden width of the network.
    plain
        DDPM as it was first written down: ``log1p`` counts as they are, not standardised, a network that predicts the
        noise ``e``, no clipping.

    Examples
    --------
    >>> import torch
    >>> counts = torch.poisson(torch.full((50, 3), 2.0))
    >>> GaussianDiffusion(counts, n_hidden=8).sample(4, n_steps=5).shape
    torch.Size([4, 3])
    """

    def __init__(self, counts: Tensor, n_hidden: int, *, plain: bool = False):
        super().__init__(counts, n_hidden)
        self.schedule, self.plain = Cosine(), plain
        if plain:
            self.log_mean, self.log_sd = torch.zeros_like(self.log_mean), torch.ones_like(self.log_sd)
        values = self.standardise(counts)
        self.register_buffer("low", values.amin(0))
        self.register_buffer("high", values.amax(0))

    def loss(self, x0: Tensor, t: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Mean squared error of the velocity, or of the noise."""
        z0 = self.standardise(x0)
        a = self.schedule.survival(t).to(z0)[:, None]
        noise = torch.randn(z0.shape, generator=generator, device=z0.device, dtype=z0.dtype)
        zt = a.sqrt() * z0 + (1 - a).sqrt() * noise
        target = noise if self.plain else a.sqrt() * noise - (1 - a).sqrt() * z0
        return (self.network(zt, t) - target).pow(2).mean()

    def predict(self, zt: Tensor, t: float) -> Tensor:
        """``x_0`` on the scale of the network, unless plain within the range of the training data."""
        a = self.schedule.survival(t).to(zt)
        target = self.network(zt, torch.full((len(zt),), t, dtype=zt.dtype, device=zt.device))
        if self.plain:
            return (zt - (1 - a).sqrt() * target) / a.clamp_min(LEAST_SIGNAL).sqrt()
        return (a.sqrt() * zt - (1 - a).sqrt() * target).clamp(self.low, self.high)

    @torch.no_grad()
    def sample(self, n: int, n_steps: int, generator: torch.Generator | None = None) -> Tensor:
        """Counts, ``(n, dimensions)``."""
        noise = torch.randn((n, len(self.low)), generator=generator, device=self.low.device, dtype=self.low.dtype)
        z0 = denoise_gaussian(self.predict, noise, n_steps, generator)
        logs = (z0 * self.log_sd + self.log_mean).clamp_max(LARGEST_LOG)
        return torch.expm1(logs).round().clamp_min(0)


def denoise_gaussian(
    predict: Callable[[Tensor, float], Tensor], noise: Tensor, n_steps: int, generator: torch.Generator | None = None
) -> Tensor:
    """Walk from noise to data by the posterior of each step, ``q(x_s | x_t, x_0)``.

    Parameters
    ----------
    predict
        ``x_0`` for ``(x_t, t)``.
    noise
        Standard normal state at t = 1.
    n_steps
        Reverse steps.
    generator
        Source of randomness.

    Examples
    --------
    A network that is sure of the answer gets it:

    >>> import torch
    >>> denoise_gaussian(lambda x, t: torch.full_like(x, 3.0), torch.randn(2), n_steps=4).tolist()
    [3.0, 3.0]
    """
    x = noise
    for move in reverse_walk(n_steps):
        a_t, a_s = Cosine().survival([move.t, move.s]).to(x)
        kept = a_t / a_s
        mean = (a_s.sqrt() * (1 - kept) * predict(x, move.t) + kept.sqrt() * (1 - a_s) * x) / (1 - a_t)
        sd = ((1 - kept) * (1 - a_s) / (1 - a_t)).sqrt()  # 0 in the last step
        x = mean + sd * torch.randn(x.shape, generator=generator, device=x.device, dtype=x.dtype)
    return x
