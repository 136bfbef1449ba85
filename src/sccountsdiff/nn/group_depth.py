"""A depth for each group of genes, such as a modality, and what the depths of the others say of one that is not seen."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sccountsdiff.nn.factors import fit_factors

LARGEST_TAIL = 3.0
"""Where the factor of half the variance ends: few cells could ask for anything."""


class GroupDepth(nn.Module):
    """Depth factors of the groups of genes of a cell: molecules found over those that a mean cell would show.

    Log depths of the groups are taken as jointly normal over cells, and the log of a total as normal with the variance of
    Poisson counts. So a group of which much is seen has its own depth, one of which little is seen is pulled towards what
    the depths of the others say, and one of which nothing is seen has the depth that is expected of such a cell.

    The mean of a log-normal number exceeds its median by half the variance of its log. A few cells of real data are deeper
    than any normal law has them, and it is them that totals are made of. So half the variance is multiplied by a number for
    each group, ``tail``, with which the depths that the others predict add up to those that were found.

    A network that has seen few cells is too sure of groups of which nothing is seen in a new one. By how much is measured on
    validation cells: ``log_dispersion``, one number for each group, is added to log dispersions there.

    Parameters
    ----------
    gene_groups
        Number of the group of each gene, from 0.

    Examples
    --------
    Two groups whose depths go together; of the last cell only the first group is seen.

    >>> import torch
    >>> from sccountsdiff.nn import GroupDepth
    >>> depth = GroupDepth(torch.tensor([0, 0, 1]))
    >>> size = torch.linspace(-1, 1, 200)[:, None].exp()
    >>> depth.fit(1000 * size.repeat(1, 2), torch.full((200, 2), 1000.0))
    >>> depth(torch.tensor([[2000.0, 0.0]]), torch.tensor([[1000.0, 0.0]])).exp().round(decimals=1).tolist()
    [[2.0, 2.0]]
    """

    genes: Tensor
    members: Tensor
    centre: Tensor
    covariance: Tensor
    tail: Tensor
    log_dispersion: Tensor

    def __init__(self, gene_groups: Tensor):
        super().__init__()
        self.n_groups = int(gene_groups.max()) + 1
        self.register_buffer("genes", gene_groups.long(), persistent=False)
        members = gene_groups == torch.arange(self.n_groups)[:, None]
        self.register_buffer("members", members.float(), persistent=False)
        self.register_buffer("centre", torch.full((self.n_groups,), -0.5))  # the mean depth is 1
        self.register_buffer("covariance", torch.eye(self.n_groups))
        self.register_buffer("tail", torch.ones(self.n_groups))
        self.register_buffer("log_dispersion", torch.zeros(self.n_groups))

    def sums(self, values: Tensor) -> Tensor:
        """Sum over the genes of each group: (cells, genes) to (cells, groups)."""
        return values @ self.members.T

    def to_genes(self, values: Tensor) -> Tensor:
        """The value of each gene's group: (cells, groups) to (cells, genes)."""
        return values[:, self.genes]

    def log_dispersion_of(self, observed: Tensor) -> Tensor:
        """What is added to the log dispersion of each gene, from which genes are observed (both cells, genes)."""
        return self.to_genes(self.log_dispersion * (self.sums(observed) == 0))

    @torch.no_grad()
    def fit(self, found: Tensor, expected: Tensor) -> None:
        """Fit the law of the depths to molecules found and expected (cells, groups), 0 where nothing is observed."""
        logs, _ = _log_ratio(found.double(), expected.double())
        seen = expected > 0
        centre = (logs * seen).sum(0) / seen.sum(0).clamp_min(1)
        loadings, noise = fit_factors((logs - centre) * seen, seen, n_factors=1, n_rounds=100)
        self.centre.copy_(centre)
        self.covariance.copy_(loadings @ loadings.T + torch.diag(noise))
        for group in range(self.n_groups):
            has_it = seen[:, group] & (seen.sum(1) > 1)  # and something that it is predicted from
            if bool(found[has_it, group].sum() > 0):
                others = torch.arange(self.n_groups, device=found.device) != group
                mean, variance = self._law(*(of_cells[has_it] * others for of_cells in (found, expected)))
                weight = expected[has_it, group].double()
                depths = found[has_it, group].sum(dtype=torch.float64) / weight.sum()
                self.tail[group] = _tail(mean[:, group].double(), variance[:, group].double(), weight, depths)

    def _law(self, found: Tensor, expected: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances of the log depths of a cell (cells, groups), given its molecules."""
        with torch.autocast(found.device.type, enabled=False):  # the solve needs single precision
            logs, precision = _log_ratio(found.float(), expected.float())
            prior = torch.linalg.inv_ex(self.covariance).inverse
            root, _ = torch.linalg.cholesky_ex(prior + torch.diag_embed(precision))
            spread = torch.cholesky_inverse(root)
            mean = self.centre + (spread @ (precision * (logs - self.centre))[..., None])[..., 0]
            return mean, spread.diagonal(dim1=1, dim2=2)

    @torch.no_grad()
    def forward(self, found: Tensor, expected: Tensor) -> Tensor:
        """Logs of the expected depth factors (cells, groups), from molecules found and those of a mean cell."""
        mean, variance = self._law(found, expected)
        return mean + self.tail * variance / 2  # the mean of a depth, not its median


def _tail(mean: Tensor, variance: Tensor, weight: Tensor, target: Tensor, n_rounds: int = 20) -> float:
    """The factor of half the variance with which the weighted mean of depths is ``target``, from 0 to ``LARGEST_TAIL``."""
    factor = 1.0
    for _ in range(n_rounds):  # Newton's method, for the log of the mean
        depths = weight * torch.exp(mean + factor * variance / 2)
        missing = torch.log(target * weight.sum() / depths.sum())
        slope = (depths * variance).sum() / (2 * depths.sum())
        factor = min(max(factor + float(missing / slope), 0.0), LARGEST_TAIL)
    return factor


def _log_ratio(found: Tensor, expected: Tensor) -> tuple[Tensor, Tensor]:
    """Logs of found over expected molecules, and their precisions, which are 0 where none are expected."""
    logs = torch.log((found + 0.5) / (expected + 0.5))
    return logs, found + 0.5 * expected / (expected + 0.5)
