"""The network that predicts remaining counts: depth offset, gene means and head around a raw backbone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sccountsdiff.diffusion import Prediction, Schedule, indicators
from sccountsdiff.diffusion.host import host_sees, multiply_into
from sccountsdiff.nn.backbone import N_CHANNELS, Backbone
from sccountsdiff.nn.embeddings import Conditioning
from sccountsdiff.nn.factors import FactorEquations, Factors
from sccountsdiff.nn.group_depth import GroupDepth
from sccountsdiff.nn.heads import Head, HeadInput, get_head

DEPTH_PSEUDO_COUNT = 10.0
"""Counts by which a cell's depth factor is pulled towards 1; a cell of which nothing is seen has exactly 1."""

N_LEVELS = 9
"""Times, evenly from 0 to 1, at which it is measured by how much predictions do not add up to the counts."""


def n_depth_features(n_groups: int) -> int:
    """Numbers that describe the depth of a cell to the network.

    Observed and noised total (log1p) and log of the depth factor, each for every group of genes; log of the share of its
    molecules that was left.
    """
    return 3 * n_groups + 1


@dataclass(frozen=True)
class CellContext:
    """What the network is told of cells that stays the same along a chain, and is computed once for all of its steps.

    Attributes
    ----------
    covariates
        Tokens of the covariates (cells, covariates, width).
    factors
        What the observed entries say about the factors; ``None`` if the network has none, or if entries that are shown as
        observed change from step to step.

    Examples
    --------
    >>> import torch
    >>> from sccountsdiff.nn import CellContext
    >>> CellContext(torch.zeros(4, 1, 8)).repeat(3).covariates.shape
    torch.Size([12, 1, 8])
    """

    covariates: Tensor
    factors: FactorEquations | None = None

    def __len__(self) -> int:
        return len(self.covariates)

    def repeat(self, copies: int) -> CellContext:
        """The same for several copies of the cells, one after the other."""
        if copies == 1:
            return self
        factors = None if self.factors is None else self.factors.repeat(copies)
        return CellContext(self.covariates.repeat(copies, 1, 1), factors)


class CountsDenoiser(nn.Module):
    """Predicts ``y = x_0 - x_t`` of every gene from what is seen of a cell.

    Around the backbone stand the depth factor of the cell, the mean of each gene and a head: the backbone's outputs move
    the depth-scaled gene mean, and the head says what law the counts have around that.

    Parameters
    ----------
    backbone
        Raw network, with as many outputs as the head asks for.
    gene_means
        Mean count of each gene in the training data.
    schedule
        Survival schedule.
    head
        Name or class of the head, or a :class:`Head`.
    n_categories
        Number of categories of each categorical covariate.
    n_continuous
        Number of continuous covariates.
    n_factors
        Number of factors whose posterior, given the observed entries, is an input of the network; see :class:`Factors`.
    gene_max
        Largest count of each gene in the training data, by which heads know how far the tail of a law may reach;
        ``None``: as far as it likes.
    gene_groups
        Number of the group, such as the modality, of each gene: each group has a depth of its own (:class:`GroupDepth`).
        ``None``: one depth for all genes.

    Examples
    --------
    Untrained, and with nothing seen of a cell, it predicts the gene means:

    >>> import torch
    >>> from sccountsdiff.diffusion import Cosine
    >>> from sccountsdiff.nn import MLP, CountsDenoiser, get_head
    >>> backbone = MLP(n_genes=3, n_outputs=get_head("nb").n_outputs)
    >>> denoiser = CountsDenoiser(backbone, torch.tensor([1.0, 2.0, 3.0]), Cosine(), head="nb")
    >>> x = status = torch.zeros(1, 3)
    >>> no_codes, no_values, null = torch.zeros(1, 0, dtype=torch.long), torch.zeros(1, 0), torch.tensor([False])
    >>> denoiser(x, status, torch.ones(1), no_codes, no_values, null).mean.round().tolist()
    [[1.0, 2.0, 3.0]]
    """

    gene_means: Tensor
    gene_max: Tensor
    gene_directions: Tensor | None
    log_levels: Tensor
    log_calibration: Tensor | None

    def __init__(
        self,
        backbone: Backbone,
        gene_means: Tensor,
        schedule: Schedule,
        head: str | type[Head] | Head = "nb",
        n_categories: Sequence[int] = (),
        n_continuous: int = 0,
        n_factors: int = 0,
        gene_max: Tensor | np.ndarray | None = None,
        gene_groups: Tensor | np.ndarray | None = None,
    ):
        super().__init__()
        self.backbone = backbone
        self.schedule = schedule
        self.head = get_head(head)
        self.register_buffer("gene_means", torch.as_tensor(gene_means, dtype=torch.float32))
        largest = torch.full_like(self.gene_means, torch.inf) if gene_max is None else torch.as_tensor(gene_max)
        self.register_buffer("gene_max", largest.float().clamp_min(1))  # a gene without a count may yet have one
        # What is added to log means at each of the times, once the network is trained: a likelihood with heavy tails is at its
        # best a little below the mean.
        self.register_buffer("log_levels", torch.zeros(N_LEVELS))
        # The same of log dispersions and of the log-odds of zeros.
        self.register_buffer("log_calibration", torch.zeros(2) if self.head.is_calibrated else None)
        self.factors = Factors(len(self.gene_means), n_factors) if n_factors else None
        # A vector of length 1 for each gene, alike for genes with like loadings and like means; none without factors.
        directions = self.gene_means.new_empty(len(self.gene_means), n_factors + 1) if n_factors else None
        self.register_buffer("gene_directions", directions, persistent=False)
        self.register_load_state_dict_post_hook(_prepare)
        _prepare(self)
        self.group_depth = None if gene_groups is None else GroupDepth(torch.as_tensor(gene_groups))
        n_depth = n_depth_features(1 if self.group_depth is None else self.group_depth.n_groups)
        self.conditioning = Conditioning(backbone.n_hidden, n_depth, n_categories, n_continuous, n_factors)

    def context(
        self, categories: Tensor, continuous: Tensor, x: Tensor | None = None, status: Tensor | None = None
    ) -> CellContext:
        """What stays the same along a chain of these cells, for :meth:`predict`.

        Parameters
        ----------
        categories, continuous
            Codes and values of the covariates, (cells, covariates).
        x, status
            Counts and status of each entry (cells, genes), if those that are :data:`OBSERVED` are shown as they are in every
            step; others may change.
        """
        factors = None
        if self.factors is not None and self.group_depth is None and x is not None and status is not None:
            factors = self.factors.equations(x, indicators(status)[0])
        return CellContext(self.conditioning.covariates(categories, continuous), factors)

    def forward(
        self,
        x: Tensor,
        status: Tensor,
        t: Tensor,
        categories: Tensor,
        continuous: Tensor,
        null: Tensor,
        kept: Tensor | None = None,
    ) -> Prediction:
        """Predict the remaining counts; see :class:`~sccountsdiff.diffusion.Denoiser` for ``x``, ``status``, ``t``.

        ``kept`` is the share of the molecules of each cell that was left, if training cells were thinned: the network is
        told, so that it does not believe that other cells are shallower than they are.
        """
        return self.predict(x, status, t, self.context(categories, continuous), null, kept)

    def predict(
        self, x: Tensor, status: Tensor, t: Tensor, context: CellContext, null: Tensor, kept: Tensor | None = None
    ) -> Prediction:
        """As :meth:`forward`, with the :meth:`context` of the cells in place of their covariates."""
        outputs, given = self.look(x, status, t, context, null, kept)
        with torch.autocast(x.device.type, enabled=False):
            return self.head.law(outputs, given)

    def look(
        self,
        x: Tensor,
        status: Tensor,
        t: Tensor,
        context: CellContext,
        null: Tensor,
        kept: Tensor | None = None,
        only_mean: bool = False,
    ) -> tuple[Tensor, HeadInput]:
        """What the backbone puts out, and what the head has to know beside it: all of :meth:`predict` but the head.

        With ``only_mean``, the outputs are those that :meth:`Head.expect` needs.
        """
        full_precision = torch.autocast(x.device.type, enabled=False)  # half precision ends at 65,504 counts
        p = self.schedule.survival(t)[:, None]
        log_lost = torch.log1p(-p).clamp_min(-30).to(x.dtype)  # before 1 - p is lost to single precision
        p = p.to(x.dtype)
        observed, noised = indicators(status)
        known = x * observed
        # At t = 1 nothing is left of what is noised: no time is spent on it, if that is seen.
        is_first = host_sees(p) and not p.numpy().any()
        xt = p.expand_as(x) if is_first else x * noised
        with full_precision:
            expected = self._expected(observed)
            offset, depth = self._depth(
                known, xt, expected if is_first else expected + p * self._expected(noised), kept
            )
            factors = self._posterior(known, observed, offset, context)
        channels = x.new_empty(len(x), N_CHANNELS, x.shape[1])
        if is_first:
            torch.mul(known, torch.exp(-offset), out=channels[:, 1]).log1p_()
            channels[:, 0] = 0
        else:
            values = (x * torch.exp(-offset)).log1p_()
            for channel, flags in enumerate((noised, observed)):
                multiply_into(channels[:, channel], values, flags)
        channels[:, 2] = status
        with full_precision:
            log_mean = self.gene_means.log() + (offset + self._level(t))
            given = HeadInput(log_mean, xt, xt if is_first else p * noised, log_lost, self.gene_max)
            if self.log_calibration is not None:
                dispersion, zero_odds = self.log_calibration
                given = replace(given, log_dispersion=dispersion, log_zero_odds=zero_odds)
            if self.group_depth is not None:
                level, dispersion = self.group_depth.corrections(observed)
                dispersion = given.log_dispersion + dispersion
                given = replace(given, log_mean=given.log_mean + level, log_dispersion=dispersion)
        tokens = self.conditioning(t, depth, context.covariates, null, factors)
        only_first = only_mean and self.head.mean_is_first(given)
        outputs = (self.backbone.first_output if only_first else self.backbone)(channels, tokens)
        self._check_outputs(outputs, (1 if only_first else self.head.n_outputs, *x.shape))
        return outputs.to(x.dtype), given

    def _level(self, t: Tensor) -> Tensor:
        """What is added to log means at these times (cells,), as a column."""
        place = t * (N_LEVELS - 1)
        low = place.long().clamp_max(N_LEVELS - 2)
        return torch.lerp(self.log_levels[low], self.log_levels[low + 1], (place - low).to(self.log_levels))[:, None]

    @property
    def corrections(self) -> list[Tensor]:
        """What is measured once the network is trained."""
        found = [self.log_levels]
        if self.log_calibration is not None:
            found.append(self.log_calibration)
        if self.group_depth is not None:
            found += [self.group_depth.log_level, self.group_depth.log_dispersion]
        return found

    @torch.no_grad()
    def forget_corrections(self) -> None:
        """Those of an earlier training: a network is trained without them."""
        for measured in self.corrections:
            measured.zero_()

    def _posterior(self, x: Tensor, observed: Tensor, offset: Tensor, context: CellContext) -> Tensor | None:
        """What the observed entries say about the factors; ``None`` if there are none."""
        if self.factors is None:
            return None
        if self.group_depth is None:
            return self.factors.solve(context.factors or self.factors.equations(x, observed), offset)
        # Of genes with depths of their own, no single number scales the equations: counts are scaled beforehand.
        return self.factors.solve(self.factors.equations(x * torch.exp(-offset), observed), torch.zeros_like(x[:, :1]))

    def _check_outputs(self, outputs: Tensor, expected: tuple[int, ...]) -> None:
        """Refuse what would broadcast to a wrong prediction, or fail further down with another message."""
        if not isinstance(outputs, Tensor) or outputs.shape != expected:
            found = f"shape {tuple(outputs.shape)}" if isinstance(outputs, Tensor) else type(outputs).__name__
            raise ValueError(
                f"The backbone {type(self.backbone).__name__} must return a tensor of shape {expected} (outputs, cells, "
                f"genes), not {found}."
            )

    @torch.no_grad()
    def fit(self, counts: Tensor, missing: Tensor, at_random: bool = True) -> None:
        """Fit what is not trained, gene means, depths and factors, to counts (cells, genes), 0 where ``missing``; once.

        Gene means are left alone where entries are not missing ``at_random`` but because of what their counts are.
        """
        observed = (~missing).to(counts.dtype)
        if at_random and bool(missing.any()):
            for members in [slice(None)] if self.group_depth is None else self.group_depth.members.bool():
                some = observed[:, members].any(1)  # a cell without any of them says nothing of them
                means = self.gene_means[members]
                self.gene_means[members] = means * _depth_bias(
                    counts[some][:, members], observed[some][:, members], means
                )
        if self.group_depth is not None:
            self.group_depth.fit(self._sums(counts), self._expected(observed))
        if self.factors is not None:
            nothing = torch.zeros_like(observed)
            log_depth, _ = self._depth(counts, nothing, self._expected(observed))
            self.factors.fit(counts, log_depth, missing)
        _prepare(self)

    def totals(self, values: Tensor) -> Tensor:
        """Total of each cell (cells, 1) or, where there are groups of genes, that of the group of each gene (cells, genes)."""
        return self._sums(values) if self.group_depth is None else self.group_depth.to_genes(self._sums(values))

    def _sums(self, values: Tensor) -> Tensor:
        """Sum over the genes of each group (cells, groups)."""
        return values.sum(1, keepdim=True) if self.group_depth is None else self.group_depth.sums(values)

    def _expected(self, share: Tensor) -> Tensor:
        """Molecules of each group (cells, groups) that a mean cell would show if a share of each gene (cells, genes) is seen."""
        if self.group_depth is None:
            return share @ self.gene_means[:, None]
        return share @ (self.group_depth.members * self.gene_means).T

    def _depth(
        self, observed: Tensor, noised: Tensor, expected: Tensor, kept: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Log depth factors, (cells, 1) or of each gene, and the numbers that describe the depth to the network.

        From observed and noised counts (cells, genes), and the total that a mean cell would show (cells, groups).
        """
        n_observed, n_noised = self._sums(observed), self._sums(noised)
        kept = torch.ones_like(n_observed[:, :1]) if kept is None else kept[:, None]
        offset = torch.zeros_like(n_observed)
        if self.head.scales_by_depth:
            expected = kept * expected
            found = n_observed + n_noised
            if self.group_depth is None:
                offset = torch.log(kept * (found + DEPTH_PSEUDO_COUNT) / (expected + DEPTH_PSEUDO_COUNT))
            else:
                offset = kept.log() + self.group_depth(found, expected)
        features = torch.cat([torch.log1p(n_observed), torch.log1p(n_noised), offset, kept.log()], dim=1)
        return offset if self.group_depth is None else self.group_depth.to_genes(offset), features


def _prepare(denoiser: CountsDenoiser, *_: object) -> None:
    """Fill in what follows from gene means and loadings, once they are fitted or loaded."""
    if denoiser.factors is None or denoiser.gene_directions is None:
        return
    log_means = denoiser.gene_means.log()
    level = (log_means - log_means.mean()) / log_means.std(correction=0).clamp_min(1e-3)
    directions = torch.cat([F.normalize(denoiser.factors.loadings), level[:, None]], dim=1)
    directions[:, -1] += (directions == 0).all(1)  # a gene without loadings and with the mean level has one too
    denoiser.gene_directions.copy_(F.normalize(directions))


def _depth_bias(counts: Tensor, observed: Tensor, gene_means: Tensor, n_rounds: int = 1000) -> Tensor:
    """By what to multiply gene means where genes were observed in cells that are deeper, or shallower, than others.

    Depths and means explain each other: a depth is a cell's total over what the means add up to in its observed genes, and
    a mean is that of counts over depths (the likeliest ones of Poisson counts; alternated until they agree). The mean depth
    is 1. Where no gene is observed in cells of both kinds, how deep one is relative to the other cannot be known.
    """
    total, n_observed = counts.sum(1, keepdim=True), observed.sum(0).clamp_min(1)
    change = torch.ones_like(gene_means)
    for _ in range(n_rounds):
        depth = total / (observed @ (gene_means * change)[:, None]).clamp_min(1e-6)
        depth = depth / depth.mean().clamp_min(1e-6)
        before, change = change, n_observed / (observed * depth).sum(0).clamp_min(1e-6)
        if bool((change / before - 1).abs().max() < 1e-4):
            break
    return change
