"""GAIN: a generator fills in, a discriminator guesses which entries were filled in."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sccountsdiff.benchmark.baselines.base import Cells, register_baseline
from sccountsdiff.benchmark.baselines.masking import random_part
from sccountsdiff.benchmark.baselines.torch_training import Batch, Network, Objective, TorchBaseline, mlp
from sccountsdiff.benchmark.baselines.value_transforms import LogValues

NOISE = 0.01
"""Largest random number that stands for a missing entry in the generator's input."""


class _GainNetwork(Network):
    """Generator, discriminator, and the scale on which they see counts.

    Parameters
    ----------
    values
        From counts to values, 0 to 1 in most cells, and back.
    settings
        Width of both networks, probability that the discriminator is told of an observed entry that it is observed, and
        weight of the generator's squared error at observed entries.
    """

    def __init__(self, values: LogValues, settings: GAIN):
        super().__init__()
        self.values, self.hint_rate, self.reconstruction = values, settings.hint_rate, settings.reconstruction
        self.generator, self.discriminator = (_three_layers(len(values.gene_mean), settings.n_hidden) for _ in range(2))
        with torch.no_grad():  # training starts at the mean of each gene
            self.generator[-1].bias.copy_(torch.log1p(values.gene_mean) / values.scale)

    def objectives(self) -> list[Objective]:
        """The discriminator makes its step first."""
        return [
            (list(self.discriminator.parameters()), self.discriminator_objective),
            (list(self.generator.parameters()), self.loss),
        ]

    def discriminator_objective(self, batch: Batch) -> Tensor:
        """Loss of the discriminator."""
        values, observed, guess = self._guess(batch)
        return discriminator_loss(self.discriminate(torch.where(observed, values, guess), observed), observed)

    def loss(self, batch: Batch) -> Tensor:
        """Loss of the generator; in validation, its squared error at entries that were hidden from it."""
        values, observed, guess = self._guess(batch)
        errors = (guess - values) ** 2
        if not self.training:
            return _mean_where(errors, batch.observed & ~observed)
        logits = self.discriminate(torch.where(observed, values, guess), observed)
        return generator_loss(logits, observed) + self.reconstruction * _mean_where(errors, observed)

    def _guess(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Values, which of them the generator is shown as observed, and its guesses."""
        observed = random_part(batch.observed)
        values = self.values(batch.counts, observed)
        return values, observed, self.generate(values, observed, NOISE * torch.rand_like(values))

    def generate(self, values: Tensor, observed: Tensor, noise: Tensor) -> Tensor:
        """A guess at every entry, from the observed ones."""
        return self.generator(torch.cat([torch.where(observed, values, noise), observed.float()], dim=1))

    def discriminate(self, filled: Tensor, observed: Tensor) -> Tensor:
        """Log-odds that an entry is observed, from hints and values of which those not observed are filled in."""
        return self.discriminator(torch.cat([filled, self.hint(observed)], dim=1))

    def hint(self, observed: Tensor) -> Tensor:
        """1 for an observed entry with probability ``hint_rate``; 0 may mean either."""
        return (observed & (torch.rand(observed.shape, device=observed.device) < self.hint_rate)).float()


def discriminator_loss(logits: Tensor, observed: Tensor) -> Tensor:
    """Cross-entropy of the guesses which entries are observed.

    Examples
    --------
    >>> import torch
    >>> round(discriminator_loss(torch.zeros(1, 2), torch.tensor([[True, False]])).item(), 4)  # log 2
    0.6931
    """
    return nn.functional.binary_cross_entropy_with_logits(logits, observed.float())


def generator_loss(logits: Tensor, observed: Tensor) -> Tensor:
    """Mean of minus the log-probability that filled-in entries pass for observed; observed entries add nothing.

    Examples
    --------
    >>> import torch
    >>> round(generator_loss(torch.zeros(1, 2), torch.tensor([[True, False]])).item(), 4)  # half of log 2
    0.3466
    """
    return torch.where(observed, 0.0, nn.functional.softplus(-logits)).mean()


@register_baseline("gain", group="specialised", uses_mask=True)
class GAIN(TorchBaseline):
    """GAIN (Yoon et al. 2018): a generator fills in, a discriminator guesses which entries were filled in.

    The generator sees the observed entries of a cell, small random numbers in place of the others, and the mask that
    tells them apart. The discriminator sees the cell with the generator's guesses in place of what is missing, and hints:
    of most observed entries it is told that they are observed. It guesses which of the others are. The generator learns to
    be taken for observed where it filled in, and to give back what it saw.

    Both networks have three layers. As in the paper there is no sigmoid at the end of the generator, negative guesses are
    0, and a batch in which everything is missing has no reconstruction error.

    Differs from the original: training cells may be complete, so random entries of them are hidden, a share of each cell
    between none and all that is drawn anew in every step. Counts are divided by the depth of the cell, known from its observed
    entries, and logs are taken before genes are scaled to the range from 0 to 1, so that cells of all depths and
    genes of all levels matter; all of this is undone, and no answer exceeds the highest training count at the depth of the
    cell. Guesses start at the mean of each gene, and weights are those of the paper's code, smaller than the original's by
    the square root of 1.5 in the first and of 2 in the other layers. The two networks draw noise, hints and hidden entries each for
    itself, where the original uses the same for both: the gradients have the same mean. Nothing is rounded, where the
    original rounds variables with fewer than 20 values. Training stops when the error at hidden entries of held-out cells no longer
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

    def _network(self, cells: Cells) -> _GainNetwork:
        if not 0 <= self.hint_rate <= 1:
            raise ValueError(f"hint_rate must be between 0 and 1, found {self.hint_rate}.")
        return _GainNetwork(LogValues(cells, _unit_range), self)

    def _fill(self, batch: Batch, sites: Tensor, generator: torch.Generator) -> Tensor:
        values = self.network.values
        noise = NOISE * torch.rand(sites.shape, generator=generator, device=sites.device)
        guess = self.network.generate(values(batch.counts, batch.observed), batch.observed, noise)
        return values.decode(guess, batch.counts, batch.observed)


def _unit_range(logs: Tensor, observed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Each gene from 0 to 1."""
    highest = logs.amax(dim=0)
    highest = torch.where(highest > 0, highest, 1.0)
    return torch.zeros(()), highest, highest


def _three_layers(n_genes: int, n_hidden: int | None) -> nn.Sequential:
    """From values and mask, or values and hints, to one number for each gene; by default as wide as there are genes."""
    network = mlp(2 * n_genes, n_hidden or n_genes, n_hidden or n_genes, n_genes)
    for layer in network[::2]:
        nn.init.xavier_normal_(layer.weight)
        nn.init.zeros_(layer.bias)
    return network


def _mean_where(values: Tensor, where: Tensor) -> Tensor:
    """Mean over some entries; 0 if there are none, as in cells with everything missing."""
    return torch.where(where, values, 0.0).sum() / where.sum().clamp_min(1)
