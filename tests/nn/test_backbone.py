"""What every backbone promises, and how users bring their own, by class or by name."""

from __future__ import annotations

import pytest
import torch

from sccountsdiff.diffusion import Cosine
from sccountsdiff.nn import MLP, Backbone, CountsDenoiser, Transformer, get_backbone, register_backbone

BACKBONES = {
    "mlp": lambda n_outputs=2, **kwargs: MLP(7, n_outputs, n_hidden=8, n_layers=2, **kwargs),
    "transformer": lambda n_outputs=2, **kwargs: Transformer(7, n_outputs, n_hidden=8, n_layers=3, n_heads=2, **kwargs),
}


@pytest.fixture(params=BACKBONES.values(), ids=BACKBONES)
def make(request):
    torch.manual_seed(0)
    return request.param


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


@pytest.mark.parametrize("n_outputs", [1, 2, 3])
def test_outputs_start_from_zero(make, n_outputs, channels, tokens):
    found = make(n_outputs)(channels, tokens)
    assert found.shape == (n_outputs, 5, 7)
    assert not found.any()


def test_outputs_are_kept_apart(make, channels, tokens):
    backbone = make()
    biases = [value for name, value in backbone.decoder.named_parameters() if name.endswith("bias")]
    bias = torch.nn.utils.parameters_to_vector(biases)
    n = bias.numel() // 2 if len(biases) == 1 else biases[0].numel()
    with torch.no_grad():
        bias[:n], bias[n:] = 1.0, 2.0
        torch.nn.utils.vector_to_parameters(bias, biases)
    first, second = backbone(channels, tokens)
    assert (first == 1).all() and (second == 2).all()


def test_the_first_output_alone_is_that_of_all(make, channels, tokens, perturb):
    """Up to the rounding of products of another width."""
    network = perturb(make(n_outputs=4)).eval()
    torch.testing.assert_close(network.first_output(channels, tokens), network(channels, tokens)[:1])


def test_every_input_matters(make, channels, tokens, perturb):
    backbone = perturb(make()).eval()
    before = backbone(channels, tokens)
    for channel in range(3):
        others = channels.clone()
        others[:, channel, 4] += 1
        assert ((backbone(others, tokens) - before).abs() > 1e-6).any(0).any(1).all(), "an input channel"
    for token in range(4):
        others = tokens.clone()
        others[:, token] += torch.randn(8, generator=torch.Generator().manual_seed(2))
        assert ((backbone(channels, others) - before).abs() > 1e-6).any(0).all(), "a token, for every gene"


def test_one_gene_informs_another(make, channels, tokens, perturb):
    backbone = perturb(make()).eval()
    others = channels.clone()
    others[:, 0, 4] += 1
    change = (backbone(others, tokens) - backbone(channels, tokens)).abs()
    assert (change > 1e-6).all()


def test_dropout_only_in_training(make, channels, tokens, perturb):
    backbone = perturb(make(dropout_rate=0.5))
    assert not torch.allclose(backbone(channels, tokens), backbone(channels, tokens))
    backbone.eval()
    assert torch.equal(backbone(channels, tokens), backbone(channels, tokens))


@pytest.mark.parametrize("backbone", [MLP, Transformer])
@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"n_hidden": 0}, "`n_hidden` must be a whole number of at least 1, not 0"),
        ({"n_hidden": 64.0}, "`n_hidden` must be a whole number of at least 1, not 64.0"),
        ({"n_layers": -1}, "`n_layers` must be a whole number of at least 0, not -1"),
        ({"n_layers": 1.5}, "`n_layers` must be a whole number of at least 0, not 1.5"),
    ],
)
def test_sizes_are_whole_numbers(backbone, sizes, message):
    with pytest.raises(ValueError, match=message):
        backbone(7, 1, **sizes)
