"""Users bring their own backbone, by class or by name."""

import pytest
import torch

from sccountsdiff.diffusion import Cosine
from sccountsdiff.nn import MLP, Backbone, CountsDenoiser, Transformer, get_backbone, register_backbone


class Bias(Backbone):
    """One number for each gene."""

    def __init__(self, n_genes, n_outputs, start=0.0):
        super().__init__()
        self.n_hidden = 4
        self.bias = torch.nn.Parameter(torch.full((n_outputs, 1, n_genes), start))

    def forward(self, channels, tokens):
        return self.bias.expand(-1, len(channels), -1)


def test_names():
    assert get_backbone("mlp") is MLP
    assert get_backbone("transformer") is Transformer


def test_own_backbone():
    assert get_backbone(Bias) is Bias
    assert register_backbone("bias, for a test")(Bias) is Bias
    assert get_backbone("bias, for a test") is Bias


def test_own_backbone_in_the_denoiser():
    means = torch.tensor([1.0, 5.0, 0.2])
    denoiser = CountsDenoiser(get_backbone(Bias)(3, 1, start=0.5), means, Cosine(), "poisson")
    nothing = torch.zeros(2, 0, dtype=torch.long)
    found = denoiser(torch.zeros(2, 3), torch.zeros(2, 3), torch.ones(2), nothing, nothing.float(), nothing.any(1))
    torch.testing.assert_close(found.log_mean, (means.log() + 0.5).expand(2, 3))


def test_a_backbone_without_forward_cannot_be_made():
    class Empty(Backbone):
        def __init__(self, n_genes, n_outputs):
            super().__init__()
            self.n_hidden = 4

    with pytest.raises(TypeError, match="abstract class Empty .*forward"):
        Empty(3, 1)


def test_errors():
    with pytest.raises(KeyError, match="Unknown backbone 'transfomer'; did you mean 'transformer'"):
        get_backbone("transfomer")
    with pytest.raises(KeyError, match="Known: mlp, transformer"):
        get_backbone("unet")
    for wrong in (7, torch.nn.Linear, MLP(4, 1, n_hidden=4)):
        with pytest.raises(TypeError, match="`backbone` must be a name or a subclass of Backbone"):
            get_backbone(wrong)
    with pytest.raises(ValueError, match="already a backbone named 'mlp'"):
        register_backbone("mlp")(Bias)
