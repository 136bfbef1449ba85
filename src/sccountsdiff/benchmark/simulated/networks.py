"""The small network that all models of the study share, at the same number of parameters."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

N_FREQUENCIES = 4


class TimeMLP(nn.Module):
    """One hidden layer on the state and a few Fourier features of time.

    Parameters
    ----------
    n_inputs, n_outputs, n_hidden
        Widths of the three layers; time has features of its own.

    Examples
    --------
    >>> import torch
    >>> TimeMLP(n_inputs=10, n_outputs=30, n_hidden=8)(torch.zeros(4, 10), torch.rand(4)).shape
    torch.Size([4, 30])
    """

    def __init__(self, n_inputs: int, n_outputs: int, n_hidden: int):
        super().__init__()
        self.register_buffer("frequencies", math.pi * torch.arange(1.0, N_FREQUENCIES + 1))
        self.hidden = nn.Linear(n_inputs + 2 * N_FREQUENCIES, n_hidden)
        self.out = nn.Linear(n_hidden, n_outputs)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        """``(samples, n_inputs)`` and ``(samples,)`` to ``(samples, n_outputs)``."""
        angles = t[:, None] * self.frequencies
        features = torch.cat([x, angles.cos(), angles.sin()], dim=1)
        return self.out(nn.functional.silu(self.hidden(features)))


def matched_width(n_inputs: int, n_outputs: int, target: int) -> int:
    """The hidden width at which a :class:`TimeMLP` comes closest to ``target`` parameters.

    Examples
    --------
    >>> matched_width(10, 10, sum(p.numel() for p in TimeMLP(10, 10, n_hidden=48).parameters()))
    48
    """
    per_unit = n_inputs + 2 * N_FREQUENCIES + 1 + n_outputs  # weights in, bias, weights out
    return max(1, round((target - n_outputs) / per_unit))


class CountModel(nn.Module, ABC):
    """A generative model of count vectors: a training loss and a sampler around one :class:`TimeMLP`.

    Parameters
    ----------
    counts
        Training counts, ``(samples, dimensions)``.
    n_hidden
        Hidden width of the network.
    n_inputs, n_outputs
        Inputs and outputs of the network for each dimension.
    """

    def __init__(self, counts: Tensor, n_hidden: int, n_inputs: int = 1, n_outputs: int = 1):
        super().__init__()
        if counts.ndim != 2 or len(counts) < 2 or not counts.any():
            raise ValueError(
                f"`counts` needs at least two samples and a positive count; its shape is {tuple(counts.shape)}."
            )
        n_dimensions = counts.shape[1]
        self.network = TimeMLP(n_inputs * n_dimensions, n_outputs * n_dimensions, n_hidden)
        logs = torch.log1p(counts)
        self.register_buffer("log_mean", logs.mean(0))
        self.register_buffer("log_sd", logs.std(0).clamp_min(1e-6))  # a dimension may be 0 throughout

    def standardise(self, counts: Tensor) -> Tensor:
        """``log1p`` of counts with mean 0 and variance 1 in each dimension of the training counts."""
        return (torch.log1p(counts) - self.log_mean) / self.log_sd

    def empty(self, n: int) -> Tensor:
        """``n`` samples without a count."""
        return torch.zeros((n, len(self.log_mean)), device=self.log_mean.device, dtype=self.log_mean.dtype)

    @property
    def n_parameters(self) -> int:
        """Number of trained numbers."""
        return sum(parameter.numel() for parameter in self.parameters())

    @abstractmethod
    def loss(self, x0: Tensor, t: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Training loss of a batch of counts at the times ``t`` of (0, 1), one for each sample."""

    @abstractmethod
    def sample(self, n: int, n_steps: int, generator: torch.Generator | None = None) -> Tensor:
        """Counts, ``(n, dimensions)``, drawn in ``n_steps`` reverse steps."""
