"""Dropout that draws few random numbers."""

from __future__ import annotations

from torch import Tensor, nn

from sccountsdiff.checks import check_number
from sccountsdiff.diffusion import bernoulli
from sccountsdiff.diffusion.prediction import numbers


class Dropout(nn.Module):
    """Dropout as torch has it, but with :func:`~sccountsdiff.diffusion.bernoulli` masks, which take a fraction of the time.

    Parameters
    ----------
    rate
        Probability that an entry is set to 0, at least 0 and below 1.

    Examples
    --------
    >>> import torch
    >>> from sccountsdiff.nn import Dropout
    >>> Dropout(0.5).eval()(torch.ones(3)).tolist()
    [1.0, 1.0, 1.0]
    """

    def __init__(self, rate: float):
        super().__init__()
        check_number("dropout_rate", rate)
        if not 0 <= rate < 1:
            raise ValueError(f"`dropout_rate` must be at least 0 and below 1, not {rate}.")
        self.rate = rate

    def extra_repr(self) -> str:
        """The rate, for messages."""
        return f"{self.rate}"

    @property
    def scale(self) -> float:
        """Factor by which entries that stay are multiplied, so that expectations stay."""
        return 1 / (1 - self.rate) if self.training else 1.0

    def kept(self, shape: tuple[int, ...], device) -> Tensor:
        """Which entries stay."""
        return ~bernoulli(shape, self.rate, device)

    def forward(self, x: Tensor) -> Tensor:
        """Drop entries of ``x`` in training."""
        if not self.training or self.rate == 0:
            return x
        return x * (self.scale * numbers(self.kept(x.shape, x.device), x.dtype))
