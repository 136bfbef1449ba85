"""The network that predicts remaining counts: depth offset, gene means and head around a raw backbone."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sccountsdiff.diffusion import NOISED, OBSERVED, Prediction, Schedule
from sccountsdiff.nn.backbone import Backbone
from sccountsdiff.nn.embeddings import Conditioning

HEADS = ("softplus", "poisson", "nb")

DEPTH_PSEUDO_COUNT = 10.0
"""Counts by which a cell's depth factor is pulled towards 1; a cell of which nothing is seen has exactly 1."""

INITIAL_LOG_DISPERSION = 1.0

N_DEPTH_FEATURES = 3
"""Numbers that describe the depth of a cell to the network: known and noised total (log1p), log depth factor."""


class CountsDenoiser(nn.Module):
    """Predicts ``y = x_0 - x_t`` of every gene from what is seen of a cell.

    The heads:

    ``"poisson"``
        ``y_hat = (1 - p(t)) mu`` with the intensity ``mu = exp(log m_g + o + f_g)``: ``m_g`` the gene's mean, ``o`` the
        log depth factor of the cell, ``f`` the backbone's output. The backbone starts from 0, so the untrained network
        is the depth-scaled gene mean. Exact for Poisson counts.
    ``"nb"``
        ``mu`` as before and a dispersion theta say what is known of a gene before its own noised count is looked at:
        a rate from ``Gamma(theta, theta / mu)``. That count is then taken in exactly, by conjugacy: what remains is
        negative binomial with mean ``(1 - p) (theta + x_t) / (theta / mu + p)`` and dispersion ``theta + x_t``. A
        backbone that sees all genes through a few hundred hidden units could not do this for each gene. At t = 1,
        where nothing of the gene is seen, it is ``mu`` and ``theta``. Exact for negative-binomial counts.
    ``"softplus"``
        The paper's: ``y_hat = softplus(f_g)``, not scaled by depth; the conditioning still tells the backbone of it.

    Parameters
    ----------
    backbone
        Raw network, with as many outputs as :meth:`n_outputs` says.
    gene_means
        Mean count of each gene in the training data.
    schedule
        Survival schedule.
    head
        ``"softplus"``, ``"poisson"`` or ``"nb"``.
    n_categories
        Number of categories of each categorical covariate.
    n_continuous
        Number of continuous covariates.

    Examples
    --------
    Untrained, and with nothing seen of a cell, it predicts the gene means:

    >>> import torch
    >>> from sccountsdiff.diffusion import Cosine
    >>> from sccountsdiff.nn import MLP, CountsDenoiser
    >>> backbone = MLP(n_genes=3, n_outputs=CountsDenoiser.n_outputs("nb"))
    >>> denoiser = CountsDenoiser(backbone, torch.tensor([1.0, 2.0, 3.0]), Cosine(), head="nb")
    >>> x = status = torch.zeros(1, 3)
    >>> no_codes, no_values, null = torch.zeros(1, 0, dtype=torch.long), torch.zeros(1, 0), torch.tensor([False])
    >>> denoiser(x, status, torch.ones(1), no_codes, no_values, null).mean.round().tolist()
    [[1.0, 2.0, 3.0]]
    """

    def __init__(
        self,
        backbone: Backbone,
        gene_means: Tensor,
        schedule: Schedule,
        head: str = "nb",
        n_categories: Sequence[int] = (),
        n_continuous: int = 0,
    ):
        super().__init__()
        self.n_outputs(head)  # refuses unknown heads
        self.backbone = backbone
        self.schedule = schedule
        self.head = head
        self.register_buffer("gene_means", torch.as_tensor(gene_means, dtype=torch.float32))
        self.conditioning = Conditioning(backbone.n_hidden, N_DEPTH_FEATURES, n_categories, n_continuous)

    @staticmethod
    def n_outputs(head: str) -> int:
        """Numbers that ``head`` asks of the backbone for each gene."""
        if head not in HEADS:
            raise ValueError(f"`head` must be one of {', '.join(HEADS)}, not {head!r}.")
        return 2 if head == "nb" else 1

    def forward(
        self, x: Tensor, status: Tensor, t: Tensor, categories: Tensor, continuous: Tensor, null: Tensor
    ) -> Prediction:
        """Predict the remaining counts; see :class:`~sccountsdiff.diffusion.Denoiser` for ``x``, ``status``, ``t``."""
        p = self.schedule.survival(t)[:, None]
        log_lost = torch.log1p(-p).clamp_min(-30).to(x.dtype)  # before 1 - p is lost to single precision
        p = p.to(x.dtype)
        known = (status == OBSERVED).to(x.dtype)
        noised = (status == NOISED).to(x.dtype)
        offset, depth = self._depth(x, known, noised, p)

        values = torch.log1p(x * torch.exp(-offset))
        channels = torch.stack([values * noised, values * known, status], dim=1)  # (cells, 3, genes)
        tokens = self.conditioning(t, depth, categories, continuous, null)
        outputs = self.backbone(channels, tokens)
        self._check_outputs(outputs, x.shape)

        if self.head == "softplus":
            return Prediction(F.softplus(outputs[0]).clamp_min(1e-8).log())
        log_mu = self.gene_means.log() + offset + outputs[0]
        if self.head == "poisson":
            return Prediction(log_lost + log_mu)
        log_theta = INITIAL_LOG_DISPERSION + outputs[1]
        log_shape = torch.log(log_theta.exp() + x * noised)
        log_rate = torch.log(torch.exp(log_theta - log_mu) + p * noised)
        return Prediction(log_lost + log_shape - log_rate, log_shape)

    def _check_outputs(self, outputs: Tensor, shape: torch.Size) -> None:
        """Refuse what would broadcast to a wrong prediction, or fail further down with another message."""
        expected = (self.n_outputs(self.head), *shape)
        if not isinstance(outputs, Tensor) or outputs.shape != expected:
            found = f"shape {tuple(outputs.shape)}" if isinstance(outputs, Tensor) else type(outputs).__name__
            raise ValueError(
                f"The backbone {type(self.backbone).__name__} must return a tensor of shape {expected} (outputs, cells, "
                f"genes), not {found}."
            )

    def _depth(self, x: Tensor, known: Tensor, noised: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
        """Log depth factor (cells, 1) and the numbers that describe the depth to the network (cells, features)."""
        seen_known = (x * known).sum(1, keepdim=True)
        seen_noised = (x * noised).sum(1, keepdim=True)
        if self.head == "softplus":
            offset = torch.zeros_like(seen_known)
        else:
            expected = (known + p * noised) @ self.gene_means[:, None]  # what a mean cell would show there
            offset = torch.log((seen_known + seen_noised + DEPTH_PSEUDO_COUNT) / (expected + DEPTH_PSEUDO_COUNT))
        return offset, torch.cat([torch.log1p(seen_known), torch.log1p(seen_noised), offset], dim=1)
