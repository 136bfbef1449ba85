"""Backbones by name, so that users can bring their own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from sccountsdiff.registry import Registry

BACKBONES: Registry[type[Backbone]] = Registry("backbone")

N_CHANNELS = 3
"""Input channels of each gene: its noised count, its observed count (both scaled by depth, log1p), its status."""


class Backbone(nn.Module, ABC):
    """The trainable part of the denoiser: from what is seen of each gene to a few numbers for each gene.

    A subclass takes ``n_genes`` and ``n_outputs`` and any settings of its own, sets ``n_hidden``, the width of the
    conditioning tokens it wants, and starts from outputs that are all 0.

    Examples
    --------
    A linear model, and how to make it available by name:

    >>> import torch
    >>> from sccountsdiff.nn import Backbone, register_backbone
    >>> @register_backbone("linear")
    ... class Linear(Backbone):
    ...     def __init__(self, n_genes, n_outputs):
    ...         super().__init__()
    ...         self.n_hidden = 16
    ...         self.weight = torch.nn.Parameter(torch.zeros(n_outputs, n_genes, 16))
    ...
    ...     def forward(self, channels, tokens):
    ...         return torch.einsum("ogh,ch->ocg", self.weight, tokens.sum(1))
    >>> Linear(n_genes=5, n_outputs=2)(torch.ones(4, 3, 5), torch.ones(4, 2, 16)).shape
    torch.Size([2, 4, 5])
    """

    n_hidden: int

    @property
    def bytes_per_entry(self) -> int:
        """Memory that an entry of a cell takes in a pass without gradients, or more; how many draws are made at once goes by it."""
        return 4096

    @abstractmethod
    def forward(self, channels: Tensor, tokens: Tensor) -> Tensor:
        """Map ``channels`` (cells, 3, genes) and conditioning ``tokens`` (cells, tokens, n_hidden) to outputs.

        Returns
        -------
        Tensor of shape (n_outputs, cells, genes).
        """

    def first_output(self, channels: Tensor, tokens: Tensor) -> Tensor:
        """As :meth:`forward`, for those who ask for the first output only, (1, cells, genes); there may be a faster way to it."""
        return self(channels, tokens)[:1]


def register_backbone(name: str):
    """Class decorator that makes a :class:`Backbone` available as ``backbone=name``; see there for an example.

    Parameters
    ----------
    name
        Name for ``backbone=``.

    Returns
    -------
    A decorator that returns the class as it is.

    Examples
    --------
    >>> from sccountsdiff.nn import MLP, get_backbone, register_backbone
    >>> @register_backbone("wide")
    ... class Wide(MLP):
    ...     def __init__(self, n_genes, n_outputs, n_hidden=1024, **kwargs):
    ...         super().__init__(n_genes, n_outputs, n_hidden=n_hidden, **kwargs)
    >>> get_backbone("wide") is Wide
    True
    """
    return BACKBONES.register(name)


def get_backbone(backbone: str | type[Backbone]) -> type[Backbone]:
    """The backbone class of that name, or the class itself.

    Parameters
    ----------
    backbone
        A registered name, or a subclass of :class:`Backbone`.

    Returns
    -------
    The class.

    Examples
    --------
    >>> from sccountsdiff.nn import get_backbone
    >>> get_backbone("mlp").__name__
    'MLP'
    """
    if isinstance(backbone, type) and issubclass(backbone, Backbone):
        return backbone
    if not isinstance(backbone, str):
        raise TypeError(f"`backbone` must be a name or a subclass of Backbone, not {backbone!r}.")
    return BACKBONES.get(backbone)


@contextmanager
def hidden_units(backbone: Backbone) -> Iterator[list[Tensor]]:
    """What the last layer of the backbone, ``decoder``, is given in each pass while this is open, ``(cells, n_hidden)``.

    Of a backbone with a token for each gene, the mean over genes.

    Parameters
    ----------
    backbone
        A backbone whose last layer is called ``decoder``.

    Examples
    --------
    >>> import torch
    >>> from sccountsdiff.nn import MLP
    >>> network = MLP(n_genes=20, n_outputs=2, n_hidden=8)
    >>> with hidden_units(network) as seen:
    ...     _ = network(torch.ones(4, 3, 20), torch.ones(4, 2, 8))
    >>> seen[0].shape
    torch.Size([4, 8])
    """
    decoder = getattr(backbone, "decoder", None)
    if not isinstance(decoder, nn.Module):
        raise TypeError(
            f"The backbone {type(backbone).__name__} has no last layer called `decoder` to read cells from."
        )
    seen: list[Tensor] = []
    hook = decoder.register_forward_pre_hook(
        lambda layer, given: seen.append(given[0] if given[0].ndim == 2 else given[0].mean(1))
    )
    try:
        yield seen
    finally:
        hook.remove()
