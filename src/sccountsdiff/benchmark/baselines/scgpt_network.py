"""The transformer of scGPT in the layout of its released checkpoints, and a reader for those."""

from __future__ import annotations

import json
import logging
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sccountsdiff.benchmark.baselines.masking import split_heads

logger = logging.getLogger("sccountsdiff")

CLS = "<cls>"
FILES = ("best_model.pt", "vocab.json", "args.json")
SIZES = {"embsize": "n_hidden", "nheads": "n_heads", "d_hid": "n_feedforward", "nlayers": "n_layers"}
# What the pre-training must have been like for the weights to mean what this module takes them to mean.
EXPECTED = {"input_emb_style": ("continuous",), "input_style": ("binned",), "training_tasks": ("gen", "both")}


class SCGPTTransformer(nn.Module):
    """Transformer over pairs of a gene and its value, of which the hidden values are predicted.

    A hidden gene has the vector of a flag in place of that of a value. Genes with a value attend to each other, a
    hidden gene to those and to itself, so that it does not matter which other genes are asked for.

    Parameters
    ----------
    n_genes
        Size of the vocabulary, special tokens included.
    n_hidden, n_heads, n_feedforward, n_layers, dropout
        Size of the network; by default that of the released one.
    value_style
        How a value enters: ``"continuous"`` adds a vector for it to that of the gene, as in the released weights;
        ``"scaling"`` multiplies the vector of the gene by it.

    Examples
    --------
    >>> import torch
    >>> network = SCGPTTransformer(5, n_hidden=8, n_heads=2, n_feedforward=8, n_layers=1)
    >>> genes, observed = torch.tensor([[0, 3, 1]]), torch.tensor([[True, True, False]])
    >>> network(genes, torch.tensor([[1.0, 2.0, 0.0]]), observed).shape
    torch.Size([1, 3])
    """

    def __init__(
        self,
        n_genes: int,
        n_hidden: int = 512,
        n_heads: int = 8,
        n_feedforward: int = 512,
        n_layers: int = 12,
        dropout: float = 0.2,
        value_style: Literal["continuous", "scaling"] = "continuous",
    ):
        super().__init__()
        self.value_style = value_style
        # Names and order are those of the checkpoints.
        self.encoder = _named(embedding=nn.Embedding(n_genes, n_hidden), enc_norm=nn.LayerNorm(n_hidden))
        self.value_encoder = _named(
            linear1=nn.Linear(1, n_hidden),
            activation=nn.ReLU(),
            linear2=nn.Linear(n_hidden, n_hidden),
            norm=nn.LayerNorm(n_hidden),
            dropout=nn.Dropout(dropout),
        )
        self.flag_encoder = nn.Embedding(2, n_hidden)
        layer = lambda: _PostNormLayer(n_hidden, n_heads, n_feedforward, dropout, batch_first=True)
        self.transformer_encoder = nn.ModuleDict({"layers": nn.ModuleList(layer() for _ in range(n_layers))})
        dense = lambda: (nn.Linear(n_hidden, n_hidden), nn.LeakyReLU())
        self.decoder = _named(fc=nn.Sequential(*dense(), *dense(), nn.Linear(n_hidden, 1)))
        nn.init.uniform_(self.encoder.embedding.weight, -0.1, 0.1)

    def forward(self, genes: Tensor, values: Tensor, observed: Tensor, label: Tensor | None = None) -> Tensor:
        """Predicted values (cells, tokens); of ``values`` only those are used that are ``observed``.

        A vector for the ``label`` of each cell, (cells, n_hidden), is added to what the decoder reads.
        """
        h = self.encoder(genes)
        values = values[..., None]
        shown = h * values if self.value_style == "scaling" else h + self.value_encoder(values)
        h = torch.where(observed[..., None], shown, h + self.flag_encoder.weight[1])
        itself = torch.eye(genes.shape[1], dtype=torch.bool, device=genes.device)
        attend = (observed[:, None, :] | itself)[:, None]
        for layer in self.transformer_encoder["layers"]:
            h = layer(h, attend, observed)
        return self.decoder(h if label is None else h + label[:, None]).squeeze(-1)


def _named(**layers: nn.Module) -> nn.Sequential:
    """One layer after the other, by these names."""
    return nn.Sequential(OrderedDict(layers))


class _PostNormLayer(nn.TransformerEncoderLayer):
    """Post-norm layer; the mixture that a hidden token attends to is not projected, as in the original."""

    def forward(self, h: Tensor, attend: Tensor, observed: Tensor) -> Tensor:
        attention = self.self_attn
        q, k, v = split_heads(F.linear(h, attention.in_proj_weight, attention.in_proj_bias), attention.num_heads)
        # No dropout of attention weights: with it the CPU has only the slow kernel.
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=attend).transpose(1, 2).flatten(2)
        mixed = torch.where(observed[..., None], attention.out_proj(mixed), mixed)
        h = self.norm1(h + self.dropout1(mixed))
        return self.norm2(h + self.dropout2(self.linear2(self.dropout(F.relu(self.linear1(h))))))


@dataclass(frozen=True)
class Checkpoint:
    """A released checkpoint: a folder with ``best_model.pt``, ``vocab.json`` and ``args.json``.

    Attributes
    ----------
    settings
        What ``args.json`` says.
    vocabulary
        Row of each gene in the table of gene vectors.
    weights
        Weights by name, those of fused attention under the names of standard attention.
    folder
        Where it was read from.
    """

    settings: dict[str, Any]
    vocabulary: dict[str, int]
    weights: dict[str, Tensor]
    folder: Path

    @classmethod
    def read(cls, folder: str | Path) -> Checkpoint:
        """Read and check a folder."""
        folder = Path(folder)
        if missing := [name for name in FILES if not (folder / name).is_file()]:
            raise FileNotFoundError(f"{folder} is not a folder with a checkpoint of scGPT: {missing} not found.")
        settings = json.loads((folder / "args.json").read_text())
        if missing := [key for key in (*SIZES, "n_bins", "pad_value") if key not in settings]:
            raise KeyError(f"{folder / 'args.json'} lacks {missing}.")
        for key, supported in EXPECTED.items():
            if settings.get(key, supported[0]) not in supported:
                raise ValueError(
                    f"{folder / 'args.json'} says {key}={settings[key]!r}; only {list(supported)} can be read."
                )
        vocabulary = json.loads((folder / "vocab.json").read_text())
        weights = torch.load(folder / "best_model.pt", map_location="cpu", weights_only=True)
        return cls(settings, vocabulary, {_standard_name(name): weights[name] for name in weights}, folder)

    def unknown(self, genes: Sequence[str]) -> list[str]:
        """Those of the genes that are not in the vocabulary."""
        return [gene for gene in genes if gene not in self.vocabulary]

    def transformer(self, genes: Sequence[str]) -> SCGPTTransformer:
        """The network with its weights; its vocabulary is ``<cls>`` and then ``genes``, unknown ones as ``<cls>``."""
        if CLS not in self.vocabulary:
            raise KeyError(f"{self.folder / 'vocab.json'} has no {CLS} token.")
        sizes = {ours: self.settings[theirs] for theirs, ours in SIZES.items()}
        network = SCGPTTransformer(1 + len(genes), **sizes, dropout=self.settings.get("dropout", 0.0))
        if missing := sorted(network.state_dict().keys() - self.weights.keys()):
            raise KeyError(
                f"{self.folder / 'best_model.pt'} lacks {len(missing)} weights of {sizes}: {missing[:5]}"
                f"{' ...' if len(missing) > 5 else ''}."
            )
        if unused := sorted(self.weights.keys() - network.state_dict().keys()):
            logger.debug("Weights of scGPT that imputation does not need: %s.", unused)
        rows = torch.tensor([self.vocabulary.get(gene, self.vocabulary[CLS]) for gene in (CLS, *genes)])
        table = self.weights["encoder.embedding.weight"]
        if rows.max() >= len(table):
            raise ValueError(
                f"{self.folder / 'vocab.json'} numbers genes up to {rows.max()}, but best_model.pt has {len(table)}."
            )
        weights = {name: self.weights[name] for name in network.state_dict()}
        network.load_state_dict(weights | {"encoder.embedding.weight": table[rows]})
        return network


def _standard_name(name: str) -> str:
    """The name of a weight without that of a wrapper, and in standard instead of fused attention."""
    return name.removeprefix("module.").replace("self_attn.Wqkv.", "self_attn.in_proj_")
