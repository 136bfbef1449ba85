"""What the network is trained on (Algorithm 1): a time for each cell, what is shown of it, and the thinned counts."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sccountsdiff.diffusion.hiding import draw_observed
from sccountsdiff.diffusion.host import none_of
from sccountsdiff.diffusion.prediction import numbers
from sccountsdiff.diffusion.process import thin
from sccountsdiff.diffusion.schedules import Schedule

LAST_TIME_SHARE = 0.3
"""Share of training cells at t = 1, where the one-pass mean is read off and where the weight of Eq. 6 vanishes."""

THINNED_SHARE, LEAST_DEPTH = 0.5, 0.3
"""Share of training cells that are thinned as a whole first, and the least share of their molecules that is left."""


@dataclass(frozen=True)
class NoisedCounts:
    """Counts after the forward process, and what is to be predicted from them.

    Attributes
    ----------
    xt
        Counts as the network sees them: thinned where noised, as they are where observed.
    status
        :data:`OBSERVED`, :data:`NOISED` or :data:`MISSING` for each entry.
    t
        Time of each cell.
    weight
        Weight of each cell in Eq. 6.
    y
        Counts still to come, ``x_0 - x_t``.
    kept
        Share of the molecules of each cell that was left before noise was added, for a network that is told of it.

    Examples
    --------
    >>> import torch
    >>> from sccountsdiff.diffusion import Cosine, draw_noised
    >>> draw_noised(torch.ones(4, 3), Cosine()).t.shape
    torch.Size([4])
    """

    xt: Tensor
    status: Tensor
    t: Tensor
    weight: Tensor
    y: Tensor
    kept: Tensor


def draw_noised(
    x0: Tensor,
    schedule: Schedule,
    *,
    missing: Tensor | None = None,
    observed_training: bool = False,
    thin_cells: bool = False,
    directions: Tensor | None = None,
    groups: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> NoisedCounts:
    """Draw times and noised counts for one training step.

    Parameters
    ----------
    x0
        Counts, ``(cells, genes)``, or images ``(images, channels, height, width)``; 0 where missing.
    schedule
        Survival schedule.
    missing
        Entries without a count, boolean; default: none.
    observed_training
        Show a share of each cell as observed, and draw t = 1 more often than by chance: the network then learns to
        predict hidden entries from observed ones, see :func:`draw_observed`. ``False`` is the paper's training.
    thin_cells
        Thin half of the cells as a whole first, to what shallower sequencing would have found. The network has to be
        told (``kept``).
    directions, groups
        Of the genes, for :func:`draw_observed`.
    generator
        Source of randomness; default: torch's global one.

    Returns
    -------
    The noised counts.

    Examples
    --------
    >>> import torch
    >>> from sccountsdiff.diffusion import Cosine, draw_noised
    >>> x0 = torch.full((4, 3), 6.0)
    >>> noised = draw_noised(x0, Cosine(), generator=torch.Generator().manual_seed(0))
    >>> bool((noised.xt + noised.y == x0).all())
    True
    """
    n, device = len(x0), x0.device
    ones = [1] * (x0.ndim - 1)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator, device=device)

    # One time in each n-th of [0, 1]: uniform, and the loss varies less from batch to batch.
    t = (torch.randperm(n, generator=generator, device=device) + uniform(n)) / n
    t = schedule.snap(t).to(x0.dtype).clamp_min(1e-4)
    weight = schedule.weight(t).to(x0.dtype)
    observed = torch.zeros_like(x0, dtype=torch.bool)
    kept = torch.ones_like(t)
    if thin_cells:
        left = (LEAST_DEPTH + (1 - LEAST_DEPTH) * uniform(n)).to(x0.dtype)
        kept = torch.where(uniform(n) < THINNED_SHARE, left, kept)
        x0 = thin(x0, kept.reshape(-1, *ones), generator)
    if observed_training:
        last = uniform(n) < LAST_TIME_SHARE
        t = t.masked_fill(last, 1.0)
        weight = weight.masked_fill(last, 1.0)  # the mean weight of the other times
        observed = draw_observed(x0.shape, device, missing, directions, groups, generator)
    p = schedule.survival(t).to(x0.dtype).reshape(-1, *ones)
    y, status = hide(x0, p, observed, missing, generator)
    return NoisedCounts(x0 - y, status, t, weight, y, kept)


def hide(
    x0: Tensor, p: Tensor, observed: Tensor, missing: Tensor | None = None, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor]:
    """Thin what is neither observed nor missing (Eq. 5).

    Parameters
    ----------
    x0
        Counts, 0 where missing.
    p
        Survival of each cell, in a shape that goes with the counts.
    observed, missing
        Entries that stay as they are, and those without a count, boolean.
    generator
        Source of randomness; default: torch's global one.

    Returns
    -------
    The counts that are gone, and the status of each entry.

    Examples
    --------
    >>> import torch
    >>> from sccountsdiff.diffusion.noising import hide
    >>> [found.tolist() for found in hide(torch.tensor([4.0, 4.0]), torch.zeros(1), torch.tensor([True, False]))]
    [[0.0, 4.0], [1.0, 0.0]]
    """
    # By arithmetic on the values of OBSERVED, NOISED and MISSING: to choose by a random mask takes several times as long.
    status, is_noised = numbers(observed, x0.dtype), ~observed
    if missing is not None and not none_of(missing):
        status = status * numbers(~missing, x0.dtype) - numbers(missing, x0.dtype)
        is_noised &= ~missing
    hidden = x0 * numbers(is_noised, x0.dtype)  # zeros cost no draw
    return hidden - thin(hidden, p, generator), status
