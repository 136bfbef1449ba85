"""Counts as classes of a categorical distribution."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from sccountsdiff.benchmark.baselines.cells import Cells


class CountClasses(nn.Module):
    """One class for each count; the last class stands for its count and all larger ones.

    The last class becomes one of the training counts that belong to it, of the same gene if it had any.

    Parameters
    ----------
    cells
        Training cells.
    quantile
        Counts up to this quantile have a class of their own.
    max_classes
        Classes at most.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> import torch
    >>> counts = np.array([[0.0, 1.0], [1.0, 90.0]])
    >>> classes = CountClasses(Cells(counts, counts >= 0, pd.DataFrame(index=range(2))), 1.0, max_classes=3)
    >>> codes = classes.encode(torch.tensor([[1.0, 55.0]]))
    >>> codes.tolist(), classes.decode(codes).tolist()
    ([[1, 2]], [[1.0, 90.0]])
    """

    def __init__(self, cells: Cells, quantile: float, max_classes: int):
        super().__init__()
        counts = np.round(cells.counts)
        self.last = int(np.clip(np.quantile(counts[cells.observed], quantile, method="higher"), 1, max_classes - 1))
        gene, cell = np.nonzero((cells.observed & (counts >= self.last)).T)  # gene by gene
        n_of_gene = np.bincount(gene, minlength=counts.shape[1])
        first = np.where(n_of_gene > 0, n_of_gene.cumsum() - n_of_gene, 0)
        tail = counts[cell, gene] if len(cell) else np.array([self.last])
        self.register_buffer("tail", torch.as_tensor(tail.astype(np.float32)))
        self.register_buffer("first", torch.as_tensor(first))
        self.register_buffer("number", torch.as_tensor(np.where(n_of_gene > 0, n_of_gene, len(tail))))

    def __len__(self) -> int:
        return self.last + 1

    def encode(self, counts: Tensor) -> Tensor:
        """Classes of counts, (cells, genes)."""
        return counts.round().clamp_max(self.last).long()

    def decode(self, codes: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Counts of classes, (cells, genes)."""
        chance = torch.rand(codes.shape, generator=generator, device=codes.device)
        chosen = torch.minimum((chance * self.number).long(), self.number - 1)
        return torch.where(codes == self.last, self.tail[self.first + chosen], codes.float())

    def mean(self, law: Tensor, gene: Tensor) -> Tensor:
        """Expected counts of entries (entries,) with these probabilities (entries, classes) and of these genes (entries,)."""
        before = torch.cat([self.tail.new_zeros(1, dtype=torch.double), self.tail.double().cumsum(0)])
        tail = (before[self.first + self.number] - before[self.first]) / self.number  # of each gene
        counts = torch.arange(self.last, dtype=law.dtype, device=law.device)
        return law[:, :-1] @ counts + law[:, -1] * tail.to(law.dtype)[gene]
