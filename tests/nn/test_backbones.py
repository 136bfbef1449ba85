"""What both backbones promise, and what is particular to each."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from sccountsdiff.nn import MLP, Transformer
from sccountsdiff.nn.mlp import AdaptiveBlock

CHANNELS = torch.randn(5, 3, 7, generator=torch.Generator().manual_seed(0))
TOKENS = torch.randn(5, 4, 8, generator=torch.Generator().manual_seed(1))

BACKBONES = {
    "mlp": lambda n_outputs=2, **kwargs: MLP(7, n_outputs, n_hidden=8, n_layers=2, **kwargs),
    "transformer": lambda n_outputs=2, **kwargs: Transformer(7, n_outputs, n_hidden=8, n_layers=3, n_heads=2, **kwargs),
}


@pytest.fixture(params=BACKBONES.values(), ids=BACKBONES)
def make(request):
    torch.manual_seed(0)
    return request.param


def perturb(module):
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    return module


@pytest.mark.parametrize("n_outputs", [1, 2, 3])
def test_outputs_start_from_zero(make, n_outputs):
    found = make(n_outputs)(CHANNELS, TOKENS)
    assert found.shape == (n_outputs, 5, 7)
    assert not found.any()


def test_outputs_are_kept_apart(make):
    backbone = make()
    with torch.no_grad():
        bias = backbone.decoder.bias
        bias[: len(bias) // 2], bias[len(bias) // 2 :] = 1.0, 2.0
    first, second = backbone(CHANNELS, TOKENS)
    assert (first == 1).all() and (second == 2).all()


def test_every_input_matters(make):
    backbone = perturb(make()).eval()
    before = backbone(CHANNELS, TOKENS)
    for channel in range(3):
        channels = CHANNELS.clone()
        channels[:, channel, 4] += 1
        assert ((backbone(channels, TOKENS) - before).abs() > 1e-6).any(0).any(1).all(), "an input channel"
    for token in range(4):
        tokens = TOKENS.clone()
        tokens[:, token] += torch.randn(8, generator=torch.Generator().manual_seed(2))
        assert ((backbone(CHANNELS, tokens) - before).abs() > 1e-6).any(0).all(), "a token, for every gene"


def test_one_gene_informs_another(make):
    backbone = perturb(make()).eval()
    channels = CHANNELS.clone()
    channels[:, 0, 4] += 1
    change = (backbone(channels, TOKENS) - backbone(CHANNELS, TOKENS)).abs()
    assert (change > 1e-6).all()


def test_dropout_only_in_training(make):
    backbone = perturb(make(dropout_rate=0.5))
    assert not torch.allclose(backbone(CHANNELS, TOKENS), backbone(CHANNELS, TOKENS))
    backbone.eval()
    assert torch.equal(backbone(CHANNELS, TOKENS), backbone(CHANNELS, TOKENS))


def test_blocks_of_the_mlp_start_as_the_identity():
    block = AdaptiveBlock(8, 0.0)
    h, condition = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(3))
    assert torch.equal(block(h, condition), h)
    assert not torch.allclose(perturb(block)(h, condition), h)


@pytest.mark.parametrize(("training", "dropout"), [(True, 0.3), (False, 0.0)])
def test_transformer_attends_with_the_fused_kernel(monkeypatch, training, dropout):
    calls = []
    fused = F.scaled_dot_product_attention

    def counting(q, k, v, **kwargs):
        calls.append((q.shape, kwargs))
        return fused(q, k, v, **kwargs)

    monkeypatch.setattr(F, "scaled_dot_product_attention", counting)
    BACKBONES["transformer"](dropout_rate=0.3).train(training)(CHANNELS, TOKENS)
    # Once for each layer: 2 heads of width 4 over 4 conditioning and 7 gene tokens.
    assert calls == [((5, 2, 11, 4), {"dropout_p": dropout})] * 3


def test_genes_have_no_order_for_the_transformer():
    backbone = perturb(BACKBONES["transformer"]()).eval()
    before = backbone(CHANNELS, TOKENS)
    order = torch.tensor([4, 0, 6, 1, 5, 3, 2])
    backbone.genes.data = backbone.genes.data[order]
    torch.testing.assert_close(backbone(CHANNELS[:, :, order], TOKENS), before[:, :, order])
    assert not torch.allclose(backbone(CHANNELS, TOKENS), before), "which gene it is matters"


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


def test_sizes_may_be_numbers_of_numpy_and_there_may_be_no_blocks(make):
    n_hidden = np.int64(8)
    for backbone in (MLP(7, 2, n_hidden, n_layers=0), Transformer(7, 2, n_hidden, n_layers=0, n_heads=np.int8(2))):
        assert backbone(CHANNELS, TOKENS).shape == (2, 5, 7)


def test_there_is_at_least_one_head():
    with pytest.raises(ValueError, match="`n_heads` must be a whole number of at least 1, not 0"):
        Transformer(7, 1, n_heads=0)


def test_heads_must_divide_the_width():
    with pytest.raises(ValueError, match="`n_heads` must divide `n_hidden`, but 10 is no multiple of 4"):
        Transformer(7, 1, n_hidden=10, n_heads=4)
