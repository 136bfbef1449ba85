"""A depth for each group of genes, such as a modality, and what the depths of the others say of one that is not seen."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sccountsdiff.nn.factors import fit_factors


class GroupDepth(nn.Module):
    """Depth factors of the groups of genes of a cell: molecules found over those that a mean cell would show.

    Log depths of the groups are taken as jointly normal over cells, and the log of a total as normal with the variance of
    Poisson counts. So a group of which much is seen has its own depth, one of which little is seen is pulled towards what
    the depths of the others say, and one of which nothing is seen has the depth that is expected of such a cell.

    A group of which nothing is seen is one of many things that a network learns, and what it predicts there does not quite
    add up to the counts of its own training cells. ``log_level``, one number for each group, is added to log means there, so
    that it does. A network that has seen few cells is also too sure of such groups. By how much is measured on validation
    cells: ``log_dispersion`` is added to log dispersions there.

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
    log_level: Tensor
    log_dispersion: Tensor

    def __init__(self, gene_groups: Tensor):
        super().__init__()
        self.n_groups = int(gene_groups.max()) + 1
        self.register_buffer("genes", gene_groups.long(), persistent=False)
        members = gene_groups == torch.arange(self.n_groups)[:, None]
        self.register_buffer("members", members.float(), persistent=False)
        self.register_buffer("centre", torch.full((self.n_groups,), -0.5))  # the mean depth is 1
        self.register_buffer("covariance", torch.eye(self.n_groups))
        self.register_buffer("log_level", torch.zeros(self.n_groups))
        self.register_buffer("log_dispersion", torch.zeros(self.n_groups))

    def sums(self, values: Tensor) -> Tensor:
        """Sum over the genes of each group: (cells, genes) to (cells, groups)."""
        return values @ self.members.T

    def to_genes(self, values: Tensor) -> Tensor:
        """The value of each gene's group: (cells, groups) to (cells, genes)."""
        return values[:, self.genes]

    def corrections(self, observed: Tensor) -> tuple[Tensor, Tensor]:
        """What is added to log mean and log dispersion of each gene, from which genes are observed (all cells, genes)."""
        unseen = self.sums(observed) == 0
        return self.to_genes(self.log_level * unseen), self.to_genes(self.log_dispersion * unseen)

    @torch.no_grad()
    def fit(self, found: Tensor, expected: Tensor) -> None:
        """Fit the law of the depths to molecules found and expected (cells, groups), 0 where nothing is observed."""
        logs, _ = _log_ratio(found.double(), expected.double())
        seen = expected > 0
        centre = (logs * seen).sum(0) / seen.sum(0).clamp_min(1)
        loadings, noise = fit_factors((logs - centre) * seen, seen, n_factors=1, n_rounds=100)
        self.centre.copy_(centre)
        self.covariance.copy_(loadings @ loadings.T + torch.diag(noise))

    @torch.no_grad()
    def forward(self, found: Tensor, expected: Tensor) -> Tensor:
        """Logs of the expected depth factors (cells, groups), from molecules found and those of a mean cell."""
        with torch.autocast(found.device.type, enabled=False):  # the solve needs single precision
            logs, precision = _log_ratio(found.float(), expected.float())
            prior = torch.linalg.inv_ex(self.covariance).inverse
            root, _ = torch.linalg.cholesky_ex(prior + torch.diag_embed(precision))
            # Not `cholesky_inverse`, which has the host look for errors.
            spread = torch.cholesky_solve(torch.eye(root.shape[-1], device=root.device).expand_as(root), root)
            mean = self.centre + (spread @ (precision * (logs - self.centre))[..., None])[..., 0]
            return mean + spread.diagonal(dim1=1, dim2=2) / 2  # the mean of a log-normal number, not its median


def _log_ratio(found: Tensor, expected: Tensor) -> tuple[Tensor, Tensor]:
    """Logs of found over expected molecules, and their precisions, which are 0 where none are expected."""
    logs = torch.log((found + 0.5) / (expected + 0.5))
    return logs, found + 0.5 * expected / (expected + 0.5)
