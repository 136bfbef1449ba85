"""Networks: backbones over genes and the denoiser built around them. Torch only."""

from sccountsdiff.nn.backbone import Backbone, get_backbone, register_backbone
from sccountsdiff.nn.denoiser import CellContext, CountsDenoiser
from sccountsdiff.nn.dropout import Dropout
from sccountsdiff.nn.embeddings import Conditioning, TimeEmbedding
from sccountsdiff.nn.factors import FactorEquations, Factors, factor_posterior, fit_factors
from sccountsdiff.nn.gamma_mixture import GammaMixture
from sccountsdiff.nn.group_depth import GroupDepth
from sccountsdiff.nn.heads import HEADS, Head, HeadInput, NegativeBinomial, Poisson, Softplus, get_head, register_head
from sccountsdiff.nn.mlp import MLP
from sccountsdiff.nn.nb_mixture import NegativeBinomialMixture
from sccountsdiff.nn.transformer import Transformer
from sccountsdiff.nn.truncated import TruncatedGammaMixture, TruncatedNegativeBinomial

__all__ = [
    "HEADS",
    "MLP",
    "Backbone",
    "CellContext",
    "Conditioning",
    "CountsDenoiser",
    "Dropout",
    "FactorEquations",
    "Factors",
    "GammaMixture",
    "GroupDepth",
    "Head",
    "HeadInput",
    "NegativeBinomial",
    "NegativeBinomialMixture",
    "Poisson",
    "Softplus",
    "TimeEmbedding",
    "Transformer",
    "factor_posterior",
    "fit_factors",
    "TruncatedGammaMixture",
    "TruncatedNegativeBinomial",
    "get_backbone",
    "get_head",
    "register_backbone",
    "register_head",
]
