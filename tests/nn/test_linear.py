"""The linear layer of the MLP is torch's, and has its product taken elsewhere."""

from __future__ import annotations

import torch

from sccountsdiff.nn import linear
from sccountsdiff.nn.linear import Linear


def test_is_the_layer_of_torch():
    layer, x = Linear(30, 20), torch.randn(8, 30, generator=torch.Generator().manual_seed(0))
    torchs = torch.nn.Linear(30, 20)
    torchs.load_state_dict(layer.state_dict())
    torch.testing.assert_close(layer(x), torchs(x))


def test_takes_the_product_that_is_fastest(monkeypatch):
    monkeypatch.setattr(linear, "linear", lambda x, weight, bias: (x, weight, bias))
    layer, x = Linear(3, 2), torch.ones(4, 3)
    assert all(given is own for given, own in zip(layer(x), (x, layer.weight, layer.bias), strict=True))
