"""The forward death process and one reverse step of it (Sections 3.1 and 3.3)."""

from __future__ import annotations

import torch
from torch import Tensor

from sccountsdiff.diffusion.attrition import max_attrition
from sccountsdiff.diffusion.host import host_sees, positions
from sccountsdiff.diffusion.prediction import numbers


def binomial(counts: Tensor, p: Tensor | float, generator: torch.Generator | None = None) -> Tensor:
    """Draw Bin(counts, p) elementwise.

    Counts of 0, and probabilities of 0 and 1, cost no random number. Probabilities are clipped to [0, 1], which torch does
    not promise to do.
    """
    p = torch.as_tensor(p, dtype=counts.dtype, device=counts.device).clamp(0, 1)
    if not host_sees(counts):
        return torch.binomial(counts, p.expand_as(counts), generator=generator)
    # Where there is something to draw is seen in less time than torch takes to pass over all else.
    at = positions(counts * numbers((p != 0) & (p != 1), counts.dtype))
    n, p_of_n = (values.reshape(-1).index_select(0, at) for values in (counts, p.expand_as(counts)))
    settled = counts * numbers(p == 1, counts.dtype)
    return settled.reshape(-1).scatter_(0, at, _binomial(n, p_of_n, generator)).view(counts.shape)


def _binomial(n: Tensor, p: Tensor, generator: torch.Generator | None) -> Tensor:
    """Bin(n, p) of vectors of whole numbers above 0: of 1 and 2, as most are, by where one random number falls, in half of torch's time."""
    u = torch.rand(n.shape, generator=generator, dtype=n.dtype, device=n.device)
    more, squared = n - 1, p * p
    # Of one or two, something is left with probability 1 - (1 - p)^n, and both of two with p^2.
    left = (u < torch.addcmul(n * p, more, squared, value=-1)).to(n.dtype) + (u < more * squared)
    left.add_((n * p).mul_(0))  # what is no number stays none
    many = positions(n > 2)
    drawn = torch.binomial(n.index_select(0, many), p.index_select(0, many), generator=generator)
    return left.scatter_(0, many, drawn)


def thin(x0: Tensor, p: Tensor | float, generator: torch.Generator | None = None) -> Tensor:
    """Forward process (Eq. 4): keep each count with probability ``p = p(t)``.

    For a move from ``s`` to a later ``t`` pass ``x_s`` and ``p(t) / p(s)`` (Eq. 5).

    Parameters
    ----------
    x0
        Counts, of any shape.
    p
        Probability to be kept: a number, or a tensor that broadcasts to the counts.
    generator
        Source of randomness; default: torch's global one.

    Returns
    -------
    What is left of the counts, in their shape.

    Examples
    --------
    >>> import torch
    >>> from sccountsdiff.diffusion import thin
    >>> thin(torch.tensor([0.0, 7.0, 9.0]), 1.0).tolist()
    [0.0, 7.0, 9.0]
    """
    return binomial(x0, p, generator)


def survivors(xt: Tensor, sigma: Tensor | float, generator: torch.Generator | None = None) -> Tensor:
    """Counts that outlive the attrition of one reverse step: ``n ~ Bin(x_t, 1 - sigma)`` (Prop. 3.2).

    Parameters
    ----------
    xt
        Counts, of any shape.
    sigma
        Attrition: the probability to die, a number or a tensor that broadcasts to the counts.
    generator
        Source of randomness; default: torch's global one.

    Returns
    -------
    What is left of the counts, in their shape.

    Examples
    --------
    >>> import torch
    >>> from sccountsdiff.diffusion import survivors
    >>> survivors(torch.tensor([0.0, 7.0]), sigma=0.0).tolist(), survivors(torch.tensor([0.0, 7.0]), sigma=1.0).tolist()
    ([0.0, 7.0], [0.0, 0.0])
    """
    return binomial(xt, 1 - torch.as_tensor(sigma, dtype=xt.dtype, device=xt.device), generator)


def birth_probability(p_t: Tensor, p_s: Tensor, sigma: Tensor | float = 0.0) -> Tensor:
    """Share of the remaining counts that is born between t and s: beta of Prop. 3.2.

    Parameters
    ----------
    p_t, p_s
        Survival at the time of the step and at the earlier one that it leads to.
    sigma
        Attrition of the step; what is above :func:`max_attrition` counts as that.

    Returns
    -------
    ``beta``, within [0, 1].

    Examples
    --------
    >>> import torch
    >>> from sccountsdiff.diffusion import birth_probability
    >>> birth_probability(torch.tensor(0.5), torch.tensor(0.75)).item()
    0.5
    """
    sigma = torch.as_tensor(sigma, dtype=p_t.dtype, device=p_t.device)
    sigma = torch.minimum(sigma.clamp_min(0), max_attrition(p_t, p_s))
    beta = (p_s - (1 - sigma) * p_t) / (1 - p_t).clamp_min(torch.finfo(p_t.dtype).tiny)
    return beta.clamp(0, 1)
