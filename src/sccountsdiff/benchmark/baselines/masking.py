"""Hiding observed entries in training, packing of tokens, and the budget of steps of masked auto-encoders."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from sccountsdiff.benchmark.baselines.torch_training import Batch, Network, TorchBaseline
from sccountsdiff.benchmark.baselines.value_transforms import LogValues


@dataclass(eq=False)
class MaskedAutoEncoder(TorchBaseline):
    """A torch baseline that hides entries of its training cells and learns to predict them.

    Parameters
    ----------
    hidden_shares
        Shares of the genes that are hidden in training; each cell of a batch gets one of them by chance.
    max_steps
        Steps at most, rounded up to whole epochs, so that the last ones are validated too. ``None`` leaves it to
        ``max_epochs``.
    """

    hidden_shares: tuple[float, ...] = (0.25, 0.5, 0.75)
    max_steps: int | None = 1000
    batch_size: int = 64
    lr: float = 3e-3
    ema_decay: float | None = 0.98

    group = "specialised"
    uses_mask = True

    def __post_init__(self) -> None:
        if not self.hidden_shares or not all(0 < share < 1 for share in self.hidden_shares):
            raise ValueError(f"hidden_shares must lie strictly between 0 and 1, found {self.hidden_shares}.")

    def _n_epochs(self, n_cells: int) -> int:
        if self.max_steps is None:
            return self.max_epochs
        return min(self.max_epochs, math.ceil(self.max_steps * self.batch_size / n_cells))


class HidingNetwork(Network):
    """A network that learns to predict the values of entries that are hidden from it, by squared error.

    Parameters
    ----------
    values
        From counts to values and back.
    settings
        Those of the method; shares of the observed entries that are hidden in training are among them.
    """

    def __init__(self, values: LogValues, settings: MaskedAutoEncoder):
        super().__init__()
        self.values = values
        self.register_buffer("hidden_shares", torch.tensor(settings.hidden_shares))

    @abstractmethod
    def errors(self, batch: Batch, observed: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Predicted minus true values of a batch of which other entries are observed, and which of them are hidden ones."""

    def hide(self, batch: Batch) -> Tensor:
        """Observed entries that are hidden in a training step."""
        return hide(batch.observed, self.hidden_shares)

    def loss(self, batch: Batch) -> Tensor:
        """Mean squared error at hidden entries."""
        hidden = self.hide(batch)
        errors, counted = self.errors(batch, batch.observed & ~hidden, hidden)
        return (errors.square() * counted).sum() / counted.sum().clamp(min=1)


def random_part(observed: Tensor) -> Tensor:
    """Observed entries of each cell at random, each with the same probability, which is drawn for the cell.

    Examples
    --------
    >>> import torch
    >>> observed = torch.tensor([[True, False, True, True]])
    >>> bool((random_part(observed) & ~observed).any())
    False
    """
    share = torch.rand(len(observed), 1, device=observed.device)
    return observed & (torch.rand(observed.shape, device=observed.device) < share)


def hide(observed: Tensor, shares: Tensor) -> Tensor:
    """Hide observed entries of each cell at random, a share of them drawn from ``shares``.

    Examples
    --------
    >>> import torch
    >>> observed = torch.tensor([[True, False, True, True]])
    >>> bool((hide(observed, torch.tensor([0.5])) & ~observed).any())
    False
    """
    share = shares[torch.randint(len(shares), (len(observed), 1), device=observed.device)]
    return observed & (torch.rand(observed.shape, device=observed.device) < share)


def pack(wanted: Tensor, n_max: int | None = None) -> tuple[Tensor, Tensor]:
    """Indices of the wanted genes of each cell, padded to the largest number of any cell.

    Parameters
    ----------
    wanted
        Boolean (cells, genes).
    n_max
        Tokens at most; of a cell with more a random choice is kept. Default: all.

    Returns
    -------
    Indices of genes (cells, tokens), and a boolean matrix that is ``False`` where they are padding. There is always at
    least one token.

    Examples
    --------
    >>> import torch
    >>> index, valid = pack(torch.tensor([[False, True, False], [True, True, False]]))
    >>> index[valid].tolist(), valid.tolist()
    ([1, 0, 1], [[True, False], [True, True]])
    """
    longest = max(int(wanted.sum(dim=1).max()), 1)
    rank = wanted.float()
    if n_max is not None and longest > n_max:
        longest = n_max
        rank = rank + 0.5 * torch.rand_like(rank)
    index = rank.argsort(dim=1, descending=True, stable=True)[:, :longest]
    return index, wanted.gather(1, index)


def split_heads(qkv: Tensor, n_heads: int) -> Iterator[Tensor]:
    """Queries, keys and values of each head, (cells, heads, tokens, width), from all of them side by side.

    Examples
    --------
    >>> import torch
    >>> [part.shape for part in split_heads(torch.zeros(5, 7, 12), n_heads=2)]
    [torch.Size([5, 2, 7, 2]), torch.Size([5, 2, 7, 2]), torch.Size([5, 2, 7, 2])]
    """
    return (part.unflatten(-1, (n_heads, -1)).transpose(1, 2) for part in qkv.chunk(3, dim=-1))
