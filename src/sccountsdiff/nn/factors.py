"""A linear model of the genes: what the observed entries of a cell say about a few factors, exactly."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from sccountsdiff.diffusion.host import one_row_if_alike
from sccountsdiff.diffusion.products import linear

PRIOR_CELLS = 5
"""Cells without any signal that are added to the data, so that what few cells say is not taken at face value."""

NOISE_FLOOR = 0.01
"""Share of the variance of a gene that is noise at least."""

BOUND = 3.0
"""Factors are standard normal; those of a cell unlike all others are drawn in to this many standard deviations."""

TINY = 1e-30
"""Stands for a count of 0 where a root is taken: it adds nothing to a sum in single precision."""


def factor_posterior(residuals: Tensor, observed: Tensor, loadings: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Means of the factors of each cell given its observed entries, and the Cholesky factors of their precisions.

    Genes are ``loadings @ factors`` plus independent noise, and factors are standard normal. One system of equations of the
    size of the factors is solved for each cell, whichever genes are observed in it.

    Parameters
    ----------
    residuals
        Values minus their means (cells, genes), 0 where not observed.
    observed
        1 where observed, else 0, (cells, genes); one row stands for all cells.
    loadings
        Loadings (genes, factors).
    noise
        Variance of the noise (genes,).

    Returns
    -------
    Means (cells, factors) and lower triangular matrices (cells, factors, factors), one if one row stood for all cells.

    Examples
    --------
    One factor in two genes with as much noise; the second is seen in one of the cells.

    >>> import torch
    >>> from sccountsdiff.nn import factor_posterior
    >>> observed = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    >>> residuals = torch.tensor([[3.0, 0.0], [3.0, 3.0]])
    >>> mean, root = factor_posterior(residuals, observed, torch.ones(2, 1), torch.ones(2))
    >>> mean.ravel().round(decimals=3).tolist(), (root**2).ravel().round().tolist()
    ([1.5, 2.0], [2.0, 3.0])
    """
    root = _root(observed @ _pairs(loadings, noise), loadings.shape[1])
    return _solved(residuals @ (loadings / noise[:, None]), root), root


def _solved(projected: Tensor, root: Tensor) -> Tensor:
    """Solutions (cells, factors) of equations with these right sides, and one Cholesky factor for each cell or for all."""
    if len(root) == 1:
        return torch.cholesky_solve(projected.T, root[0]).T
    return torch.cholesky_solve(projected[..., None], root)[..., 0]


def _pairs(loadings: Tensor, noise: Tensor) -> Tensor:
    """What each gene adds to the precision of the factors, (genes, pairs): half of a symmetric matrix, row by row."""
    rows, columns = torch.tril_indices(*[loadings.shape[1]] * 2, device=loadings.device)
    return loadings[:, rows] * loadings[:, columns] / noise[:, None]


def _root(lower: Tensor, n_factors: int) -> Tensor:
    """Cholesky factors of precisions (cells, factors, factors), from what genes add to them (cells, pairs)."""
    # Where in the square each number goes; those above the diagonal are not read.
    rows, columns = torch.arange(n_factors, device=lower.device)[:, None], torch.arange(n_factors, device=lower.device)
    place = (rows * (rows + 1) // 2 + columns).clamp_max(lower.shape[1] - 1)
    precision = lower.index_select(1, place.flatten()).unflatten(1, place.shape)
    precision.diagonal(dim1=1, dim2=2).add_(1)
    return torch.linalg.cholesky_ex(precision).L  # positive definite, so there is nothing to check


def fit_factors(
    residuals: Tensor,
    observed: Tensor | None,
    n_factors: int,
    n_rounds: int = 20,
    prior_cells: float = PRIOR_CELLS,
    batch_size: int = 1024,
    seed: int = 0,
) -> tuple[Tensor, Tensor]:
    """Factor analysis of incomplete data: expectation maximisation that starts from principal components.

    Parameters
    ----------
    residuals
        Values minus their means (cells, genes), in double precision, 0 where not observed.
    observed
        Boolean (cells, genes); ``None`` if all entries are, which takes a fraction of the time.
    n_factors
        Number of factors; no more than cells or genes.
    n_rounds
        Rounds of expectation maximisation.
    prior_cells
        Loadings are shrunk as by this many cells in which factors have no effect.
    batch_size
        Cells at a time, which bounds the memory.
    seed
        Seed of the randomised principal components.

    Returns
    -------
    Loadings (genes, factors) and the variance of the noise (genes,).

    Examples
    --------
    >>> import torch
    >>> from sccountsdiff.nn import fit_factors
    >>> draw = torch.Generator().manual_seed(0)
    >>> values = torch.randn(2000, 1, generator=draw) * torch.tensor([2.0, 1.0, -1.0])
    >>> values = (values + torch.randn(2000, 3, generator=draw)).double()
    >>> loadings, noise = fit_factors(values, None, n_factors=1, n_rounds=50)
    >>> (loadings @ loadings.T + torch.diag(noise)).round().tolist()
    [[5.0, 2.0, -2.0], [2.0, 2.0, -1.0], [-2.0, -1.0, 2.0]]
    """
    n_cells, n_genes = residuals.shape
    n_factors = min(n_factors, n_cells, n_genes)
    everything = residuals.new_ones(1, n_genes)
    n_observed = residuals.new_tensor(n_cells) if observed is None else observed.sum(0).clamp_min(1)
    total = (residuals**2).sum(0)
    floor = NOISE_FLOOR * total / n_observed + 1e-9  # a silent gene has no variance at all
    loadings = _principal_components(residuals, n_factors, seed)
    noise = torch.maximum(total / n_observed - (loadings**2).sum(1), floor)

    identity = torch.eye(n_factors, dtype=residuals.dtype, device=residuals.device)
    for _ in range(n_rounds):
        spread = torch.zeros_like(identity)  # second moments of the factors, over all cells
        second = residuals.new_zeros(n_genes, n_factors**2)  # the same over the cells in which the gene is observed
        cross = torch.zeros_like(loadings)  # of the gene and the factors
        for rows in range(0, n_cells, batch_size):
            some = residuals[rows : rows + batch_size]
            seen = everything if observed is None else observed[rows : rows + batch_size].to(residuals.dtype)
            factors, root = factor_posterior(some, seen, loadings, noise)
            covariance = torch.cholesky_inverse(root)
            if observed is None:
                spread += factors.T @ factors + len(some) * covariance[0]
            else:
                moments = factors[:, :, None] * factors[:, None] + covariance
                spread += moments.sum(0)
                second += seen.T @ moments.flatten(1)
            cross += some.T @ factors
        second = spread if observed is None else second.view(n_genes, n_factors, n_factors)
        loadings = torch.linalg.solve(second + prior_cells * identity, cross[..., None])[..., 0]
        noise = torch.maximum((total - (loadings * cross).sum(1)) / n_observed, floor)
        # Factors have to be standard normal. Scaling them in each round, rather than waiting until they are, takes fewer
        # rounds (parameter expansion), and the prior does not shrink what all genes share.
        loadings = loadings @ torch.linalg.cholesky(spread / n_cells)
    return loadings, noise


def _principal_components(residuals: Tensor, n_factors: int, seed: int, n_more: int = 10, n_rounds: int = 4) -> Tensor:
    """Loadings (genes, factors) from a randomised singular value decomposition, which has a seed of its own."""
    n_cells, n_genes = residuals.shape
    n_tried = min(n_factors + n_more, n_cells, n_genes)
    start = torch.randn(n_genes, n_tried, generator=torch.Generator().manual_seed(seed), dtype=residuals.dtype)
    basis = torch.linalg.qr(residuals @ start.to(residuals.device)).Q
    for _ in range(n_rounds):
        basis = torch.linalg.qr(residuals @ torch.linalg.qr(residuals.T @ basis).Q).Q
    _, values, components = torch.linalg.svd(basis.T @ residuals, full_matrices=False)
    return components[:n_factors].T * values[:n_factors] / n_cells**0.5


class FactorEquations(NamedTuple):
    """What the observed entries of cells say about their factors, before the depth of the cells is known.

    ``values`` are the square roots of the observed counts, projected on the loadings, and ``centre`` the means of the genes
    in which they were observed, projected alike (both cells, factors); ``root`` has the Cholesky factors of the precisions
    (cells, factors, factors). Of ``centre`` and ``root``, one row stands for all cells if it is seen that these are observed in
    the same genes.

    Examples
    --------
    >>> import torch
    >>> from sccountsdiff.nn import Factors
    >>> Factors(n_genes=8, n_factors=2).equations(torch.ones(3, 8), torch.eye(3, 8)).root.shape
    torch.Size([3, 2, 2])
    """

    values: Tensor
    centre: Tensor
    root: Tensor

    def repeat(self, copies: int) -> FactorEquations:
        """The same for several copies of the cells, one after the other."""
        values, *of_genes = self
        several = (v if len(v) == 1 else v.repeat(copies, *[1] * (v.ndim - 1)) for v in of_genes)
        return FactorEquations(values.repeat(copies, 1), *several)


class Factors(nn.Module):
    """Posterior means of the factors of each cell, given its observed entries: an input of the network.

    The linear structure of the genes, which a network does not find by itself in small data. Values are square roots of
    counts at the depth of a mean cell. Fitted once and not trained; all zero, and without effect, until :meth:`fit`.

    Parameters
    ----------
    n_genes
        Number of genes.
    n_factors
        Number of factors.

    Examples
    --------
    >>> import torch
    >>> from sccountsdiff.nn import Factors
    >>> counts = torch.poisson(
    ...     5 * torch.exp(torch.randn(200, 1)).expand(-1, 8), generator=torch.Generator().manual_seed(0)
    ... )
    >>> factors = Factors(n_genes=8, n_factors=1)
    >>> factors.fit(counts, torch.zeros(200, 1))
    >>> factors(counts, torch.ones_like(counts), torch.zeros(200, 1)).shape
    torch.Size([200, 1])
    """

    centre: Tensor
    loadings: Tensor
    noise: Tensor
    of_genes: Tensor

    def __init__(self, n_genes: int, n_factors: int):
        super().__init__()
        self.n_factors = n_factors
        self.register_buffer("centre", torch.zeros(n_genes))
        self.register_buffer("loadings", torch.zeros(n_genes, n_factors))
        self.register_buffer("noise", torch.ones(n_genes))
        # What each gene adds to the equations: the precision of the factors, and the projection of its mean.
        n_pairs = n_factors * (n_factors + 1) // 2
        self.register_buffer("of_genes", torch.zeros(n_genes, n_pairs + n_factors), persistent=False)
        self.register_load_state_dict_post_hook(_prepare)

    @torch.no_grad()
    def fit(self, counts: Tensor, log_depth: Tensor, missing: Tensor | None = None, seed: int = 0) -> None:
        """Fit to counts (cells, genes), 0 where ``missing``, of cells with these log depths (cells, 1)."""
        values = _roots(counts.double(), log_depth.double())
        if missing is None or not bool(missing.any()):
            centre, observed = values.mean(0), None
            residuals = values - centre
        else:
            observed = ~missing
            centre = (values * observed).sum(0) / observed.sum(0).clamp_min(1)
            residuals = (values - centre) * observed
        loadings, noise = fit_factors(residuals, observed, self.n_factors, seed=seed)
        self.centre.copy_(centre)
        self.loadings.zero_()[:, : loadings.shape[1]] = loadings.to(self.loadings)
        self.noise.copy_(noise)
        _prepare(self)

    def forward(self, x: Tensor, observed: Tensor, log_depth: Tensor) -> Tensor:
        """Factors (cells, factors) from counts and which of them are observed (cells, genes), and log depths (cells, 1)."""
        return self.solve(self.equations(x, observed), log_depth)

    @torch.no_grad()
    def equations(self, x: Tensor, observed: Tensor) -> FactorEquations:
        """What counts and which of them are observed (cells, genes) say; all that takes time, and it needs no depth."""
        with torch.autocast(x.device.type, enabled=False):  # the solve needs single precision
            observed = observed.to(self.loadings.dtype)
            # Of zeros, the square root takes twenty times as long.
            roots = x.to(observed.dtype).clamp_min(TINY).sqrt_().mul_(observed)
            values = linear(roots, (self.loadings / self.noise[:, None]).T)
            by_cell = linear(one_row_if_alike(observed), self.of_genes.T)
            lower, centre = by_cell.tensor_split([self.of_genes.shape[1] - self.n_factors], dim=1)
            return FactorEquations(values, centre, _root(lower, self.n_factors))

    @torch.no_grad()
    def solve(self, equations: FactorEquations, log_depth: Tensor) -> Tensor:
        """Factors (cells, factors) of cells with these log depths (cells, 1)."""
        with torch.autocast(log_depth.device.type, enabled=False):
            projected = equations.values * torch.exp(-log_depth.to(equations.values.dtype) / 2) - equations.centre
            mean = _solved(projected, equations.root)
            return BOUND * torch.tanh(mean / BOUND)


def _prepare(factors: Factors, *_: object) -> None:
    """Fill in what follows from the loadings, once they are fitted or loaded."""
    centre = factors.loadings * (factors.centre / factors.noise)[:, None]
    factors.of_genes.copy_(torch.cat([_pairs(factors.loadings, factors.noise), centre], dim=1))


def _roots(counts: Tensor, log_depth: Tensor) -> Tensor:
    return torch.sqrt(counts * torch.exp(-log_depth))
