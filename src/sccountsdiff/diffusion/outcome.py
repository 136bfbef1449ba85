"""What is known of counts before the last draw of a chain: their mean, variance and quantiles in closed form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import torch
from torch import Tensor

from sccountsdiff.diffusion.prediction import Prediction
from sccountsdiff.diffusion.rounding import checked_mean


@dataclass(frozen=True)
class Outcome:
    """The law of counts over several chains, each of them stopped before its last draw.

    Averaging expectations instead of draws takes the noise of the last draw out of the mean; that the counts are spread
    around it is not forgotten, but known exactly.

    Attributes
    ----------
    n
        Counts that are there already, ``(chains, entries)``.
    births
        Law of the counts to come, of the same shape.

    Examples
    --------
    >>> import torch
    >>> from sccountsdiff.diffusion import Outcome, Prediction
    >>> law = Outcome(torch.tensor([[1.0], [3.0]]), Prediction(torch.tensor([[4.0], [4.0]]).log()))
    >>> law.mean.tolist(), law.sd.square().round(decimals=3).tolist()  # 4 of the births, 2 between the chains
    ([6.0], [6.0])
    >>> law.quantile(0.5).tolist()
    [6.0]
    """

    n: Tensor
    births: Prediction

    @classmethod
    def stack(cls, chains: Sequence[tuple[Tensor, Prediction]]) -> Self:
        """From the counts and the law of each chain."""
        counts, laws = zip(*chains, strict=True)
        return cls(torch.stack(counts), _stack(laws))

    @property
    def means(self) -> Tensor:
        """Expected counts of each chain, ``(chains, entries)``."""
        return self.n + checked_mean(self.births)

    @property
    def mean(self) -> Tensor:
        """Expected counts, ``(entries,)``."""
        return self.means.mean(0)

    @property
    def sd(self) -> Tensor:
        """Standard deviation: that of the births, and that between the chains."""
        between = self.means.var(0) if len(self.n) > 1 else 0.0
        return (self.births.variance.mean(0) + between).clamp_min(0).sqrt()

    def above(self, k: Tensor) -> Tensor:
        """Probability of more than ``k`` counts, for each entry."""
        rest = k - self.n
        return torch.where(rest < 0, 1.0, self.births.above(rest.clamp_min(0))).mean(0)

    def quantile(self, q: float) -> Tensor:
        """The least count that is not exceeded with a probability of at least ``q``, above 0 and below 1."""
        tail = 1 - q + 1e-9  # what is equal but for rounding is equal
        result = torch.zeros_like(self.n[0])
        entries = (self.above(result) > tail).nonzero()[:, 0]  # most counts of single cells are 0, and done
        law = self.of(entries)
        # In double precision: single precision has no neighbouring whole numbers above 2^24, and halving would not end.
        high = (law.mean + 2 * law.sd).double().ceil() + 1
        low = torch.zeros_like(high)  # of which it is above
        while bool((short := law.above(high) > tail).any()):
            high = torch.where(short, 2 * high, high)
        while bool((high - low > 1).any()):
            middle = ((low + high) / 2).floor()
            is_above = law.above(middle) > tail
            low, high = torch.where(is_above, middle, low), torch.where(is_above, high, middle)
        return result.index_copy(0, entries, high.to(result.dtype))

    def of(self, entries: Tensor) -> Outcome:
        """The law of some entries."""
        return Outcome(self.n[:, entries], self.births.map(lambda value: value[:, entries]))


def _stack(parts: Sequence[Any]) -> Any:
    """Laws of one form as one of that form, chain by chain."""
    first = parts[0]
    if isinstance(first, Prediction):
        return type(first)(**{f.name: _stack([getattr(part, f.name) for part in parts]) for f in fields(first)})
    if isinstance(first, tuple):
        return tuple(_stack(values) for values in zip(*parts, strict=True))
    return None if first is None else torch.stack(list(parts))
