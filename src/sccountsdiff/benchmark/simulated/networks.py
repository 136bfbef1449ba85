"""What all models of the study share: a small network at the same number of parameters, a budget, a way of training."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

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
        shape = tuple(counts.shape)
        if len(shape) != 2 or shape[0] < 2 or not counts.any():
            raise ValueError(f"`counts` needs at least two samples and a positive count; its shape is {shape}.")
        n_dimensions = shape[1]
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


@dataclass(frozen=True)
class Budget:
    """What each model may use.

    Parameters
    ----------
    n_train
        Training samples.
    n_gradient_steps
        Steps of Adam; the learning rate falls to 0 along half a cosine.
    batch_size
        Samples in each of them.
    n_samples
        Samples to draw from the trained model.
    n_sampling_steps
        Reverse steps.
    masked_width
        Hidden width of masked diffusion, whose output is a class for each count; the others get the width with as many
        parameters.
    n_rounded
        Samples of each rounding in the rounding study, drawn in a tenth of the reverse steps and in all of them.

    Examples
    --------
    >>> Budget().n_sampling_steps
    200
    """

    n_train: int = 10_000
    n_gradient_steps: int = 4_000
    batch_size: int = 128
    n_samples: int = 4_000
    n_sampling_steps: int = 200
    masked_width: int = 4
    n_rounded: int = 20_000

    def __post_init__(self):
        for name, value in vars(self).items():
            if value < 1 or value != int(value):
                raise ValueError(f"`{name}` must be a whole number of at least 1, not {value}.")


def fit(
    model: CountModel,
    counts: Tensor,
    budget: Budget,
    learning_rate: float,
    generator: torch.Generator | None = None,
    *,
    description: str = "Training",
    silent: bool = False,
) -> CountModel:
    """Train a model; times are spread evenly over (0, 1) within each batch.

    Examples
    --------
    >>> import torch
    >>> from sccountsdiff.benchmark.simulated import CountsDiffusion
    >>> counts = torch.poisson(torch.full((50, 3), 2.0))
    >>> model = fit(CountsDiffusion(counts, n_hidden=4), counts, Budget(n_gradient_steps=2), 1e-3, silent=True)
    >>> model.n_parameters
    63
    """
    optimiser = torch.optim.Adam(model.parameters(), lr=learning_rate)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, budget.n_gradient_steps)
    places = torch.arange(budget.batch_size, device=counts.device)
    for _ in tqdm(range(budget.n_gradient_steps), desc=description, unit="step", leave=False, disable=silent):
        chosen = torch.randint(len(counts), (budget.batch_size,), generator=generator, device=counts.device)
        jitter = torch.rand(budget.batch_size, generator=generator, device=counts.device, dtype=counts.dtype)
        loss = model.loss(counts[chosen], (places + jitter) / budget.batch_size, generator)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        decay.step()
    return model
