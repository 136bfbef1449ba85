"""Gaussian diffusion: the forward process, and the walk back with a network's prediction."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sccountsdiff.checks import one_of
from sccountsdiff.diffusion import reverse_walk


def signal_shares(n_levels: int, schedule: str = "quadratic", first: float = 1e-4, last: float = 0.5) -> Tensor:
    """Share of the variance that is still signal after 0, 1, ..., ``n_levels`` steps of the forward process.

    Each step replaces a share of the variance by noise; the share, or for ``"quadratic"`` its square root, grows
    linearly from the ``first`` to the ``last`` step.

    Examples
    --------
    >>> signal_shares(2, "linear", 0.1, 0.5).tolist()
    [1.0, 0.9, 0.45]
    """
    one_of("noise_schedule", schedule, ("linear", "quadratic"))
    power = 1 if schedule == "linear" else 2
    replaced = torch.linspace(first ** (1 / power), last ** (1 / power), n_levels, dtype=torch.float64) ** power
    return torch.cat([torch.ones(1, dtype=torch.float64), (1 - replaced).cumprod(0)])


def add_noise(x0: Tensor, noise: Tensor, share: Tensor) -> Tensor:
    """The forward process: signal and noise with variances in the ratio ``share`` to ``1 - share``.

    Examples
    --------
    >>> import torch
    >>> add_noise(torch.tensor(2.0), torch.tensor(1.0), torch.tensor(0.64)).item()
    2.200000047683716
    """
    return share.sqrt() * x0 + (1 - share).sqrt() * noise


def reverse_step(x: Tensor, velocity: Tensor, a_t: Tensor, a_s: Tensor, eta: float, noise: Tensor) -> Tensor:
    """One step back from signal share ``a_t`` to the larger ``a_s``.

    Parameters
    ----------
    x
        State at ``a_t``.
    velocity
        Prediction of ``sqrt(a_t) * noise - sqrt(1 - a_t) * signal``. Unlike the noise itself it gives both signal and
        noise without a division by ``a_t``, which is next to nothing at first.
    a_t, a_s
        Signal shares.
    eta
        1 for the ancestral step of a denoising diffusion model, 0 for the deterministic one.
    noise
        Standard normal.

    Examples
    --------
    >>> import torch
    >>> signal, noise, a_t = torch.tensor(3.0), torch.tensor(-1.0), torch.tensor(0.25)
    >>> velocity = a_t.sqrt() * noise - (1 - a_t).sqrt() * signal
    >>> x = add_noise(signal, noise, a_t)
    >>> round(reverse_step(x, velocity, a_t, torch.tensor(1.0), 1.0, torch.tensor(0.0)).item(), 4)
    3.0
    """
    signal = a_t.sqrt() * x - (1 - a_t).sqrt() * velocity
    old_noise = (1 - a_t).sqrt() * x + a_t.sqrt() * velocity
    fresh = eta**2 * (1 - a_s) / (1 - a_t) * (1 - a_t / a_s)  # variance
    return a_s.sqrt() * signal + (1 - a_s - fresh).clamp_min(0).sqrt() * old_noise + fresh.sqrt() * noise


def draw(
    velocity: Callable[[Tensor, int], Tensor],
    shares: Tensor,
    shape: tuple[int, ...],
    n_steps: int,
    eta: float = 1.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Walk from noise to values in ``n_steps`` steps that are evenly spread over the noise levels.

    Parameters
    ----------
    velocity
        Prediction for a state at a noise level, see :func:`reverse_step`.
    shares
        Signal share of each noise level (:func:`signal_shares`).
    shape
        Shape of the state.
    n_steps, eta, generator
        Number and kind of steps, and source of randomness.

    Examples
    --------
    >>> import torch
    >>> shares = signal_shares(10)
    >>> constant = lambda x, level: (shares[level].sqrt() * x - 2) / (1 - shares[level]).sqrt()  # the signal is 2
    >>> draw(constant, shares, (1, 2), n_steps=5)
    tensor([[2., 2.]], dtype=torch.float64)
    """
    normal = lambda: torch.randn(shape, generator=generator, dtype=shares.dtype, device=shares.device)
    x, n_levels = normal(), len(shares) - 1
    for move in reverse_walk(n_steps):
        level, next_level = round(move.t * n_levels), round(move.s * n_levels)
        x = reverse_step(x, velocity(x, level), shares[level], shares[next_level], eta, normal())
    return x
