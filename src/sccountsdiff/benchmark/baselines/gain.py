"""GAIN: a generator fills in, a discriminator guesses which entries were filled in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, softplus

from sccountsdiff.benchmark.baselines.base import Cells, register_baseline
from sccountsdiff.benchmark.baselines.depth import batch_depth, log_profiles
from sccountsdiff.benchmark.baselines.torch_training import Batch, Network, TorchBaseline

DISCRIMINATOR, GENERATOR = 0, 1
NOISE = 0.01
"""Largest random number that stands for a missing entry in the generator's input."""


class _GainNetwork(Network):
    """Generator, discriminator, and the scale on which they see counts.

    Parameters
    ----------
    mean
        Mean count of each gene.
    highest
        Highest ``log1p`` of each gene's counts over the depths of their cells.
    n_hidden
        Width of both networks.
    hint_rate
        Probability that the discriminator is told of an observed entry that it is observed.
    reconstruction
        Weight of the generator's squared error on the entries it sees.
    """

    def __init__(self, mean: Tensor, highest: Tensor, n_hidden: int, hint_rate: float, reconstruction: float):
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("highest", highest)
        self.generator = _three_layers(len(mean), n_hidden)
        self.discriminator = _three_layers(len(mean), n_hidden)
        self.hint_rate = hint_rate
        self.reconstruction = reconstruction
        with torch.no_grad():  # training starts at the mean of each gene
            self.generator[-1].bias.copy_(torch.log1p(mean) / highest)

    def players(self) -> list[list[nn.Parameter]]:
        """The discriminator moves first."""
        return [list(self.discriminator.parameters()), list(self.generator.parameters())]

    def loss(self, batch: Batch, player: int = GENERATOR) -> Tensor:
        """Loss of a player; in validation, the squared error of the generator at entries that were hidden from it."""
        share = torch.rand(len(batch), 1, device=batch.counts.device)
        mask = batch.observed & (torch.rand_like(batch.counts) < share)
        values = self.scale(batch.counts, self.depth(batch.counts, mask))
        guess = self.generate(values, mask, NOISE * torch.rand_like(values))
        if not self.training:
            return _mean_where((guess - values) ** 2, batch.observed & ~mask)
        filled = torch.where(mask, values, guess)
        logits = self.discriminate(filled, self.hint(mask))
        if player == DISCRIMINATOR:
            return discriminator_loss(logits, mask)
        return generator_loss(logits, mask) + self.reconstruction * _mean_where((guess - values) ** 2, mask)

    def generate(self, values: Tensor, mask: Tensor, noise: Tensor) -> Tensor:
        """A guess at every entry, from those in the mask."""
        return self.generator(torch.cat([torch.where(mask, values, noise), mask.float()], dim=1))

    def discriminate(self, filled: Tensor, hint: Tensor) -> Tensor:
        """Log-odds that an entry is observed."""
        return self.discriminator(torch.cat([filled, hint], dim=1))

    def hint(self, mask: Tensor) -> Tensor:
        """1 for an observed entry with probability ``hint_rate``; 0 may mean either."""
        return (mask & (torch.rand(mask.shape, device=mask.device) < self.hint_rate)).float()

    def depth(self, counts: Tensor, mask: Tensor) -> Tensor:
        """Depth of each cell, from its entries in the mask."""
        return batch_depth(counts, mask, self.mean)

    def scale(self, counts: Tensor, depth: Tensor) -> Tensor:
        """Counts as the networks see them: 0 to 1 in most cells."""
        return torch.log1p(counts / depth) / self.highest

    def unscale(self, values: Tensor, depth: Tensor) -> Tensor:
        """Undo :meth:`scale`, for values brought into its range."""
        return torch.expm1(values.clamp(0, 1) * self.highest) * depth


def discriminator_loss(logits: Tensor, mask: Tensor) -> Tensor:
    """Cross-entropy of the guesses which entries are observed.

    Examples
    --------
    >>> import torch
    >>> round(discriminator_loss(torch.zeros(1, 2), torch.tensor([[True, False]])).item(), 4)  # log 2
    0.6931
    """
    return binary_cross_entropy_with_logits(logits, mask.float())


def generator_loss(logits: Tensor, mask: Tensor) -> Tensor:
    """Mean of minus the log-probability that filled-in entries pass for observed; observed entries add nothing.

    Examples
    --------
    >>> import torch
    >>> round(generator_loss(torch.zeros(1, 2), torch.tensor([[True, False]])).item(), 4)  # half of log 2
    0.3466
    """
    return torch.where(mask, 0.0, softplus(-logits)).mean()


@register_baseline
@dataclass(eq=False)
class GAIN(TorchBaseline):
    """GAIN (Yoon et al. 2018): a generator fills in, a discriminator guesses which entries were filled in.

    The generator sees the observed entries of a cell, small random numbers in place of the others, and the mask that
    tells them apart. The discriminator sees the cell with the generator's guesses in place of what is missing, and hints:
    of most observed entries it is told that they are observed. It guesses which of the others are. The generator learns to
    be taken for observed where it filled in, and to give back what it saw.

    Both networks have three layers. As in the paper there is no sigmoid at the end of the generator, negative guesses are
    0, and a batch in which everything is missing has no reconstruction error.

    Differs from the original: training cells may be complete, so random entries of them are hidden, a share of each cell
    between none and all that is drawn anew in every step. Counts are divided by the depth of the cell, as its visible
    entries tell it, and logs are taken before genes are scaled to the range from 0 to 1, so that cells of all depths and
    genes of all levels matter; all of this is undone, and no answer exceeds the highest training count at the depth of the
    cell. Guesses start at the mean of each gene. Training stops when the error at hidden entries of held-out cells no longer
    falls. The original makes 10,000 steps of 128 cells, for which ``patience=None`` and
    ``max_epochs=10_000 * 128 // n_cells`` stand.

    Parameters
    ----------
    n_hidden
        Width of both networks; by default the number of genes, as in the original.
    hint_rate
        Probability of a hint at an observed entry.
    reconstruction
        Weight of the squared error at observed entries in the loss of the generator.
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
    >>> GAIN(max_epochs=1).fit(cells).impute(cells, sites).shape
    (40, 6)
    """

    n_hidden: int | None = None
    max_epochs: int = 80
    hint_rate: float = 0.9
    reconstruction: float = 100.0

    name: ClassVar[str] = "gain"
    group: ClassVar[Literal["naive", "specialised", "generative"]] = "specialised"
    uses_mask: ClassVar[bool] = True

    def _network(self, cells: Cells) -> _GainNetwork:
        if not 0 <= self.hint_rate <= 1:
            raise ValueError(f"hint_rate must be between 0 and 1, found {self.hint_rate}.")
        mean, logs = log_profiles(cells)
        highest = logs.amax(dim=0)
        highest = torch.where(highest > 0, highest, 1.0)
        return _GainNetwork(mean, highest, self.n_hidden or len(mean), self.hint_rate, self.reconstruction)

    def _fill(self, batch: Batch, sites: Tensor, generator: torch.Generator) -> Tensor:
        network = self.network
        depth = network.depth(batch.counts, batch.observed)
        noise = NOISE * torch.rand(sites.shape, generator=generator, device=sites.device)
        guess = network.generate(network.scale(batch.counts, depth), batch.observed, noise)
        return network.unscale(guess, depth)


def _three_layers(n_genes: int, n_hidden: int) -> nn.Sequential:
    """From values and mask, or values and hints, to one number for each gene."""
    network = nn.Sequential(
        nn.Linear(2 * n_genes, n_hidden),
        nn.ReLU(),
        nn.Linear(n_hidden, n_hidden),
        nn.ReLU(),
        nn.Linear(n_hidden, n_genes),
    )
    for layer in network[::2]:
        nn.init.xavier_normal_(layer.weight)
        nn.init.zeros_(layer.bias)
    return network


def _mean_where(values: Tensor, where: Tensor) -> Tensor:
    """Mean over some entries; 0 if there are none, as in cells with everything missing."""
    return torch.where(where, values, 0.0).sum() / where.sum().clamp_min(1)
