"""What the diffusion needs to know about a network: a function from a noised state to the counts still to come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Protocol, Self

import torch
from torch import Tensor

OBSERVED, NOISED, MISSING = 1.0, 0.0, -1.0
"""Status of an entry as the network sees it: given as it is, noised to level p(t), or not there at all."""


@dataclass(frozen=True)
class Prediction:
    """The law of the remaining counts ``y = x_0 - x_t`` given the noised state, entry by entry.

    Attributes
    ----------
    log_mean
        Logarithm of ``y_hat``.
    log_dispersion
        Logarithm of the inverse dispersion theta of a negative binomial with that mean; ``None`` if unknown.

    Examples
    --------
    >>> import torch
    >>> from sccountsdiff.diffusion import Prediction
    >>> Prediction(torch.zeros(2)).mean.tolist()
    [1.0, 1.0]
    """

    log_mean: Tensor
    log_dispersion: Tensor | None = None

    @property
    def mean(self) -> Tensor:
        """``y_hat``."""
        return self.log_mean.exp()

    def any_of(self, share: Tensor | float) -> Tensor:
        """Probability that something is left of ``y`` if each count is kept with probability ``share``.

        As a function of it, this is ``1 - E[(1 - share)^y]``, which says all of the law. Without a dispersion: Poisson.
        """
        kept = share * self.mean
        if self.log_dispersion is None:
            return -torch.expm1(-kept)
        theta = self.log_dispersion.exp()
        return -torch.expm1(-theta * torch.log1p(kept / theta))

    def map(self, function: Callable[[Tensor], Tensor]) -> Self:
        """The law with each of its parameters replaced by a function of it, such as a selection of entries."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        mapped: dict[str, Any] = {name: None if value is None else function(value) for name, value in values.items()}
        return type(self)(**mapped)


class Denoiser(Protocol):
    """A network with its covariates bound, as :func:`guide` takes it.

    Examples
    --------
    The exact denoiser of Poisson counts with mean 4 under the cosine schedule:

    >>> import torch
    >>> from sccountsdiff.diffusion import Cosine, Prediction
    >>> def denoise(x, status, t, null):
    ...     lost = 1 - Cosine().survival(t)
    ...     return Prediction((4 * lost).log()[:, None].expand_as(x))
    >>> denoise(torch.zeros(1, 2), torch.zeros(1, 2), torch.ones(1), torch.tensor([False])).mean.round().tolist()
    [[4.0, 4.0]]
    """

    def __call__(self, x: Tensor, status: Tensor, t: Tensor, null: Tensor) -> Prediction:
        """Predict the remaining counts.

        Parameters
        ----------
        x
            Counts, ``(cells, genes)``: as they are where observed, noised to level p(t) elsewhere, 0 where missing.
        status
            :data:`OBSERVED`, :data:`NOISED` or :data:`MISSING` for each entry.
        t
            Time of each cell, ``(cells,)``.
        null
            Cells whose covariates are left out (the unconditional prediction), ``(cells,)`` boolean.
        """
        ...
