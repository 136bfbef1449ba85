"""Counts as the values that networks read and predict, and back."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from sccountsdiff.benchmark.baselines.cells import Cells
from sccountsdiff.benchmark.baselines.depth import batch_depth

Scaling = Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
"""From log counts and what is observed of them, both (cells, genes): shift, scale and largest log count of each gene."""


def _unscaled(logs: Tensor, observed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """As they are, up to the largest of all genes."""
    return torch.zeros(()), torch.ones(()), logs.max()


class LogValues(nn.Module):
    """Counts as log(1 + count / depth), shifted and scaled, and back.

    The depth of a cell is known from its observed entries only.

    Parameters
    ----------
    cells
        Training cells, for the mean of each gene, which is what a cell of depth 1 is expected to have.
    scaling
        Gives shift, scale and the largest log count that is decoded, from the log counts of the training cells. By default
        values are not scaled, and the largest is the largest of all genes.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> import torch
    >>> counts = torch.tensor([[4.0, 2.0, 0.0]])
    >>> values = LogValues(Cells(counts.numpy(), np.ones((1, 3), dtype=bool), pd.DataFrame(index=[0])))
    >>> observed = torch.tensor([[True, False, False]])
    >>> values.decode(values(counts, observed), counts, observed)
    tensor([[4., 2., 0.]])
    """

    def __init__(self, cells: Cells, scaling: Scaling = _unscaled):
        super().__init__()
        counts, observed = torch.as_tensor(cells.counts, dtype=torch.float32), torch.as_tensor(cells.observed)
        self.register_buffer("gene_mean", torch.as_tensor(cells.gene_means(), dtype=torch.float32))
        logs = torch.log1p(counts / self.depth(counts, observed))
        for name, value in zip(("shift", "scale", "largest"), scaling(logs, observed), strict=True):
            self.register_buffer(name, value)

    def depth(self, counts: Tensor, observed: Tensor) -> Tensor:
        """Observed total of each cell over what is expected of its observed genes, (cells, 1)."""
        return batch_depth(counts, observed, self.gene_mean)

    def forward(self, counts: Tensor, observed: Tensor) -> Tensor:
        """Values of all entries, (cells, genes)."""
        return (torch.log1p(counts / self.depth(counts, observed)) - self.shift) / self.scale

    def decode(self, values: Tensor, counts: Tensor, observed: Tensor) -> Tensor:
        """Counts with these values in cells with these observed counts; never above the largest of training."""
        logs = torch.minimum((values * self.scale + self.shift).clamp_min(0), self.largest)
        return torch.expm1(logs) * self.depth(counts, observed)


class BinnedValues(LogValues):
    """Counts as numbers of bins that hold as many of the observed non-zero counts of a cell each, and back.

    A cell without observed counts has the bins of the mean training cell.

    Parameters
    ----------
    cells
        Training cells.
    n_bins
        Number of bins, that of the zeros included.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> import torch
    >>> counts = torch.tensor([[0.0, 1.0, 2.0, 3.0, 8.0]])
    >>> cells = Cells(counts.numpy(), np.ones((1, 5), dtype=bool), pd.DataFrame(index=[0]))
    >>> values, observed = BinnedValues(cells, n_bins=5), torch.ones(1, 5, dtype=torch.bool)
    >>> values(counts, observed)
    tensor([[0., 1., 2., 3., 4.]])
    >>> values.decode(torch.tensor([[0.5, 2.5, 7.0]]), counts, observed)
    tensor([[0.5000, 2.5000, 8.0000]])
    """

    def __init__(self, cells: Cells, n_bins: int):
        self.n_bins = n_bins
        super().__init__(cells)

    def edges(self, counts: Tensor, observed: Tensor) -> Tensor:
        """Lower edge of each bin, that of the zeros included, (cells, bins)."""
        positive = observed & (counts > 0)
        empty = ~positive.any(dim=1, keepdim=True)
        binned = torch.where(empty, self.gene_mean, counts.masked_fill(~positive, 0.0))
        n_zeros = (binned == 0).sum(dim=1, keepdim=True)
        levels = torch.linspace(0, 1, self.n_bins - 1, device=counts.device)
        place = (n_zeros + levels * (binned.shape[1] - 1 - n_zeros)).clamp(max=binned.shape[1] - 1)
        return nn.functional.pad(_interpolate(binned.sort(dim=1).values, place), (1, 0))

    def forward(self, counts: Tensor, observed: Tensor) -> Tensor:
        """Number of the bin of each entry, (cells, genes); counts that fill several bins get the middle of them."""
        edges = self.edges(counts, observed)[:, 1:].contiguous()
        last = torch.searchsorted(edges, counts.contiguous(), right=True)
        first = torch.minimum(torch.searchsorted(edges, counts.contiguous()) + 1, last)
        return torch.where(counts > 0, ((first + last) / 2).clamp(min=1), 0.0)

    def decode(self, values: Tensor, counts: Tensor, observed: Tensor) -> Tensor:
        """Counts at these numbers of bins."""
        return _interpolate(self.edges(counts, observed), values.clamp(0, self.n_bins - 1))


def _interpolate(table: Tensor, place: Tensor) -> Tensor:
    """Entries of each row of ``table`` at places between whole numbers."""
    low = place.floor()
    high = place.ceil().clamp(max=table.shape[1] - 1)
    return torch.lerp(table.gather(1, low.long()), table.gather(1, high.long()), place - low)
