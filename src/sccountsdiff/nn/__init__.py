"""Networks: backbones over genes and the denoiser built around them. Torch only."""

from sccountsdiff.nn.backbone import Backbone, get_backbone, register_backbone
from sccountsdiff.nn.denoiser import HEADS, CountsDenoiser
from sccountsdiff.nn.embeddings import Conditioning, TimeEmbedding
from sccountsdiff.nn.mlp import MLP
from sccountsdiff.nn.transformer import Transformer

__all__ = [
    "HEADS",
    "MLP",
    "Backbone",
    "Conditioning",
    "CountsDenoiser",
    "TimeEmbedding",
    "Transformer",
    "get_backbone",
    "register_backbone",
]
