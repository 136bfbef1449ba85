"""CountsDiff with the small network of the study: everything but the network is the package's own core."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sccountsdiff.benchmark.simulated.networks import CountModel
from sccountsdiff.diffusion import NOISED, Fisher, Prediction, Rescale, count_loss, reverse_walk, sample, thin

SMALLEST = 1e-12
"""Predictions stay above it, so that their logarithm is finite."""


class CountsDiffusion(CountModel):
    """CountsDiff without attrition and guidance, with the Fisher schedule in continuous time and random rounding.

    Parameters
    ----------
    counts
        Training counts, ``(samples, dimensions)``.
    n_hidden
        Hidden width of the network.
    known_decay
        ``y_hat = (1 - p(t)) softplus(f)``, so that the counts still to come vanish with ``1 - p(t)`` whatever the
        network says. ``False`` is the paper's formula, ``y_hat = softplus(f)``.

    Examples
    --------
    >>> import torch
    >>> counts = torch.poisson(torch.full((50, 3), 2.0))
    >>> CountsDiffusion(counts, n_hidden=8).sample(4, n_steps=5).shape
    torch.Size([4, 3])
    """

    def __init__(self, counts: Tensor, n_hidden: int, *, known_decay: bool = True):
        super().__init__(counts, n_hidden)
        self.schedule, self.known_decay = Fisher(), known_decay
        self.register_buffer("sd", counts.std(0).clamp_min(1e-6))

    def predict(self, xt: Tensor, t: Tensor) -> Prediction:
        """The counts still to come. Its input is linear in ``x_t``, as the exact answer is for negative binomials."""
        y_hat = torch.nn.functional.softplus(self.network(xt / self.sd, t))
        if self.known_decay:
            y_hat = y_hat * (1 - self.schedule.survival(t)).to(y_hat)[:, None]
        return Prediction(y_hat.clamp_min(SMALLEST).log())

    def loss(self, x0: Tensor, t: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Eq. 6 with the weight ``-p'(t)``."""
        xt = thin(x0, self.schedule.survival(t).to(x0)[:, None], generator)
        weight = self.schedule.weight(t).to(x0)[:, None]
        return (weight * count_loss(x0 - xt, self.predict(xt, t).log_mean)).mean()

    @torch.no_grad()
    def sample(self, n: int, n_steps: int, generator: torch.Generator | None = None) -> Tensor:
        """Counts, ``(n, dimensions)``."""
        return draw_counts(self.predict, self.empty(n), n_steps, "random", generator)


def draw_counts(
    predict: Callable[[Tensor, Tensor], Prediction],
    empty: Tensor,
    n_steps: int,
    rounding: str,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Counts drawn without attrition along the Fisher schedule.

    Parameters
    ----------
    predict
        Law of the counts still to come, for ``(x_t, t)``.
    empty
        Zeros of the shape and type of the result.
    n_steps
        Reverse steps.
    rounding
        How births are drawn (:func:`~sccountsdiff.diffusion.draw_births`).
    generator
        Source of randomness.

    Examples
    --------
    >>> import torch
    >>> exact = lambda x, t: Prediction((4 * (1 - Fisher().survival(t))).log()[:, None].expand_as(x))
    >>> draw_counts(exact, torch.zeros(2, 3), n_steps=5, rounding="poisson").shape
    torch.Size([2, 3])
    """
    denoise = lambda x, status, t: predict(x, t)
    options = {"attrition": Rescale(0.0), "rounding": rounding, "generator": generator}
    return sample(denoise, Fisher(), reverse_walk(n_steps), empty, torch.full_like(empty, NOISED), **options)
