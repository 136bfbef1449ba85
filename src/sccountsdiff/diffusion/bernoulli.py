"""Random masks in few random numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

N_VALUES = 2**16
"""Values of the bits behind each entry: probabilities are rounded down to multiples of its inverse."""


def bernoulli(
    shape: Sequence[int], p: Tensor | float, device: torch.device, generator: torch.Generator | None = None
) -> Tensor:
    """True with probability ``p``, each entry by itself.

    16 random bits decide an entry, so that a random number of 64 bits makes four of them. Random numbers are most of what a
    mask costs where they are drawn one by one.

    Parameters
    ----------
    shape
        Shape of the mask.
    p
        Probability at least 0 and below 1: a number, or a tensor that broadcasts to the shape.
    device
        Where to draw.
    generator
        Source of randomness; default: torch's global one.

    Returns
    -------
    Boolean tensor.

    Examples
    --------
    >>> import torch
    >>> from sccountsdiff.diffusion import bernoulli
    >>> share = torch.tensor([[0.0], [0.5]])
    >>> bernoulli((2, 4000), share, torch.device("cpu"), torch.Generator().manual_seed(0)).float().mean(1).round(
    ...     decimals=1
    ... ).tolist()
    [0.0, 0.5]
    """
    return below(random_bits(shape, device, generator), p)


def random_bits(shape: Sequence[int], device: torch.device, generator: torch.Generator | None = None) -> Tensor:
    """16 random bits for each entry, as signed numbers."""
    if torch.compiler.is_compiling():  # which draws each number where it is used, and cannot look at its bits
        return torch.randint(-N_VALUES // 2, N_VALUES // 2, tuple(shape), dtype=torch.int16, device=device)
    n = math.prod(shape)
    numbers = torch.empty((n + 3) // 4, dtype=torch.int64, device=device)
    return numbers.random_(-(2**63), None, generator=generator).view(torch.int16)[:n].view(tuple(shape))


def below(bits: Tensor, p: Tensor | float) -> Tensor:
    """Which :func:`random_bits` are among the lowest, a share ``p`` of all there are."""
    if isinstance(p, Tensor):
        return bits < ((p * N_VALUES).floor() - N_VALUES // 2).to(torch.int16)
    return bits < math.floor(p * N_VALUES) - N_VALUES // 2
