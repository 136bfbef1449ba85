"""Residual MLP over all genes at once: the default backbone."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sccountsdiff.checks import whole_number
from sccountsdiff.diffusion.host import host_sees, one_row_if_alike
from sccountsdiff.diffusion.prediction import numbers
from sccountsdiff.diffusion.products import linear
from sccountsdiff.nn.backbone import N_CHANNELS, Backbone, register_backbone
from sccountsdiff.nn.dropout import Dropout
from sccountsdiff.nn.linear import Linear

STATUS_UNITS = 32
"""Numbers by which the network is told which genes are observed, noised or missing."""

SHAPE_UNITS = 32
"""Numbers of which it is made how counts are spread around their means.

With a weight for each hidden unit instead, as means have, a training step takes longer and nothing is predicted better.
"""


class AdaptiveBlock(nn.Module):
    """Residual block whose layer norm is scaled, shifted and gated by the conditioning; the identity at first."""

    def __init__(self, n_hidden: int, dropout_rate: float):
        super().__init__()
        self.norm = nn.LayerNorm(n_hidden, elementwise_affine=False)
        self.modulation = Linear(n_hidden, 3 * n_hidden)
        self.mlp = nn.Sequential(
            Linear(n_hidden, 2 * n_hidden),
            nn.SiLU(),
            Dropout(dropout_rate),
            Linear(2 * n_hidden, n_hidden),
        )
        nn.init.zeros_(self.modulation.weight)
        nn.init.zeros_(self.modulation.bias)

    def forward(self, h: Tensor, condition: Tensor) -> Tensor:
        """Both (cells, n_hidden)."""
        scale, shift, gate = self.modulation(condition).chunk(3, dim=-1)
        return h + gate * self.mlp(self.norm(h) * (1 + scale) + shift)


class Encoder(nn.Linear):
    """From the channels of all genes to hidden units, with dropout of counts.

    Counts have a weight for each hidden unit. Which genes are observed, noised or missing is told by a few numbers: it matters as
    a whole, such as how much is known of each kind of gene, and not gene by gene.

    Parameters
    ----------
    n_genes
        Number of genes.
    n_hidden
        Hidden width.
    dropout_rate
        Dropout on the counts.
    """

    def __init__(self, n_genes: int, n_hidden: int, dropout_rate: float):
        super().__init__((N_CHANNELS - 1) * n_genes, n_hidden)
        n_few = min(STATUS_UNITS, n_hidden)
        self.few = Linear(n_genes, n_few, bias=False)
        self.status = Linear(n_few, n_hidden, bias=False)
        self.dropout = Dropout(dropout_rate)

    def forward(self, channels: Tensor) -> Tensor:
        """(cells, channels, genes) to (cells, n_hidden)."""
        counts, status = channels.tensor_split([N_CHANNELS - 1], dim=1)
        if self.training and self.dropout.rate > 0:
            # A gene is either noised or observed, so that one mask does for both of its counts.
            counts = counts * numbers(self.dropout.kept(status.shape, status.device), counts.dtype)
        if torch.is_grad_enabled() or not host_sees(channels):
            h = linear(counts.flatten(1), self.weight)
        else:
            (noised, observed), (of_noised, of_observed) = counts.unbind(1), self.weight.chunk(2, dim=1)
            h = _product(noised, of_noised) + _product(observed, of_observed)
        return h * self.dropout.scale + (self.bias + self.status(self.few(one_row_if_alike(status[:, 0]))))


def _product(values: Tensor, weights: Tensor) -> Tensor:
    """Values (cells, genes) of one channel times its weights (n_hidden, genes), which the host sees; nothing if there is nothing.

    As of noised counts at t = 1.
    """
    return linear(values, weights) if values.numpy().any() else weights.new_zeros(len(values), len(weights))


class Decoder(nn.Module):
    """From hidden units to several numbers for each gene, which are 0 until it is trained.

    The first, which moves the mean of the gene, has a weight for each hidden unit. All others, which say how counts are spread
    around it, are made of a few numbers: what they have to say of a cell is less than what its means have.

    Parameters
    ----------
    n_hidden
        Hidden width.
    n_genes
        Number of genes.
    n_outputs
        Numbers for each gene.
    """

    def __init__(self, n_hidden: int, n_genes: int, n_outputs: int):
        super().__init__()
        self.n_outputs = n_outputs
        self.mean = _zero(Linear(n_hidden, n_genes))
        n_few, n_more = min(SHAPE_UNITS, n_hidden), (n_outputs - 1) * n_genes
        self.shape = nn.Sequential(Linear(n_hidden, n_few), _zero(Linear(n_few, n_more))) if n_more else None

    def forward(self, h: Tensor, only_first: bool = False) -> Tensor:
        """(cells, n_hidden) to (n_outputs, cells, genes), or to the first of these."""
        if only_first or self.shape is None:
            return self.mean(h)[None]
        few, rest = self.shape
        layers = self.mean.weight, self.mean.bias, rest.weight, rest.bias
        if host_sees(h) and not torch.is_autocast_enabled(h.device.type):
            outputs = _SideBySide.apply(h, few(h), *layers)
        else:
            outputs = torch.cat([self.mean(h), self.shape(h)], dim=1)
        return outputs.unflatten(1, (self.n_outputs, -1)).movedim(1, 0)


class _SideBySide(torch.autograd.Function):
    """What two linear layers make of two inputs, side by side, without a copy of both for :func:`torch.cat` and its derivative."""

    @staticmethod
    def forward(ctx, h: Tensor, few: Tensor, *layers: Tensor) -> Tensor:
        weight, bias, weight_of_few, bias_of_few = layers
        outputs = torch.empty(len(h), len(bias) + len(bias_of_few), dtype=h.dtype, device=h.device)
        left, right = outputs.tensor_split([len(bias)], dim=1)
        left.copy_(linear(h, weight, bias))
        right.copy_(linear(few, weight_of_few, bias_of_few))
        ctx.save_for_backward(h, few, weight, weight_of_few)
        return outputs

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, ...]:
        h, few, weight, weight_of_few = ctx.saved_tensors
        left, right = gradient.tensor_split([len(weight)], dim=1)
        return (
            linear(left, weight.T),
            linear(right, weight_of_few.T),
            linear(left.T, h.T),
            left.sum(0),
            linear(right.T, few.T),
            right.sum(0),
        )


def _zero(layer: Linear) -> Linear:
    """The layer, of which nothing comes out until it is trained."""
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


@register_backbone("mlp")
class MLP(Backbone):
    """Residual MLP with adaptive layer norm.

    One matrix product takes all genes to the hidden width and one takes them back, so a cell costs some thousand
    times less than with a token for each gene.

    Parameters
    ----------
    n_genes
        Number of genes.
    n_outputs
        Numbers asked for per gene.
    n_hidden
        Hidden width.
    n_layers
        Residual blocks.
    dropout_rate
        Dropout on the counts and within the blocks.

    Examples
    --------
    >>> import torch
    >>> from sccountsdiff.nn import MLP
    >>> MLP(n_genes=20, n_outputs=2, n_hidden=8)(torch.ones(4, 3, 20), torch.ones(4, 2, 8)).shape
    torch.Size([2, 4, 20])
    """

    def __init__(self, n_genes: int, n_outputs: int, n_hidden: int = 128, n_layers: int = 2, dropout_rate: float = 0.1):
        super().__init__()
        n_hidden, n_layers = whole_number("n_hidden", n_hidden), whole_number("n_layers", n_layers, least=0)
        self.n_hidden = n_hidden
        self.n_outputs = n_outputs
        self.encoder = Encoder(n_genes, n_hidden, dropout_rate)
        self.condition = nn.Sequential(nn.SiLU(), Linear(n_hidden, n_hidden), nn.SiLU())
        self.blocks = nn.ModuleList(AdaptiveBlock(n_hidden, dropout_rate) for _ in range(n_layers))
        self.norm = nn.LayerNorm(n_hidden)
        self.decoder = Decoder(n_hidden, n_genes, n_outputs)

    @property
    def bytes_per_entry(self) -> int:
        """See :attr:`Backbone.bytes_per_entry`; channels, outputs and what is made of them; the hidden layers are of cells."""
        return 128

    def forward(self, channels: Tensor, tokens: Tensor, only_first: bool = False) -> Tensor:
        """See :meth:`Backbone.forward`."""
        condition = self.condition(tokens.sum(1))
        h = self.encoder(channels) + condition
        for block in self.blocks:
            h = block(h, condition)
        return self.decoder(self.norm(h), only_first)

    def first_output(self, channels: Tensor, tokens: Tensor) -> Tensor:
        """See :meth:`Backbone.first_output`."""
        if type(self).forward is not MLP.forward:  # a subclass may put out something else
            return super().first_output(channels, tokens)
        return self(channels, tokens, only_first=True)
