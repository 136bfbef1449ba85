"""The training images of each optimiser step, as a function of seed and step alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from torch.utils.data import Sampler


class StepBatches(Sampler):
    """Batches of a training run that may stop after any step and continue as if it had not.

    Every pass over the images has its own order, drawn from the seed and the number of the pass; steps walk through one
    pass after the other.

    Parameters
    ----------
    n_images
        Images to choose from.
    batch_size
        Images of one step, over all processes.
    n_steps
        Steps of the whole training.
    seed
        Seed of the order.
    first_step
        Says at which step to begin, once iteration begins: 0, or where a checkpoint left off.
    rank, world_size
        This process, and how many there are: each takes every ``world_size``-th image of a batch.

    Examples
    --------
    >>> all_of_it = [batch for batch in StepBatches(5, 2, 4, seed=0)]
    >>> later = [batch for batch in StepBatches(5, 2, 4, seed=0, first_step=lambda: 3)]
    >>> all_of_it[3:] == later
    True
    >>> sorted(sum(all_of_it, [])[:5])
    [0, 1, 2, 3, 4]
    """

    def __init__(
        self,
        n_images: int,
        batch_size: int,
        n_steps: int,
        seed: int,
        first_step: Callable[[], int] = lambda: 0,
        rank: int = 0,
        world_size: int = 1,
    ):
        if batch_size % world_size:
            raise ValueError(f"`batch_size` {batch_size} cannot be shared evenly by {world_size} processes.")
        self.n_images, self.batch_size, self.n_steps, self.seed = n_images, batch_size, n_steps, seed
        self.first_step, self.rank, self.world_size = first_step, rank, world_size

    def __len__(self) -> int:
        return self.n_steps

    def __iter__(self) -> Iterator[list[int]]:
        current, order = -1, np.empty(0, dtype=int)
        for step in range(self.first_step(), self.n_steps):
            chosen = []
            for position in range(step * self.batch_size + self.rank, (step + 1) * self.batch_size, self.world_size):
                epoch, place = divmod(position, self.n_images)
                if epoch != current:
                    current, order = epoch, np.random.default_rng([self.seed, epoch]).permutation(self.n_images)
                chosen.append(int(order[place]))
            yield chosen
