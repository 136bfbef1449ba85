"""Masked (absorbing-state) diffusion, MDLM: each count is a class of its own, without an order."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sccountsdiff.benchmark.masked_diffusion import MASK, sample_masked
from sccountsdiff.benchmark.simulated.networks import CountModel
from sccountsdiff.diffusion import reverse_walk

MAX_CLASSES = 64


class MaskedDiffusion(CountModel):
    """At time t each entry is masked with probability t; the network gives the law of each masked count.

    The loss is the negative ELBO of MDLM: the cross-entropy of masked entries, weighted with ``1 / t``. The network sees
    the counts that are not masked on the standardised ``log1p`` scale, and which ones are masked.

    Parameters
    ----------
    counts
        Training counts, ``(samples, dimensions)``.
    n_hidden
        Hidden width of the network.
    max_classes
        Classes are 0, 1, ... up to the largest training count, but at most so many; the last one then stands for all
        larger counts, and a sample of it is one of those training counts at random.

    Examples
    --------
    >>> import torch
    >>> model = MaskedDiffusion(torch.tensor([[0.0, 1.0], [2.0, 3.0]]), n_hidden=4)
    >>> model.n_classes
    4
    """

    def __init__(self, counts: Tensor, n_hidden: int, max_classes: int = MAX_CLASSES):
        if max_classes < 2:
            raise ValueError(f"`max_classes` must be at least 2, not {max_classes}.")
        self.n_classes = min(int(counts.max()) + 1, max_classes)
        super().__init__(counts, n_hidden, n_inputs=2, n_outputs=self.n_classes)
        self.register_buffer("tail", counts[counts >= self.n_classes - 1])

    def log_law(self, x: Tensor, is_masked: Tensor, t: Tensor) -> Tensor:
        """Log-probability of each class, ``(samples, dimensions, classes)``."""
        shown = torch.cat([self.standardise(x).masked_fill(is_masked, 0.0), is_masked.to(x)], dim=1)
        return self.network(shown, t).unflatten(1, (x.shape[1], self.n_classes)).log_softmax(-1)

    def loss(self, x0: Tensor, t: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Negative ELBO in nats per sample."""
        t = t.clamp_min(1e-3)  # the weight is 1 / t
        is_masked = torch.rand(x0.shape, generator=generator, device=x0.device, dtype=x0.dtype) < t[:, None]
        classes = x0.clamp_max(self.n_classes - 1).long()
        log_law = self.log_law(x0, is_masked, t).gather(2, classes[..., None])[..., 0]
        return -((log_law * is_masked).sum(1) / t).mean()

    @torch.no_grad()
    def sample(self, n: int, n_steps: int, generator: torch.Generator | None = None) -> Tensor:
        """Counts, ``(n, dimensions)``."""
        counts = unmask(self.log_law, self.empty(n), n_steps, generator)
        is_tail = counts == self.n_classes - 1
        chosen = torch.randint(len(self.tail), (int(is_tail.sum()),), generator=generator, device=counts.device)
        counts[is_tail] = self.tail[chosen]
        return counts


def unmask(
    log_law: Callable[[Tensor, Tensor, Tensor], Tensor],
    empty: Tensor,
    n_steps: int,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Walk from all masked to none: of the entries masked at t, a share ``(t - s) / t`` gets its class by s.

    Parameters
    ----------
    log_law
        Log-probabilities of the classes for ``(x, is_masked, t)``.
    empty
        Zeros of the shape and type of the result.
    n_steps
        Reverse steps.
    generator
        Source of randomness.

    Examples
    --------
    >>> import torch
    >>> always_two = lambda x, is_masked, t: torch.tensor([0.0, 0.0, 1.0]).log().expand(*x.shape, 3)
    >>> unmask(always_two, torch.zeros(1, 4), n_steps=3).tolist()
    [[2.0, 2.0, 2.0, 2.0]]
    """

    def law_of_entries(codes: Tensor, entries: Tensor, t: float) -> Tensor:
        rows = entries.any(dim=1)  # the network is asked about these only
        codes = codes[rows]
        times = torch.full((len(codes),), t, dtype=empty.dtype, device=empty.device)
        return log_law(codes.clamp_min(0).to(empty), codes == MASK, times)[entries[rows]]

    everywhere = torch.ones_like(empty, dtype=torch.bool)
    walk = reverse_walk(n_steps)
    return sample_masked(law_of_entries, walk, empty.long(), ~everywhere, everywhere, generator=generator).to(empty)
