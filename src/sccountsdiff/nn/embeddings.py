"""Tokens that tell the network time, depth and covariates."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class TimeEmbedding(nn.Module):
    """Fourier features of continuous time in [0, 1], then a small network.

    Parameters
    ----------
    n_hidden
        Width of the embedding.
    n_frequencies
        Number of frequencies, each with a sine and a cosine.
    max_frequency
        The highest of them, in half turns from t = 0 to t = 1; the lowest is 0.5.

    Examples
    --------
    >>> import torch
    >>> from sccountsdiff.nn import TimeEmbedding
    >>> TimeEmbedding(n_hidden=8)(torch.rand(4)).shape
    torch.Size([4, 8])
    """

    frequencies: Tensor

    def __init__(self, n_hidden: int, n_frequencies: int = 16, max_frequency: float = 50.0):
        super().__init__()
        frequencies = torch.logspace(math.log10(0.5), math.log10(max_frequency), n_frequencies) * math.pi
        self.register_buffer("frequencies", frequencies)
        self.mlp = nn.Sequential(nn.Linear(2 * n_frequencies, n_hidden), nn.SiLU(), nn.Linear(n_hidden, n_hidden))

    def forward(self, t: Tensor) -> Tensor:
        """(cells,) to (cells, n_hidden)."""
        angles = t[:, None] * self.frequencies
        return self.mlp(torch.cat([angles.cos(), angles.sin()], dim=1))


class CategoryEmbedding(nn.Embedding):
    """A vector for each category, of which the first ``n_frozen`` are not trained.

    Examples
    --------
    >>> import torch
    >>> embed = CategoryEmbedding(3, 2)
    >>> embed.freeze_first(2)
    >>> embed(torch.arange(3)).sum().backward()
    >>> embed.weight.grad.tolist()
    [[0.0, 0.0], [0.0, 0.0], [1.0, 1.0]]
    """

    n_frozen = 0

    def freeze_first(self, n_frozen: int) -> None:
        """Train all but the first vectors."""
        self.n_frozen = n_frozen
        self.requires_grad_(n_frozen < self.num_embeddings)

    def forward(self, input: Tensor) -> Tensor:
        """Codes to vectors."""
        if not self.n_frozen:
            return super().forward(input)
        return F.embedding(input, torch.cat([self.weight[: self.n_frozen].detach(), self.weight[self.n_frozen :]]))


class Conditioning(nn.Module):
    """One token each for time, for depth, for factors and for every covariate; covariate tokens are 0 in the null state.

    Parameters
    ----------
    n_hidden
        Width of the tokens.
    n_depth_features
        Numbers that describe the depth of a cell.
    n_categories
        Number of categories of each categorical covariate.
    n_continuous
        Number of continuous covariates.
    n_factors
        Number of factors; 0: no token for them.

    Examples
    --------
    >>> import torch
    >>> from sccountsdiff.nn import Conditioning
    >>> embed = Conditioning(n_hidden=8, n_depth_features=3, n_categories=[5], n_continuous=1)
    >>> covariates = embed.covariates(torch.zeros(4, 1, dtype=torch.long), torch.zeros(4, 1))
    >>> embed(torch.rand(4), torch.zeros(4, 3), covariates, torch.tensor([False] * 4)).shape
    torch.Size([4, 4, 8])
    """

    def __init__(
        self,
        n_hidden: int,
        n_depth_features: int,
        n_categories: Sequence[int] = (),
        n_continuous: int = 0,
        n_factors: int = 0,
    ):
        super().__init__()
        self.n_hidden = n_hidden
        self.time = TimeEmbedding(n_hidden)
        self.depth = nn.Sequential(nn.Linear(n_depth_features, n_hidden), nn.SiLU(), nn.Linear(n_hidden, n_hidden))
        self.factors = nn.Linear(n_factors, n_hidden) if n_factors else None
        self.categorical = nn.ModuleList(CategoryEmbedding(n, n_hidden) for n in n_categories)
        self.continuous = nn.ModuleList(
            nn.Sequential(nn.Linear(1, n_hidden), nn.SiLU(), nn.Linear(n_hidden, n_hidden)) for _ in range(n_continuous)
        )

    def covariates(self, categories: Tensor, continuous: Tensor) -> Tensor:
        """Tokens of the covariates (cells, covariates, n_hidden), from codes and from values (cells, covariates)."""
        tokens = [embed(categories[:, k]) for k, embed in enumerate(self.categorical)]
        tokens += [embed(continuous[:, [k]]) for k, embed in enumerate(self.continuous)]
        if not tokens:
            return self.time.frequencies.new_zeros(len(categories), 0, self.n_hidden)
        return torch.stack(tokens, dim=1)

    def forward(
        self, t: Tensor, depth: Tensor, covariates: Tensor, null: Tensor, factors: Tensor | None = None
    ) -> Tensor:
        """Tokens of shape (cells, tokens, n_hidden).

        Parameters
        ----------
        t
            Times, (cells,).
        depth
            Depth features, (cells, n_depth_features).
        covariates
            Their tokens, from :meth:`covariates`.
        null
            Cells in the null state, (cells,) boolean.
        factors
            Values, (cells, factors).
        """
        tokens = [self.time(t), self.depth(depth)]
        if self.factors is not None:
            tokens.append(self.factors(factors))
        return torch.cat([torch.stack(tokens, dim=1), covariates.masked_fill(null[:, None, None], 0.0)], dim=1)

    def freeze_known(self, n_known: Sequence[int]) -> None:
        """Train nothing but the vectors of categories after the first ``n_known`` of each covariate."""
        self.requires_grad_(False)
        for embedding, n in zip(self.categorical, n_known, strict=True):
            embedding.freeze_first(n)  # type: ignore[operator]
