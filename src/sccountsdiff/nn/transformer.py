"""The paper's backbone: a transformer with one token for each gene."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sccountsdiff.checks import whole_number
from sccountsdiff.nn.backbone import N_CHANNELS, Backbone, register_backbone


class AttentionBlock(nn.Module):
    """Pre-norm self-attention and feed-forward layer."""

    def __init__(self, n_hidden: int, n_heads: int, dropout_rate: float):
        super().__init__()
        self.n_heads = n_heads
        self.dropout_rate = dropout_rate
        self.attention_norm = nn.LayerNorm(n_hidden)
        self.qkv = nn.Linear(n_hidden, 3 * n_hidden)
        self.project = nn.Linear(n_hidden, n_hidden)
        self.mlp = nn.Sequential(
            nn.LayerNorm(n_hidden),
            nn.Linear(n_hidden, 4 * n_hidden),
            nn.GELU(),
            nn.Dropout(dropout_rate),
            nn.Linear(4 * n_hidden, n_hidden),
        )

    def forward(self, h: Tensor) -> Tensor:
        """(cells, tokens, n_hidden) to the same."""
        q, k, v = (
            part.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)  # (cells, heads, tokens, n_hidden / heads)
            for part in self.qkv(self.attention_norm(h)).chunk(3, dim=-1)
        )
        dropout = self.dropout_rate if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout)
        h = h + self.project(mixed.transpose(1, 2).flatten(2))
        return h + self.mlp(h)


@register_backbone("transformer")
class Transformer(Backbone):
    """Gene-token transformer: gene embedding plus projected value, with tokens for time, depth and covariates.

    The paper's settings are width 64 with 4 heads (fetus) and width 128 with 8 heads (heart), 3 layers each.

    Parameters
    ----------
    n_genes
        Number of genes.
    n_outputs
        Numbers asked for per gene.
    n_hidden
        Width of the tokens.
    n_layers
        Attention layers.
    n_heads
        Attention heads; must divide ``n_hidden``.
    dropout_rate
        Dropout in attention and feed-forward layers.

    Examples
    --------
    >>> import torch
    >>> from sccountsdiff.nn import Transformer
    >>> Transformer(n_genes=20, n_outputs=1, n_hidden=8, n_heads=2)(torch.ones(4, 3, 20), torch.ones(4, 2, 8)).shape
    torch.Size([1, 4, 20])
    """

    def __init__(
        self,
        n_genes: int,
        n_outputs: int,
        n_hidden: int = 64,
        n_layers: int = 3,
        n_heads: int = 4,
        dropout_rate: float = 0.1,
    ):
        super().__init__()
        n_hidden, n_layers = whole_number("n_hidden", n_hidden), whole_number("n_layers", n_layers, least=0)
        n_heads = whole_number("n_heads", n_heads)
        if n_hidden % n_heads:
            raise ValueError(f"`n_heads` must divide `n_hidden`, but {n_hidden} is no multiple of {n_heads}.")
        self.n_hidden = n_hidden
        self.genes = nn.Parameter(torch.randn(n_genes, n_hidden) / n_hidden**0.5)
        self.values = nn.Linear(N_CHANNELS, n_hidden)
        self.blocks = nn.ModuleList(AttentionBlock(n_hidden, n_heads, dropout_rate) for _ in range(n_layers))
        self.norm = nn.LayerNorm(n_hidden)
        self.decoder = nn.Linear(n_hidden, n_outputs)
        nn.init.zeros_(self.decoder.weight)
        nn.init.zeros_(self.decoder.bias)

    @property
    def bytes_per_entry(self) -> int:
        """See :attr:`Backbone.bytes_per_entry`; a token, and the layer of four times its width, before and after."""
        return 4 * 10 * self.n_hidden

    def forward(self, channels: Tensor, tokens: Tensor) -> Tensor:
        """See :meth:`Backbone.forward`."""
        h = torch.cat([tokens, self.genes + self.values(channels.transpose(1, 2))], dim=1)
        for block in self.blocks:
            h = block(h)
        outputs = self.decoder(self.norm(h[:, tokens.shape[1] :]))  # (cells, genes, outputs)
        return outputs.permute(2, 0, 1)
