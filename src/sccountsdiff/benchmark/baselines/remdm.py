"""ReMDM: masked diffusion in which every count is a class, and entries may be masked again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from sccountsdiff.benchmark.baselines.base import Cells, register_baseline, sampling
from sccountsdiff.benchmark.baselines.count_classes import CountClasses
from sccountsdiff.benchmark.baselines.covariate_codes import CovariateEmbedding
from sccountsdiff.benchmark.baselines.torch_training import Batch, Network, TorchBaseline
from sccountsdiff.benchmark.masked_diffusion import MASK, Remasking, sample_masked
from sccountsdiff.checks import one_of, whole_number
from sccountsdiff.diffusion import reverse_walk
from sccountsdiff.nn.mlp import AdaptiveBlock
from sccountsdiff.nn.transformer import AttentionBlock

EARLIEST = 1e-3
"""Earliest time in training; the weight of the loss is one over the time."""


class WholeCell(nn.Module):
    """A residual MLP over all genes at once: ``rank`` numbers for each class on the way in, ``rank`` for each gene on the way out."""

    def __init__(self, n_genes: int, basis: Tensor, settings: ReMDM):
        super().__init__()
        n_hidden, rank, dropout = settings.n_hidden, settings.rank, settings.dropout
        self.embed = nn.Embedding.from_pretrained(torch.cat([torch.zeros(1, rank), basis]), freeze=False)
        self.encoder = nn.Sequential(nn.Dropout(dropout), nn.Linear(n_genes * rank, n_hidden))
        self.blocks = nn.ModuleList(AdaptiveBlock(n_hidden, dropout) for _ in range(settings.n_layers))
        self.decoder = nn.Sequential(nn.LayerNorm(n_hidden), nn.Linear(n_hidden, n_genes * rank))
        nn.init.zeros_(self.decoder[1].weight)
        nn.init.zeros_(self.decoder[1].bias)

    def forward(self, codes: Tensor, condition: Tensor) -> Tensor:
        """(cells, genes, rank)."""
        h = self.encoder(self.embed(codes - MASK).flatten(1)) + condition
        for block in self.blocks:
            h = block(h, condition)
        return self.decoder(h).unflatten(1, (codes.shape[1], -1))


class GeneTokens(nn.Module):
    """The transformer of the CountsDiff paper: a token for each gene with the vector of its class, and one for the covariates."""

    def __init__(self, n_genes: int, n_classes: int, settings: ReMDM):
        super().__init__()
        n_hidden = settings.n_hidden
        self.genes = nn.Parameter(torch.randn(n_genes, n_hidden) / n_hidden**0.5)
        self.embed = nn.Embedding(n_classes + 1, n_hidden)
        block = lambda: AttentionBlock(n_hidden, settings.n_heads, settings.dropout)
        self.blocks = nn.ModuleList(block() for _ in range(settings.n_layers))
        self.norm = nn.LayerNorm(n_hidden)

    def forward(self, codes: Tensor, condition: Tensor) -> Tensor:
        """(cells, genes, n_hidden)."""
        h = torch.cat([condition[:, None], self.genes + self.embed(codes - MASK)], dim=1)
        for block in self.blocks:
            h = block(h)
        return self.norm(h[:, 1:])


class ReMDMNetwork(Network):
    """The law of masked counts, given those that are not masked.

    The backbone gives each gene a few numbers; their products with those of a class, added to a bias, are its logits.

    Parameters
    ----------
    classes
        Classes of counts.
    frequencies
        Share of each class in each gene, (genes, classes): what the untrained network predicts.
    covariates
        Embedding of the covariates, ``n_hidden`` wide.
    settings
        Backbone, its size, and the share of the cells that are shown without covariates in training.
    """

    def __init__(self, classes: CountClasses, frequencies: Tensor, covariates: CovariateEmbedding, settings: ReMDM):
        super().__init__()
        n_genes, n_classes = frequencies.shape
        self.classes, self.covariates, self.p_uncond = classes, covariates, settings.p_uncond
        self.backbone: nn.Module
        if settings.backbone == "mlp":
            # Smooth functions of the log count to start with: neighbouring counts are alike.
            position = torch.log1p(torch.arange(n_classes)) / np.log1p(classes.last) * torch.pi
            basis = torch.cos(position[:, None] * torch.arange(1, settings.rank + 1))  # (classes, rank)
            self.backbone = WholeCell(n_genes, basis, settings)
            self.class_vectors = nn.Parameter(basis.clone())
            self.bias = nn.Parameter(frequencies.log())
        else:  # one output layer for all genes, as in the paper
            self.backbone = GeneTokens(n_genes, n_classes, settings)
            self.class_vectors = nn.Parameter(torch.randn(n_classes, settings.n_hidden) / (2 * settings.n_hidden**0.5))
            self.bias = nn.Parameter(frequencies.mean(dim=0, keepdim=True).log())

    def forward(self, codes: Tensor, batch: Batch, null: Tensor) -> Tensor:
        """Numbers for each gene, (cells, genes, rank); ``null`` are the cells shown without covariates."""
        return self.backbone(codes, self.covariates(batch.categories, batch.continuous, null | batch.unseen))

    def log_law(self, numbers: Tensor, entries: Tensor) -> Tensor:
        """Log-probabilities (entries, classes) at the entries of a boolean matrix (cells, genes)."""
        gene = entries.nonzero()[:, 1]
        bias = self.bias[gene] if len(self.bias) > 1 else self.bias
        # Laid out anew, as the gradient of a transposed view is a product eight times as slow.
        class_vectors = self.class_vectors.T.contiguous()
        return torch.addmm(bias, numbers[entries], class_vectors).log_softmax(dim=1)

    def loss(self, batch: Batch) -> Tensor:
        """MDLM's bound on the negative log-likelihood, in nats per observed entry."""
        n, device = len(batch), batch.counts.device
        codes = self.classes.encode(batch.counts)
        t = (torch.rand(1, device=device) + torch.arange(n, device=device) / n) % 1  # spread evenly: less noise
        t = t.clamp_min(EARLIEST)[:, None]
        targets = batch.observed & (torch.rand(codes.shape, device=device) < t)
        null = torch.rand(n, device=device) < self.p_uncond
        numbers = self(torch.where(batch.observed & ~targets, codes, MASK), batch, null)
        log_law = self.log_law(numbers, targets).gather(1, codes[targets][:, None])[:, 0]
        return -(log_law / t.expand(codes.shape)[targets]).sum() / batch.observed.sum().clamp_min(1)

    def guided(self, batch: Batch, gamma: float) -> Callable[[Tensor, Tensor, float], Tensor]:
        """The law for codes, entries and time under guidance: ``gamma log p(x | covariates) + (1 - gamma) log p(x)``."""
        nulls = [torch.full((len(batch),), null, device=batch.counts.device) for null in (False, True)]

        def log_law(codes: Tensor, entries: Tensor, t: float) -> Tensor:
            if gamma in (0, 1):
                return self.log_law(self(codes, batch, nulls[1 - int(gamma)]), entries)
            conditional, unconditional = (self.log_law(self(codes, batch, null), entries) for null in nulls)
            return (gamma * conditional + (1 - gamma) * unconditional).log_softmax(dim=1)

        return log_law


@register_baseline("remdm", group="generative", draws=True, uses_covariates=True, uses_mask=True)
class ReMDM(TorchBaseline):
    """ReMDM (Wang et al. 2025): masked diffusion with a class for each count, and remasking in sampling.

    In training each entry of a cell is masked with the same random probability, and a network learns the law of the
    masked ones from the others; the loss is the bound of MDLM (Sahoo et al. 2024), cross-entropies weighted by one
    over the masked share. Sampling starts with all entries to be filled in masked and reveals them over ``n_steps``
    steps. Unlike MDLM, an entry that was revealed may be masked again and get another chance. Entries that are not
    observed in training are always masked and never asked for. Covariates enter by classifier-free guidance. One
    sample is one draw.

    Differs from the original:

    - The original is a transformer over tokens of text or images, and that of the CountsDiff paper one over genes, which
      ``backbone="transformer"`` has. By default a residual MLP sees all genes at once, and logits are of low rank, which
      makes counts trainable on a laptop. The CountsDiff paper trains for 100,000 steps; here ``max_epochs`` sets the
      budget, with early stopping. Its loss is the mean cross-entropy of all observed entries, masked or not; here it is
      MDLM's, which ReMDM is derived for.
    - The network is not told the time: the share of masked entries says as much.
    - The largest counts share one class (see ``quantile``), which becomes one of the training counts in it. Few classes
      are no shortcut: the largest counts make up most of a squared error.
    - Observed entries are shown as they are, which a masked model is trained for, and cells are walked through once.
      ``known="noised"`` with ``n_resamples`` above 1 is RePaint as in the CountsDiff paper.
    - There is no schedule that loops at a constant level of noise (ReMDM-loop), and no nucleus sampling.

    Parameters
    ----------
    quantile
        Training counts up to this quantile have a class of their own.
    max_classes
        Classes at most; memory grows with them.
    backbone
        ``"mlp"``, or ``"transformer"`` with a token for each gene.
    n_hidden, n_layers, dropout
        Size of the network.
    rank
        Numbers for each gene in the MLP.
    n_heads
        Attention heads of the transformer.
    p_uncond
        Share of the cells that are shown without covariates in training.
    n_steps
        Steps in sampling.
    remasking
        ``"rescale"``, ``"cap"`` or ``"conf"``: how often an entry is masked again.
    eta
        Strength of the remasking, 0 to 1; 0 is MDLM. ReMDM's own ``"conf"`` has 1.
    guidance
        1 for the conditional model, 0 for the unconditional one, more for stronger guidance.
    known
        Whether observed entries are shown as they are (``"clean"``) or masked as often as the others (``"noised"``).
    n_resamples
        How many times each step is walked (RePaint).
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
    >>> ReMDM(n_hidden=8, max_epochs=1, n_steps=3).fit(cells).impute(cells, sites, n_samples=3).shape
    (3, 40, 6)
    """

    quantile: float = 0.9995
    max_classes: int = 1000
    backbone: Literal["mlp", "transformer"] = "mlp"
    n_hidden: int = 256
    n_layers: int = 2
    rank: int = 6
    n_heads: int = 4
    dropout: float = 0.1
    p_uncond: float = 0.2
    n_steps: int = sampling(32)
    remasking: Remasking = sampling("rescale")
    eta: float = sampling(0.02)
    guidance: float = sampling(1.0)
    known: Literal["clean", "noised"] = sampling("clean")
    n_resamples: int = sampling(1)
    max_epochs: int = 200
    ema_decay: float | None = 0.99

    def __post_init__(self) -> None:
        one_of("remasking", self.remasking, get_args(Remasking))
        one_of("known", self.known, ("clean", "noised"))
        one_of("backbone", self.backbone, ("mlp", "transformer"))
        if self.backbone == "transformer" and self.n_hidden % whole_number("n_heads", self.n_heads):
            raise ValueError(f"n_heads={self.n_heads} must divide n_hidden={self.n_hidden}.")
        if not 0 <= self.eta <= 1:
            raise ValueError(f"eta must be between 0 and 1, found {self.eta}.")
        if self.guidance < 0:
            raise ValueError(f"guidance must be at least 0, found {self.guidance}.")
        if self.max_classes < 2 or not 0 < self.quantile <= 1:
            raise ValueError(f"Found quantile={self.quantile}, max_classes={self.max_classes}; need (0, 1] and 2.")
        reverse_walk(self.n_steps, n_resamples=self.n_resamples)  # checks both

    def _network(self, cells: Cells) -> ReMDMNetwork:
        classes = CountClasses(cells, self.quantile, self.max_classes)
        codes = np.round(cells.counts).clip(max=classes.last).astype(int)
        of_genes = (codes[seen, gene] for gene, seen in enumerate(cells.observed.T))
        numbers = np.stack([np.bincount(of_gene, minlength=len(classes)) for of_gene in of_genes]) + 1 / len(classes)
        frequencies = torch.as_tensor(numbers / numbers.sum(axis=1, keepdims=True), dtype=torch.float32)
        return ReMDMNetwork(classes, frequencies, self.coder.embedding(self.n_hidden), self)

    def _fill(self, batch: Batch, sites: Tensor, generator: torch.Generator) -> Tensor:
        network = self.network
        law, codes = network.guided(batch, self.guidance), network.classes.encode(batch.counts)
        walk = reverse_walk(self.n_steps, n_resamples=self.n_resamples)
        settings = self._settings(("remasking", "eta", "known"))
        codes = sample_masked(law, walk, codes, batch.observed, sites, **settings, generator=generator)
        return network.classes.decode(codes.clamp_min(0), generator)


@register_baseline("remdm_mean", draws=False)
class ReMDMMean(ReMDM):
    """ReMDM: the mean of its law of each hidden entry given the observed ones, in one pass.

    It shares the trained network of :class:`ReMDM`. All hidden entries are masked at once, as in the first step of a draw, and
    a mean of draws, which has their noise, is not needed.

    Examples
    --------
    >>> ReMDMMean().training_key == ReMDM().training_key
    True
    """

    def _fill(self, batch: Batch, sites: Tensor, generator: torch.Generator) -> Tensor:
        network = self.network
        codes = torch.where(batch.observed, network.classes.encode(batch.counts), MASK)
        law = network.guided(batch, self.guidance)(codes, sites, 1.0).exp()  # (sites, classes)
        answer = torch.zeros_like(batch.counts)
        answer[sites] = network.classes.mean(law, sites.nonzero()[:, 1])
        return answer
