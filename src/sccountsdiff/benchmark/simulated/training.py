"""One way of training for all models: the same optimiser, number of steps and batches."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from tqdm.auto import tqdm

from sccountsdiff.benchmark.simulated.networks import CountModel


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
