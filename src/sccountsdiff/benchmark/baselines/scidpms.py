"""scIDPMs: Gaussian diffusion of the missing entries, given the observed ones."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from sccountsdiff.benchmark.baselines.base import Cells, register_baseline, sampling
from sccountsdiff.benchmark.baselines.gaussian_diffusion import add_noise, draw, signal_shares
from sccountsdiff.benchmark.baselines.masking import hide, random_part
from sccountsdiff.benchmark.baselines.torch_training import Batch, Network, TorchBaseline
from sccountsdiff.benchmark.baselines.value_transforms import LogValues
from sccountsdiff.checks import one_of, whole_number
from sccountsdiff.nn import TimeEmbedding

N_GENE_INPUTS = 4
"""What the network is told of a gene: its noisy value, its observed value, whether it is a target, whether observed."""


class GatedAttentionBlock(nn.Module):
    """Residual block: attention between groups of genes, then a gated layer whose result is also skipped ahead."""

    def __init__(self, n_hidden: int, n_heads: int, n_time: int):
        super().__init__()
        self.time = nn.Linear(n_time, n_hidden)
        self.attention = nn.TransformerEncoderLayer(
            n_hidden,
            n_heads,
            dim_feedforward=n_hidden,
            dropout=0.0,
            activation="gelu",
            batch_first=True,
            norm_first=True,
        )
        self.gate = nn.Linear(n_hidden, 2 * n_hidden)
        self.out = nn.Linear(n_hidden, 2 * n_hidden)

    def forward(self, h: Tensor, time: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens (cells, groups, n_hidden) and time (cells, n_time) to the next tokens and the skipped ones."""
        gate, value = self.gate(self.attention(h + self.time(time)[:, None])).chunk(2, dim=-1)
        residual, skipped = self.out(gate.sigmoid() * value.tanh()).chunk(2, dim=-1)
        return (h + residual) / math.sqrt(2), skipped


class ScIDPMsNetwork(Network):
    """Predicts the velocity of the targets from their noisy values and from the observed entries.

    Parameters
    ----------
    values
        From counts to standard scores and back.
    shares
        Signal share of each noise level.
    settings
        Size of the network.
    """

    def __init__(self, values: LogValues, shares: Tensor, settings: ScIDPMs):
        super().__init__()
        n_hidden = settings.n_hidden
        self.values, self.predicts = values, settings.predicts
        self.register_buffer(
            "target_share", None if settings.target_share is None else torch.tensor([settings.target_share])
        )
        self.register_buffer("shares", shares.float())
        n_genes = len(values.gene_mean)
        self.group_size = min(settings.group_size, n_genes)
        n_groups = math.ceil(n_genes / self.group_size)
        n_inputs = N_GENE_INPUTS * self.group_size
        n_own = 1 if self.group_size == 1 else n_groups  # a gene that is a token has a vector, not layers of its own
        self.encoder = nn.Parameter(torch.randn(n_own, n_inputs, n_hidden) / math.sqrt(n_inputs))
        self.encoder_bias = nn.Parameter(torch.randn(n_groups, n_hidden))
        n_time = settings.n_time or n_hidden
        self.time = TimeEmbedding(n_time)
        block = lambda: GatedAttentionBlock(n_hidden, settings.n_heads, n_time)
        self.blocks = nn.ModuleList(block() for _ in range(settings.n_layers))
        self.hidden = nn.Linear(n_hidden, n_hidden)
        self.decoder = nn.Parameter(torch.zeros(n_own, n_hidden, self.group_size))

    def forward(self, x: Tensor, level: Tensor, values: Tensor, observed: Tensor, targets: Tensor) -> Tensor:
        """Velocity or noise, (cells, genes), at a noise level for each cell."""
        n_genes = x.shape[1]
        channels = torch.stack([x * targets, values * observed, targets.float(), observed.float()], dim=1)
        channels = nn.functional.pad(channels, (0, len(self.encoder_bias) * self.group_size - n_genes))
        # (groups, cells, inputs)
        channels = channels.unflatten(2, (-1, self.group_size)).permute(2, 0, 1, 3).flatten(2)
        h = (channels @ self.encoder + self.encoder_bias[:, None]).relu().transpose(0, 1)
        time = self.time(level / (len(self.shares) - 1))
        total = torch.zeros_like(h)
        for block in self.blocks:
            h, skipped = block(h, time)
            total = total + skipped
        out = self.hidden(total / math.sqrt(len(self.blocks))).relu().transpose(0, 1)
        return (out @ self.decoder).transpose(0, 1).flatten(1)[:, :n_genes]

    def loss(self, batch: Batch) -> Tensor:
        """Mean squared error of the predicted velocity or noise, over observed entries that were made targets."""
        targets = random_part(batch.observed) if self.target_share is None else hide(batch.observed, self.target_share)
        observed = batch.observed & ~targets
        values = self.values(batch.counts, observed)
        level = torch.randint(1, len(self.shares), (len(batch),), device=values.device)
        share = self.shares[level][:, None]
        noise = torch.randn_like(values)
        goal = noise if self.predicts == "noise" else share.sqrt() * noise - (1 - share).sqrt() * values
        guess = self(add_noise(values, noise, share), level, values, observed, targets)
        return torch.where(targets, (guess - goal) ** 2, 0.0).sum() / targets.sum().clamp_min(1)

    def velocity(self, x: Tensor, level: int, values: Tensor, observed: Tensor, targets: Tensor) -> Tensor:
        """Predicted velocity of all cells at one noise level."""
        guess = self(x, torch.full((len(x),), level, device=x.device), values, observed, targets)
        share = self.shares[level]
        return guess if self.predicts == "velocity" else (guess - (1 - share).sqrt() * x) / share.sqrt()


@register_baseline("scidpms", group="specialised", draws=True, uses_mask=True)
class ScIDPMs(TorchBaseline):
    """scIDPMs (Zhang et al. 2024): Gaussian diffusion of the missing entries, conditional on the observed ones.

    In training a random part of the observed entries of a cell becomes targets. Noise is added to the targets only,
    and a network that sees them, the other observed entries and which is which learns to tell signal and noise apart:
    residual blocks with attention and gates, as in CSDI. To impute, targets start as noise and are denoised step by
    step. One sample is one imputation, as in the comparison of the CountsDiff paper.

    Differs from the original:

    - The original has one token for each gene, 6 layers, 300 noise levels, and trains for 500 epochs of batches of
      32; that takes days. Here a token is a group of ``group_size`` genes, so that attention is some hundred times
      cheaper; ``group_size=1, n_layers=6, n_heads=8, n_levels=300, max_epochs=500, batch_size=32, lr=5e-4`` is its
      setting.
    - The original divides raw counts by the maximum of the gene. Here they are standardised log counts over the depth
      of the cell, which is known from its observed entries only; both are undone.
    - The share of targets is uniform over 0 to 1 instead of always 0.8 (``target_share=0.8``), as cells to impute miss
      different shares.
    - The network predicts the velocity, a mix of noise and signal from which both follow, instead of the noise. Its
      squared error is that of the noise over the share of signal, so that the noisiest levels, which ask what the
      observed entries tell, weigh as much as the others: a short training needs that. ``predicts="noise"`` is the
      original's.
    - Steps are deterministic, which loses less variance when they are few; ``eta=1, n_steps=n_levels`` is the
      original's sampler.
    - The original answers with the median of 100 imputations: ``n_imputations=100``.

    Parameters
    ----------
    n_hidden, n_layers, n_heads
        Width, number of blocks and attention heads of the network.
    n_time
        Width of what tells the noise level. Default: ``n_hidden``.
    group_size
        Genes per token.
    predicts
        ``"velocity"`` or ``"noise"``.
    target_share
        Share of the observed entries that are targets in training. Default: another one for each cell.
    n_levels
        Noise levels.
    noise_schedule
        ``"quadratic"`` or ``"linear"`` growth of the noise.
    n_steps
        Steps in sampling, at most ``n_levels``, which is the original's number.
    eta
        1 for ancestral sampling, 0 for deterministic steps.
    n_imputations
        Imputations of which each answer is the median.
    max_epochs, batch_size, lr, weight_decay, patience, ema_decay, n_warmup_steps, validation_share
        Training, as for all networks of the benchmark.
    progress, trainer_kwargs
        See :class:`lightning.pytorch.Trainer`.

    Examples
    --------
    >>> import numpy as np
    >>> from anndata import AnnData
    >>> rng = np.random.default_rng(0)
    >>> cells = AnnData(rng.poisson(2, (40, 6)).astype("float32"))
    >>> sites = rng.random(cells.shape) < 0.5
    >>> method = ScIDPMs(n_hidden=8, n_heads=2, n_levels=5, n_steps=5, max_epochs=1).fit(cells)
    >>> method.impute(cells, sites, n_samples=3).shape
    (3, 40, 6)
    """

    n_hidden: int = 64
    n_layers: int = 2
    n_heads: int = 4
    n_time: int | None = None
    group_size: int = 25
    predicts: Literal["velocity", "noise"] = "velocity"
    target_share: float | None = None
    n_levels: int = 50
    noise_schedule: str = "quadratic"
    n_steps: int = sampling(50)
    eta: float = sampling(0.0)
    n_imputations: int = sampling(1)
    max_epochs: int = 50
    batch_size: int = 64
    lr: float = 2e-3
    ema_decay: float | None = 0.99

    def __post_init__(self) -> None:
        if not 1 <= self.n_steps <= self.n_levels:
            raise ValueError(f"n_steps must be between 1 and n_levels={self.n_levels}, found {self.n_steps}.")
        if not 0 <= self.eta <= 1:
            raise ValueError(f"eta must be between 0 and 1, found {self.eta}.")
        one_of("predicts", self.predicts, ("velocity", "noise"))
        if self.target_share is not None and not 0 < self.target_share < 1:
            raise ValueError(f"target_share must be between 0 and 1, found {self.target_share}.")
        whole_number("n_imputations", self.n_imputations)
        whole_number("group_size", self.group_size)
        if self.n_hidden % self.n_heads:
            raise ValueError(f"n_heads={self.n_heads} must divide n_hidden={self.n_hidden}.")
        self._shares = signal_shares(self.n_levels, self.noise_schedule)

    def _network(self, cells: Cells) -> ScIDPMsNetwork:
        return ScIDPMsNetwork(LogValues(cells, _standard_scores), self._shares, self)

    def _fill(self, batch: Batch, sites: Tensor, generator: torch.Generator) -> Tensor:
        network = self.network
        values = network.values(batch.counts, batch.observed)

        velocity = lambda x, level: network.velocity(x, level, values, batch.observed, sites)
        impute = lambda: draw(velocity, network.shares, sites.shape, self.n_steps, self.eta, generator)
        median = torch.stack([impute() for _ in range(self.n_imputations)]).median(dim=0).values
        return network.values.decode(median, batch.counts, batch.observed)


def _standard_scores(logs: Tensor, observed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean 0 and variance 1 of each gene over observed entries; answers stay within the range of the gene."""
    n_observed = observed.sum(dim=0)
    mean = logs.sum(dim=0) / n_observed
    sd = (torch.where(observed, (logs - mean) ** 2, 0.0).sum(dim=0) / n_observed).sqrt()
    return mean, torch.where(sd > 0, sd, 1.0), logs.amax(dim=0)
