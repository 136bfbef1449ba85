"""xTrimoGene: a masked auto-encoder whose encoder sees only the genes that are expressed."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sccountsdiff.benchmark.baselines.base import Cells, register_baseline
from sccountsdiff.benchmark.baselines.masking import HidingNetwork, MaskedAutoEncoder, pack, split_heads
from sccountsdiff.benchmark.baselines.torch_training import Batch, Network
from sccountsdiff.benchmark.baselines.value_transforms import LogValues


@register_baseline("xtrimogene")
class XTrimoGene(MaskedAutoEncoder):
    """xTrimoGene: a masked auto-encoder that encodes only expressed genes and decodes all of them.

    The method of Gong et al. (2023). The encoder, a transformer, gets only genes that are neither zero nor hidden, so
    that its cost falls with the sparsity of the cells. A value is embedded by auto-discretisation: a weighted mean of
    learnt bin vectors, the weights being a smooth function of the value. The decoder is narrower and has one token for
    every gene: what the encoder made of it, the vector of the value 0, or that of a hidden entry; its attention costs
    time in proportion to the number of genes. The values of the hidden entries, zeros and others alike, are regressed
    on by squared error.

    The values are log(1 + count / depth). Predicted ones are undone and multiplied by the observed depth of the cell.
    (The mean of logarithms is below the logarithm of the mean; that bias is the original's and is left.)

    Differs from the original: the vector of a gene and that of its value are summed and multiplied, not only summed,
    without which little is learnt in the few steps there are here. Linear attention in the decoder has the features elu
    + 1 in place of the random ones of the Performer. Each training cell has its own share of hidden entries, the same
    for zeros and for others, since it is not known how much will be missing from the cells to impute;
    ``hidden_shares=(0.3,), hidden_zeros=0.03`` is the original's.

    The original has up to 100 million parameters and was trained on 50 million cells. Default settings train for at
    most ``max_steps`` steps of ``batch_size`` cells: about 4 CPU minutes for 500 genes of which a fifth is expressed,
    however many cells there are.

    Parameters
    ----------
    n_hidden, n_heads, n_layers
        Size of the encoder.
    n_decoder_hidden, n_decoder_heads, n_decoder_layers
        Size of the decoder.
    expansion
        Width of feed-forward layers, as a multiple of that of the tokens.
    n_bins
        Number of learnt bins of values.
    dropout
        Dropout in the encoder and the decoder.
    hidden_shares, max_steps
        Shares of genes that are hidden in training, and steps at most.
    hidden_zeros
        Share of the zeros that is hidden in training. Default: the same as of other counts.
    max_epochs, batch_size, lr, weight_decay, patience, ema_decay, n_warmup_steps, validation_share, progress, trainer_kwargs
        Training, the same for all networks of the benchmark.

    Examples
    --------
    >>> import numpy as np
    >>> from anndata import AnnData
    >>> rng = np.random.default_rng(0)
    >>> cells = AnnData(rng.poisson(2, (40, 6)).astype("float32"))
    >>> sites = rng.random(cells.shape) < 0.5
    >>> XTrimoGene(n_hidden=8, n_decoder_hidden=8, n_layers=1, max_epochs=1).fit(cells).impute(cells, sites).shape
    (40, 6)
    """

    n_hidden: int = 64
    n_heads: int = 2
    n_layers: int = 2
    n_decoder_hidden: int = 48
    n_decoder_heads: int = 2
    n_decoder_layers: int = 1
    expansion: int = 2
    n_bins: int = 100
    dropout: float = 0.0
    hidden_zeros: float | None = None
    max_steps: int | None = 700

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hidden_zeros is not None and not 0 < self.hidden_zeros < 1:
            raise ValueError(f"hidden_zeros must lie strictly between 0 and 1, found {self.hidden_zeros}.")

    def _network(self, cells: Cells) -> Network:
        return HiddenExpression(cells, self)

    def _fill(self, batch: Batch, sites: Tensor, generator: torch.Generator) -> Tensor:
        predicted = self.network(batch.counts, batch.observed)
        return self.network.values.decode(predicted, batch.counts, batch.observed)


class HiddenExpression(HidingNetwork):
    """Encoder of expressed genes, decoder of all genes, and the loss at hidden entries."""

    def __init__(self, cells: Cells, settings: XTrimoGene):
        super().__init__(LogValues(cells), settings)
        self.hidden_zeros = settings.hidden_zeros
        self.encoder = Encoder(cells.counts.shape[1], settings)
        self.decoder = Decoder(settings)

    def hide(self, batch: Batch) -> Tensor:
        """Zeros may have a share of their own."""
        hidden = super().hide(batch)
        if self.hidden_zeros is None:
            return hidden
        of_zeros = torch.rand(hidden.shape, device=hidden.device) < self.hidden_zeros
        return torch.where(batch.counts > 0, hidden, batch.observed & of_zeros)

    def errors(self, batch: Batch, observed: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Of all entries, (cells, genes)."""
        return self(batch.counts, observed) - self.values(batch.counts, observed), hidden

    def forward(self, counts: Tensor, observed: Tensor) -> Tensor:
        """Predicted values of all entries, (cells, genes)."""
        index, valid = pack(observed & (counts > 0))
        values = self.values(counts, observed).gather(1, index)
        return self.decoder(self.encoder(values, index, valid), index, valid, observed, self.encoder)


class AutoDiscretization(nn.Module):
    """Vectors for values: a mean of learnt bin vectors, weighted by a smooth function of the value.

    Parameters
    ----------
    n_bins
        Number of bins.
    n_hidden
        Length of the vectors.

    Examples
    --------
    >>> import torch
    >>> AutoDiscretization(n_bins=5, n_hidden=3)(torch.zeros(2, 4)).shape
    torch.Size([2, 4, 3])
    """

    def __init__(self, n_bins: int, n_hidden: int):
        super().__init__()
        self.score = nn.Linear(1, n_bins)
        self.mix = nn.Linear(n_bins, n_bins)
        self.residual = nn.Parameter(torch.ones(()))
        self.bins = nn.Parameter(torch.randn(n_bins, n_hidden))
        # Steep from the start: with near-equal weights all values would look alike for long.
        nn.init.normal_(self.score.weight, std=2.0)

    def weights(self, values: Tensor) -> Tensor:
        """Weight of each bin, (..., bins)."""
        scores = F.leaky_relu(self.score(values[..., None]), 0.1)
        return (self.mix(scores) + self.residual * scores).softmax(dim=-1)

    def forward(self, values: Tensor) -> Tensor:
        """(..., n_hidden)."""
        return self.weights(values) @ self.bins


class Encoder(nn.Module):
    """Transformer over expressed genes."""

    def __init__(self, n_genes: int, settings: XTrimoGene):
        super().__init__()
        n_hidden = settings.n_hidden
        self.genes = nn.Embedding(n_genes, n_hidden)
        self.embed = AutoDiscretization(settings.n_bins, n_hidden)
        layer = lambda: _PreNormLayer(n_hidden, settings.n_heads, settings, _softmax_attention)
        self.layers = nn.ModuleList(layer() for _ in range(settings.n_layers))
        self.norm = nn.LayerNorm(n_hidden)

    def tokens(self, genes: Tensor, values: Tensor) -> Tensor:
        """Vectors of genes with values; the product of both says which value is whose."""
        values = self.embed(values)
        return genes + values + genes * values

    def forward(self, values: Tensor, index: Tensor, valid: Tensor) -> Tensor:
        """What genes with these values become, (cells, tokens, n_hidden)."""
        h = self.tokens(self.genes(index), values)
        for layer in self.layers:
            h = layer(h, valid)
        return self.norm(h)


class Decoder(nn.Module):
    """Light transformer with linear attention over all genes."""

    def __init__(self, settings: XTrimoGene):
        super().__init__()
        n_hidden = settings.n_decoder_hidden
        self.hidden = nn.Parameter(0.1 * torch.randn(settings.n_hidden))
        self.project = nn.Linear(settings.n_hidden, n_hidden)
        layer = lambda: _PreNormLayer(n_hidden, settings.n_decoder_heads, settings, _linear_attention)
        self.layers = nn.ModuleList(layer() for _ in range(settings.n_decoder_layers))
        self.out = nn.Sequential(nn.LayerNorm(n_hidden), nn.Linear(n_hidden, 1))

    def forward(self, encoded: Tensor, index: Tensor, valid: Tensor, observed: Tensor, encoder: Encoder) -> Tensor:
        """Values of all genes, (cells, genes)."""
        genes = encoder.genes.weight
        # Project before copying to all cells: there are fewer vectors to project.
        zero = encoder.tokens(genes, genes.new_zeros(len(genes)))
        zero, hidden, encoded = map(self.project, (zero, genes + self.hidden, encoded))
        h = torch.where(observed[..., None], zero, hidden)
        place = index[..., None].expand_as(encoded)
        h = h.scatter(1, place, torch.where(valid[..., None], encoded, h.gather(1, place)))
        everywhere = torch.ones_like(observed)
        for layer in self.layers:
            h = layer(h, everywhere)
        return self.out(h).squeeze(-1)


class _PreNormLayer(nn.Module):
    """Pre-norm attention and feed-forward layer."""

    def __init__(self, n_hidden: int, n_heads: int, settings: XTrimoGene, attention):
        super().__init__()
        n_wide = settings.expansion * n_hidden
        self.n_heads = n_heads
        self.attention = attention
        self.attention_norm = nn.LayerNorm(n_hidden)
        self.qkv = nn.Linear(n_hidden, 3 * n_hidden)
        self.mixed = nn.Linear(n_hidden, n_hidden)
        self.dropout = nn.Dropout(settings.dropout)
        self.feedforward = nn.Sequential(
            nn.LayerNorm(n_hidden), nn.Linear(n_hidden, n_wide), nn.GELU(), nn.Linear(n_wide, n_hidden)
        )

    def forward(self, h: Tensor, valid: Tensor) -> Tensor:
        q, k, v = split_heads(self.qkv(self.attention_norm(h)), self.n_heads)
        h = h + self.dropout(self.mixed(self.attention(q, k, v, valid).transpose(1, 2).flatten(2)))
        return h + self.dropout(self.feedforward(h))


def _softmax_attention(q: Tensor, k: Tensor, v: Tensor, valid: Tensor) -> Tensor:
    """Attention to valid tokens; a cell without any has padding that attends to itself."""
    some = valid | ~valid.any(dim=1, keepdim=True)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=some[:, None, None, :])


def _linear_attention(q: Tensor, k: Tensor, v: Tensor, valid: Tensor) -> Tensor:
    """Attention whose weights are products of positive features, so that keys and values are summed only once."""
    q, k = F.elu(q) + 1, (F.elu(k) + 1) * valid[:, None, :, None]
    total = q @ k.sum(dim=2)[..., None]
    return (q @ (k.transpose(-1, -2) @ v)) / total
