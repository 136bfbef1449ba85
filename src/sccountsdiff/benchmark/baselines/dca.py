"""DCA: an auto-encoder with a zero-inflated negative-binomial likelihood."""

from __future__ import annotations

import numpy as np
import torch
from scvi.distributions import ZeroInflatedNegativeBinomial
from torch import Tensor, nn

from sccountsdiff.benchmark.baselines.base import Cells, register_baseline
from sccountsdiff.benchmark.baselines.depth import batch_depth
from sccountsdiff.benchmark.baselines.torch_training import Batch, Network, TorchBaseline
from sccountsdiff.benchmark.baselines.value_transforms import LogValues

MEAN_RANGE = (1e-5, 1e6)
DISPERSION_RANGE = (1e-4, 1e4)


class _DCANetwork(Network):
    """From the log counts of a cell at mean depth to the parameters of the likelihood of each entry.

    Parameters
    ----------
    cells
        Training cells, for the moments of each gene.
    n_hidden
        Widths of the hidden layers.
    """

    def __init__(self, cells: Cells, n_hidden: tuple[int, ...]):
        super().__init__()
        self.values = LogValues(cells, _standard_scores_with_zeros)
        mean = self.values.gene_mean
        widths, layers = [len(mean), *n_hidden], []
        for n_in, n_out in zip(widths, widths[1:], strict=False):
            layers += [nn.Linear(n_in, n_out), nn.BatchNorm1d(n_out), nn.ReLU()]
        self.body = nn.Sequential(*layers)
        self.log_mean, self.raw_dispersion, self.zero_logits = (nn.Linear(widths[-1], len(mean)) for _ in range(3))
        with torch.no_grad():  # training starts at the mean of each gene
            self.log_mean.bias.copy_(mean.clamp_min(MEAN_RANGE[0]).log())

    def loss(self, batch: Batch) -> Tensor:
        """Minus the log-likelihood of all entries, zeros included, per entry."""
        h = self.encode(batch)
        depth = self.values.depth(batch.counts, batch.observed)
        dispersion = nn.functional.softplus(self.raw_dispersion(h)).clamp(*DISPERSION_RANGE)
        law = ZeroInflatedNegativeBinomial(
            mu=self.profile(h) * depth, theta=dispersion, zi_logits=self.zero_logits(h), validate_args=False
        )
        return -law.log_prob(batch.counts).mean()

    def encode(self, batch: Batch) -> Tensor:
        """The last hidden layer."""
        return self.body(self.values(batch.counts, batch.observed))

    def profile(self, h: Tensor) -> Tensor:
        """Mean of the negative binomial at mean depth, (cells, genes)."""
        log_least, log_most = np.log(MEAN_RANGE)
        return self.log_mean(h).clamp(log_least, log_most).exp()


@register_baseline("dca", group="specialised")
class DCA(TorchBaseline):
    """DCA (Eraslan et al. 2019): an auto-encoder with a zero-inflated negative-binomial likelihood.

    The network reads the log counts of a cell at mean depth, as standard scores, and passes them through a bottleneck. For
    each gene it gives a mean, which is multiplied by the depth of the cell, a dispersion, and the probability of a zero
    beyond those of the negative binomial. The mean of the negative binomial is the answer: the extra zeros are taken for
    failures to detect. Hidden entries are zeros to the network, as all missing values are to the original.

    Differs from the original: the depth of a cell is its observed total over the expected total of the same genes, and the
    mean is brought to that depth, so that hidden entries do not make a cell look shallow. The optimiser is Adam with
    warm-up instead of RMSprop with a learning rate that falls on plateaus; means
    start at the mean of the gene; and there are 100 epochs at most where the original has 300, with the same patience.

    Parameters
    ----------
    n_hidden
        Widths of the hidden layers.
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
    >>> DCA(n_hidden=(8, 4, 8), max_epochs=1).fit(cells).impute(cells, sites).shape
    (40, 6)
    """

    n_hidden: tuple[int, ...] = (64, 32, 64)
    batch_size: int = 32

    def _network(self, cells: Cells) -> _DCANetwork:
        return _DCANetwork(cells, self.n_hidden)

    def _fill(self, batch: Batch, sites: Tensor, generator: torch.Generator) -> Tensor:
        profile = self.network.profile(self.network.encode(batch))
        return profile * batch_depth(batch.counts, batch.observed, profile)


def _standard_scores_with_zeros(logs: Tensor, observed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean 0 and variance 1 of each gene over all entries: those not observed are zeros to this method."""
    sd, mean = torch.std_mean(logs, dim=0, correction=0)
    return mean, torch.where(sd > 1e-6, sd, 1.0), logs.amax(dim=0)
