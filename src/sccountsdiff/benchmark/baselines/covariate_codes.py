"""Covariates as numbers for networks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn


def kinds(covariates: pd.DataFrame) -> tuple[list[str], list[str]]:
    """Names of the categorical and of the continuous covariates, which are those of a float type.

    Examples
    --------
    >>> import pandas as pd
    >>> kinds(pd.DataFrame({"type": ["a", "b"], "age": [1.0, 2.0], "batch": [1, 2]}))
    (['type', 'batch'], ['age'])
    """
    continuous = [key for key in covariates if pd.api.types.is_float_dtype(covariates[key])]
    return [key for key in covariates if key not in continuous], continuous


@dataclass(frozen=True)
class CovariateCoder:
    """Codes for categorical covariates, standard scores for continuous ones, as the training cells had them.

    Attributes
    ----------
    categories
        The categories of each categorical covariate.
    moments
        Mean and standard deviation of each continuous covariate.

    Examples
    --------
    >>> import pandas as pd
    >>> train = pd.DataFrame({"type": ["a", "b", "a"], "age": [1.0, 2.0, 3.0]})
    >>> coder = CovariateCoder.fit(train)
    >>> codes, scores, unseen = coder(pd.DataFrame({"type": ["b", "new"], "age": [2.0, 2.0]}))
    >>> codes.tolist(), scores.tolist(), unseen.tolist()
    ([[1], [0]], [[0.0], [0.0]], [False, True])
    """

    categories: dict[str, pd.Index]
    moments: dict[str, tuple[float, float]]

    @classmethod
    def fit(cls, covariates: pd.DataFrame) -> CovariateCoder:
        """Learn categories and moments from training cells."""
        categorical, continuous = kinds(covariates)
        return cls(
            {key: pd.Index(sorted(covariates[key].astype(str).unique())) for key in categorical},
            {key: _mean_and_sd(covariates[key].to_numpy(float)) for key in continuous},
        )

    def scores(self, covariates: pd.DataFrame) -> np.ndarray:
        """Standard scores of the continuous covariates, (cells, continuous)."""
        mean, sd = np.reshape(list(self.moments.values()), (-1, 2)).T
        return (covariates[list(self.moments)].to_numpy(float) - mean) / sd

    def __call__(self, covariates: pd.DataFrame) -> tuple[Tensor, Tensor, Tensor]:
        """Codes (cells, categorical), scores (cells, continuous), and which cells have an unseen category (code 0)."""
        codes = [index.get_indexer(covariates[key].astype(str)) for key, index in self.categories.items()]
        codes = np.stack(codes, axis=1) if codes else np.zeros((len(covariates), 0), dtype=np.int64)
        return (
            torch.as_tensor(codes.clip(0).astype(np.int64)),
            torch.as_tensor(self.scores(covariates).astype(np.float32)),
            torch.as_tensor((codes < 0).any(axis=1)),
        )

    def label(self, covariates: pd.DataFrame, n_hidden: int) -> CovariateLabel:
        """A network that has a vector for each combination of categories that training cells have."""
        return CovariateLabel(self(covariates)[0], [len(index) for index in self.categories.values()], n_hidden)

    def embedding(self, n_hidden: int) -> CovariateEmbedding:
        """A network that turns covariates coded this way into one vector."""
        return CovariateEmbedding([len(index) for index in self.categories.values()], len(self.moments), n_hidden)


class CovariateEmbedding(nn.Module):
    """Sum of one vector for each covariate; 0 in the null state, and for unseen categories.

    Parameters
    ----------
    n_categories
        Number of categories of each categorical covariate.
    n_continuous
        Number of continuous covariates.
    n_hidden
        Length of the vector.

    Examples
    --------
    >>> import torch
    >>> embed = CovariateEmbedding([3], 1, n_hidden=4)
    >>> null = torch.tensor([True, False])
    >>> embed(torch.zeros(2, 1, dtype=torch.long), torch.zeros(2, 1), null)[0].tolist()
    [0.0, 0.0, 0.0, 0.0]
    """

    def __init__(self, n_categories: list[int], n_continuous: int, n_hidden: int):
        super().__init__()
        self.n_hidden = n_hidden
        self.categorical = nn.ModuleList(nn.Embedding(n, n_hidden) for n in n_categories)
        self.continuous = nn.Linear(n_continuous, n_hidden, bias=False) if n_continuous else None

    def forward(self, categories: Tensor, continuous: Tensor, null: Tensor) -> Tensor:
        """(cells, n_hidden)."""
        total = torch.zeros(len(categories), self.n_hidden, dtype=continuous.dtype, device=categories.device)
        for k, embed in enumerate(self.categorical):
            total = total + embed(categories[:, k])
        if self.continuous is not None:
            total = total + self.continuous(continuous)
        return total.masked_fill(null[:, None], 0.0)


class CovariateLabel(nn.Module):
    """One vector for each combination of categories, 0 at first; 0 for one that was not seen in training.

    Parameters
    ----------
    codes
        Categories of the training cells, (cells, categorical covariates).
    n_categories
        Number of categories of each categorical covariate.
    n_hidden
        Length of the vectors.

    Examples
    --------
    >>> import torch
    >>> label = CovariateLabel(torch.tensor([[0, 1], [1, 0], [0, 1]]), [2, 2], n_hidden=4)
    >>> len(label), label(torch.tensor([[1, 1]]), torch.tensor([False])).tolist()
    (2, [[0.0, 0.0, 0.0, 0.0]])
    """

    seen: Tensor
    factors: Tensor

    def __init__(self, codes: Tensor, n_categories: list[int], n_hidden: int):
        super().__init__()
        factors = torch.tensor([1, *n_categories[:-1]]).cumprod(0) if n_categories else torch.zeros(0, dtype=torch.long)
        self.register_buffer("factors", factors)  # a combination is a number with one digit for each covariate
        self.register_buffer("seen", torch.unique((codes * factors).sum(1)))
        self.vectors = nn.Embedding(len(self.seen), n_hidden)
        nn.init.zeros_(self.vectors.weight)

    def __len__(self) -> int:
        return len(self.seen)

    def forward(self, categories: Tensor, unseen: Tensor) -> Tensor:
        """(cells, n_hidden)."""
        number = (categories * self.factors).sum(1)
        place = torch.searchsorted(self.seen, number).clamp_max(len(self) - 1)
        return self.vectors(place).masked_fill((unseen | (self.seen[place] != number))[:, None], 0.0)


def _mean_and_sd(values: np.ndarray) -> tuple[float, float]:
    """Mean and standard deviation; 1 if that is nothing but rounding."""
    mean, sd = float(values.mean()), float(values.std())
    return mean, sd if sd > 1e-9 * abs(mean) else 1.0
