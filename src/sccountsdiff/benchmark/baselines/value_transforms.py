"""Counts as the values that networks read and predict, and back."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from sccountsdiff.benchmark.baselines.base import Cells
from sccountsdiff.benchmark.baselines.depth import batch_depth


class LogValues(nn.Module):
    """Counts as log(1 + count / depth) and back; the depth of a cell is known from its visible entries only.

    Parameters
    ----------
    cells
        Training cells, for the mean of each gene, which is what a cell of depth 1 is expected to have.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> import torch
    >>> counts = torch.tensor([[4.0, 2.0, 0.0]])
    >>> values = LogValues(Cells(counts.numpy(), np.ones((1, 3), dtype=bool), pd.DataFrame(index=[0])))
    >>> visible = torch.tensor([[True, False, False]])
    >>> values.decode(values(counts, visible), counts, visible)
    tensor([[4., 2., 0.]])
    """

    def __init__(self, cells: Cells):
        super().__init__()
        self.register_buffer("gene_mean", torch.as_tensor(cells.gene_means(), dtype=torch.float32))
        counts, observed = torch.as_tensor(cells.counts.astype(np.float32)), torch.as_tensor(cells.observed)
        self.register_buffer("largest", self(counts, observed).max())

    def depth(self, counts: Tensor, visible: Tensor) -> Tensor:
        """Visible total of each cell over what is expected of its visible genes, (cells, 1)."""
        return batch_depth(counts, visible, self.gene_mean)

    def forward(self, counts: Tensor, visible: Tensor) -> Tensor:
        """Values of all entries, (cells, genes)."""
        return torch.log1p(counts / self.depth(counts, visible))

    def decode(self, values: Tensor, counts: Tensor, visible: Tensor) -> Tensor:
        """Counts with these values in cells with these visible counts; never above the largest of training."""
        return torch.expm1(values.clamp(0, self.largest)) * self.depth(counts, visible)


class BinnedValues(LogValues):
    """Counts as numbers of bins that hold as many of the visible non-zero counts of a cell each, and back.

    A cell without visible counts has the bins of the mean training cell.

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
    >>> values, visible = BinnedValues(cells, n_bins=5), torch.ones(1, 5, dtype=torch.bool)
    >>> values(counts, visible)
    tensor([[0., 1., 2., 3., 4.]])
    >>> values.decode(torch.tensor([[0.5, 2.5, 7.0]]), counts, visible)
    tensor([[0.5000, 2.5000, 8.0000]])
    """

    def __init__(self, cells: Cells, n_bins: int):
        self.n_bins = n_bins
        super().__init__(cells)

    def edges(self, counts: Tensor, visible: Tensor) -> Tensor:
        """Lower edge of each bin, that of the zeros included, (cells, bins)."""
        seen = visible & (counts > 0)
        nothing = ~seen.any(dim=1, keepdim=True)
        shown = torch.where(nothing, self.gene_mean, counts.masked_fill(~seen, 0.0))
        n_zeros = (shown == 0).sum(dim=1, keepdim=True)
        levels = torch.linspace(0, 1, self.n_bins - 1, device=counts.device)
        place = (n_zeros + levels * (shown.shape[1] - 1 - n_zeros)).clamp(max=shown.shape[1] - 1)
        return nn.functional.pad(_interpolate(shown.sort(dim=1).values, place), (1, 0))

    def forward(self, counts: Tensor, visible: Tensor) -> Tensor:
        """Number of the bin of each entry, (cells, genes); counts that fill several bins get the middle of them."""
        edges = self.edges(counts, visible)[:, 1:].contiguous()
        last = torch.searchsorted(edges, counts.contiguous(), right=True)
        first = torch.minimum(torch.searchsorted(edges, counts.contiguous()) + 1, last)
        return torch.where(counts > 0, ((first + last) / 2).clamp(min=1), 0.0)

    def decode(self, values: Tensor, counts: Tensor, visible: Tensor) -> Tensor:
        """Counts at these numbers of bins."""
        return _interpolate(self.edges(counts, visible), values.clamp(0, self.n_bins - 1))


def _interpolate(table: Tensor, place: Tensor) -> Tensor:
    """Entries of each row of ``table`` at places between whole numbers."""
    low = place.floor()
    high = place.ceil().clamp(max=table.shape[1] - 1)
    return torch.lerp(table.gather(1, low.long()), table.gather(1, high.long()), place - low)
