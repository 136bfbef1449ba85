"""The linear layer of networks that read all genes at once."""

from __future__ import annotations

from torch import Tensor, nn

from sccountsdiff.diffusion.products import linear


class Linear(nn.Linear):
    """:class:`torch.nn.Linear`, whose product is computed by what is fastest on the processor at hand.

    Examples
    --------
    >>> import torch
    >>> Linear(3, 2)(torch.zeros(4, 3)).shape
    torch.Size([4, 2])
    """

    def forward(self, input: Tensor) -> Tensor:
        """(cells, inputs) to (cells, outputs)."""
        return linear(input, self.weight, self.bias)
