"""HI-VAE: a variational auto-encoder with a mixture prior and one likelihood per variable."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from sccountsdiff.benchmark.baselines.base import Cells, register_baseline
from sccountsdiff.benchmark.baselines.masking import random_part
from sccountsdiff.benchmark.baselines.torch_training import Batch, Network, TorchBaseline, mlp

LEAST = 1e-4  # least rate and least variance, relative to those of the gene


class _HIVAENetwork(Network):
    """Recognition networks, mixture prior and decoder; a subclass adds the likelihood.

    Genes are standardised by their moments over the observed entries of the training cells; sizes are those of the
    settings.
    """

    n_parameters: ClassVar[int]

    def __init__(self, cells: Cells, settings: HIVAE):
        super().__init__()
        n_genes, n_components, n_latent = cells.counts.shape[1], settings.n_components, settings.n_latent
        n_hidden, n_gene_latent = settings.n_hidden, settings.n_gene_latent
        for name, values in {"count": cells.counts, "log": np.log1p(cells.counts)}.items():
            mean, sd = _gene_moments(values, cells.observed)
            self.register_buffer(f"{name}_mean", mean)
            self.register_buffer(f"{name}_sd", sd)
        self.temperature = settings.temperature
        between = (n_hidden,) if n_hidden else ()
        self.component = mlp(n_genes, *between, n_components)
        self.latent = mlp(n_genes + n_components, *between, 2 * n_latent)
        self.prior_mean = nn.Linear(n_components, n_latent, bias=False)
        self.decoder = mlp(n_latent, *between, n_genes * n_gene_latent)
        # The layer of each gene reads the gene's own numbers and the component.
        self.gene_weight = nn.Parameter(torch.randn(n_genes, n_gene_latent, self.n_parameters) / n_gene_latent**0.5)
        self.gene_bias = nn.Linear(n_components, n_genes * self.n_parameters)

    @abstractmethod
    def log_likelihood(self, counts: Tensor, parameters: Tensor) -> Tensor:
        """Of each entry, given its parameters (cells, genes, parameters)."""

    @abstractmethod
    def expected(self, parameters: Tensor) -> Tensor:
        """Expected counts."""

    @abstractmethod
    def draw(self, parameters: Tensor, generator: torch.Generator) -> Tensor:
        """Counts drawn from the likelihood."""

    def loss(self, batch: Batch) -> Tensor:
        """Minus the evidence lower bound of the observed entries, for each gene; the encoder sees a random part."""
        shown = random_part(batch.observed)
        return -self.elbo(batch.counts, batch.observed, shown).mean() / batch.counts.shape[1]

    def elbo(self, counts: Tensor, observed: Tensor, shown: Tensor) -> Tensor:
        """Evidence lower bound of the observed entries of each cell, of which the encoder sees those shown, by one draw; (cells,)."""
        logits = self.component_logits(counts, shown)
        s = nn.functional.gumbel_softmax(logits, self.temperature, hard=not self.training)
        mean, log_var = self.latent_posterior(counts, shown, s)
        z = mean + torch.randn_like(mean) * (log_var / 2).exp()
        fit = torch.where(observed, self.log_likelihood(counts, self.parameters_of(z, s)), 0.0).sum(dim=1)
        return fit - gaussian_kl(mean, log_var, self.prior_mean(s)) - categorical_kl(logits)

    def component_logits(self, counts: Tensor, observed: Tensor) -> Tensor:
        """Logits of q(s | x), (cells, components)."""
        return self.component(self._input(counts, observed))

    def latent_posterior(self, counts: Tensor, observed: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log-variance of q(z | x, s)."""
        mean, log_var = self.latent(torch.cat([self._input(counts, observed), s], dim=1)).chunk(2, dim=1)
        return mean, log_var.clamp(-15, 15)

    def parameters_of(self, z: Tensor, s: Tensor) -> Tensor:
        """Unconstrained parameters of the likelihood of each entry, (cells, genes, parameters)."""
        y = self.decoder(z).unflatten(1, self.gene_weight.shape[:2])
        bias = self.gene_bias(s).unflatten(1, (-1, self.n_parameters))
        return torch.einsum("cgy,gyp->cgp", y, self.gene_weight) + bias

    def _input(self, counts: Tensor, observed: Tensor) -> Tensor:
        """Standard scores of log counts; 0, which is the mean of the gene, where it is not observed."""
        return torch.where(observed, (torch.log1p(counts) - self.log_mean) / self.log_sd, 0.0)


class _PoissonNetwork(_HIVAENetwork):
    """Counts + 1 are Poisson."""

    n_parameters = 1

    def rate(self, parameters: Tensor) -> Tensor:
        """Rate of counts + 1, which is the mean of the gene where the parameter is 0."""
        return (nn.functional.softplus(parameters[..., 0]) / math.log(2) + LEAST) * (self.count_mean + 1)

    def log_likelihood(self, counts: Tensor, parameters: Tensor) -> Tensor:
        """Poisson."""
        rate, x = self.rate(parameters), counts + 1
        return x * rate.log() - rate - torch.lgamma(x + 1)

    def expected(self, parameters: Tensor) -> Tensor:
        """The 1 that was added is taken away."""
        return (self.rate(parameters) - 1).clamp_min(0)

    def draw(self, parameters: Tensor, generator: torch.Generator) -> Tensor:
        """The 1 that was added is taken away; the likelihood allows 0 where the data begin at 1."""
        return (torch.poisson(self.rate(parameters), generator=generator) - 1).clamp_min(0)


class _GaussianNetwork(_HIVAENetwork):
    """Standard scores of counts are Gaussian."""

    n_parameters = 2

    def moments(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of counts."""
        mean, raw_variance = parameters.unbind(dim=-1)
        return self.count_mean + self.count_sd * mean, self.count_sd**2 * (nn.functional.softplus(raw_variance) + LEAST)

    def log_likelihood(self, counts: Tensor, parameters: Tensor) -> Tensor:
        """Gaussian."""
        mean, variance = self.moments(parameters)
        return -0.5 * ((counts - mean) ** 2 / variance + torch.log(2 * math.pi * variance))

    def expected(self, parameters: Tensor) -> Tensor:
        """The mean, where it is a count."""
        return self.moments(parameters)[0].clamp_min(0)

    def draw(self, parameters: Tensor, generator: torch.Generator) -> Tensor:
        """Real numbers, none of them negative."""
        mean, variance = self.moments(parameters)
        noise = torch.randn(mean.shape, generator=generator, device=mean.device)
        return (mean + variance.sqrt() * noise).clamp_min(0)


def gaussian_kl(mean: Tensor, log_var: Tensor, prior_mean: Tensor) -> Tensor:
    """KL divergence of independent Gaussians from those with another mean and variance 1, summed; (cells,).

    Examples
    --------
    >>> import torch
    >>> gaussian_kl(torch.tensor([[1.0, 2.0]]), torch.zeros(1, 2), torch.zeros(1, 2)).item()  # (1 + 4) / 2
    2.5
    """
    return 0.5 * (log_var.exp() + (mean - prior_mean) ** 2 - 1 - log_var).sum(dim=1)


def categorical_kl(logits: Tensor) -> Tensor:
    """KL divergence of categorical laws from the uniform one; (cells,).

    Examples
    --------
    >>> import torch
    >>> round(categorical_kl(torch.tensor([[0.0, -100.0]])).item(), 4)  # log 2
    0.6931
    """
    log_q = logits.log_softmax(dim=1)
    return (log_q.exp() * log_q).sum(dim=1) + math.log(logits.shape[1])


@dataclass(eq=False)
class HIVAE(TorchBaseline):
    """HI-VAE (Nazabal et al. 2020): a variational auto-encoder with a mixture prior and one likelihood per gene.

    A cell has a component s of a mixture, all equally likely, and a latent vector z, Gaussian around the mean of its
    component. A decoder turns z into a few numbers for each gene; a layer of the gene's own turns them and s into the
    parameters of its likelihood. The encoder finds s and z from the observed entries, those not observed being 0 on its
    standardised scale. Entries that are not observed are left out of the likelihood. In training s is relaxed by
    Gumbel-softmax.

    One sample is the mean of the likelihood at the likeliest component and the mean of z; more samples are draws of s, z
    and the counts.

    Differs from the original: the encoder sees a random part of each training cell, a share between none and all, drawn
    anew in every step, while the likelihood counts all that is observed; training cells may be complete, and the encoder
    must learn to cope with gaps. It has a hidden layer, as has the decoder, and reads standard scores of log counts for
    both likelihoods. Parameters of the likelihood are relative to the moments of the gene, so that genes of all levels
    learn at the same pace. The temperature of the relaxation is fixed; the loss of held-out cells, which tells when to
    stop, is without relaxation. There are 100 epochs at most, as in the paper's comparison; the original has 2,000, for
    which ``max_epochs=2000, patience=None`` stand.

    Parameters
    ----------
    n_components
        Components of the mixture.
    n_latent
        Length of z.
    n_gene_latent
        Numbers that the decoder gives each gene.
    n_hidden
        Width of the hidden layers; 0 for none, as in the original.
    temperature
        Temperature of the relaxed component.
    max_epochs, batch_size, lr, weight_decay, patience, ema_decay, n_warmup_steps, validation_share
        Training, as for all networks of the benchmark.
    progress, trainer_kwargs
        See :class:`lightning.pytorch.Trainer`.

    Examples
    --------
    A likelihood makes it a method, see :class:`HIVAEPoisson` and :class:`HIVAEGaussian`.

    >>> issubclass(HIVAEPoisson, HIVAE)
    True
    """

    n_components: int = 10
    n_latent: int = 10
    n_gene_latent: int = 5
    n_hidden: int = 128
    temperature: float = 0.5

    group = "specialised"
    draws = True
    uses_mask = True

    def _impute(self, cells: Cells, sites: np.ndarray, n_samples: int, seed: int) -> np.ndarray:
        self._single = n_samples == 1
        return super()._impute(cells, sites, n_samples, seed)

    def _fill(self, batch: Batch, sites: Tensor, generator: torch.Generator) -> Tensor:
        network = self.network
        logits = network.component_logits(batch.counts, batch.observed)
        if self._single:
            component = logits.argmax(dim=1)
        else:
            component = torch.multinomial(logits.softmax(dim=1), 1, generator=generator)[:, 0]
        s = nn.functional.one_hot(component, logits.shape[1]).float()
        mean, log_var = network.latent_posterior(batch.counts, batch.observed, s)
        if self._single:
            return network.expected(network.parameters_of(mean, s))
        z = mean + (log_var / 2).exp() * torch.randn(mean.shape, generator=generator, device=mean.device)
        return network.draw(network.parameters_of(z, s), generator)


@register_baseline("hivae_poisson")
class HIVAEPoisson(HIVAE):
    """HI-VAE (Nazabal et al. 2020) with Poisson likelihoods of counts + 1.

    As in the paper's comparison 1 is added to all counts, since the original knows no zeros, and taken away from the
    answer, of which nothing negative is left. Otherwise as :class:`HIVAE`.

    Examples
    --------
    >>> import numpy as np
    >>> from anndata import AnnData
    >>> rng = np.random.default_rng(0)
    >>> cells = AnnData(rng.poisson(2, (40, 6)).astype("float32"))
    >>> sites = rng.random(cells.shape) < 0.5
    >>> HIVAEPoisson(n_hidden=8, max_epochs=1).fit(cells).impute(cells, sites, n_samples=3).shape
    (3, 40, 6)
    """

    def _network(self, cells: Cells) -> _HIVAENetwork:
        return _PoissonNetwork(cells, self)


@register_baseline("hivae_gaussian")
class HIVAEGaussian(HIVAE):
    """HI-VAE (Nazabal et al. 2020) with Gaussian likelihoods of counts.

    Draws are real numbers; negative ones, and negative means, are 0. Otherwise as :class:`HIVAE`.

    Examples
    --------
    >>> import numpy as np
    >>> from anndata import AnnData
    >>> rng = np.random.default_rng(0)
    >>> cells = AnnData(rng.poisson(2, (40, 6)).astype("float32"))
    >>> sites = rng.random(cells.shape) < 0.5
    >>> HIVAEGaussian(n_hidden=8, max_epochs=1).fit(cells).impute(cells, sites, n_samples=3).shape
    (3, 40, 6)
    """

    def _network(self, cells: Cells) -> _HIVAENetwork:
        return _GaussianNetwork(cells, self)


def _gene_moments(values: np.ndarray, observed: np.ndarray) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each gene over observed entries; deviation 1 for a constant gene."""
    mean = values.mean(axis=0, where=observed, dtype=np.float64)
    sd = values.std(axis=0, where=observed, dtype=np.float64)
    sd = np.where(sd > 1e-6, sd, 1.0)
    return torch.as_tensor(mean.astype(np.float32)), torch.as_tensor(sd.astype(np.float32))
