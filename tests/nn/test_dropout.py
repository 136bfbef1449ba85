"""Dropout with masks of its own."""

from __future__ import annotations

import pytest
import torch

from sccountsdiff.diffusion.products import linear
from sccountsdiff.nn import MLP, Dropout

N = 200_000


def test_expectations_stay_and_the_rate_is_dropped():
    torch.manual_seed(0)
    dropped = Dropout(0.3)(torch.ones(N))
    assert abs(float((dropped == 0).float().mean()) - 0.3) < 4 * (0.3 * 0.7 / N) ** 0.5
    assert abs(float(dropped.mean()) - 1) < 4 * (0.3 / 0.7 / N) ** 0.5 + 1e-4
    torch.testing.assert_close(dropped.max(), torch.tensor(1 / 0.7))


def test_gradients_are_dropped_alike():
    torch.manual_seed(0)
    x = torch.ones(50, requires_grad=True)
    dropped = Dropout(0.5)(x)
    dropped.sum().backward()
    assert torch.equal(x.grad, dropped.detach())


@pytest.mark.parametrize("layer", [Dropout(0.5).eval(), Dropout(0.0)])
def test_nothing_is_dropped_in_evaluation_or_at_rate_0(layer):
    x = torch.randn(20)
    assert layer(x) is x


@pytest.mark.parametrize("rate", [-0.1, 1.0, float("nan")])
def test_other_rates_are_refused(rate):
    with pytest.raises(ValueError, match="`dropout_rate` must be at least 0 and below 1"):
        MLP(3, 1, dropout_rate=rate)


def test_counts_of_the_mlp_are_dropped_one_by_one_and_the_status_is_not():
    """Both counts of a gene, of which one is 0, share a mask."""
    torch.manual_seed(0)
    backbone = MLP(N // 100, 1, n_hidden=4, n_layers=0, dropout_rate=0.25).train()
    shown = []

    def watch(x, *args):
        shown.append(x)
        return linear(x, *args)

    with pytest.MonkeyPatch.context() as patch:
        for layers in ("mlp", "linear"):
            patch.setattr(f"sccountsdiff.nn.{layers}.linear", watch)
        backbone(torch.ones(100, 3, N // 100), torch.zeros(100, 1, 4))
    (counts,) = [x for x in shown if x.shape[1] == 2 * N // 100]
    noised, observed = counts.unflatten(1, (2, -1)).unbind(1)
    assert torch.equal(noised, observed)
    assert abs(float(noised.mean()) - 0.75) < 4 * (0.75 * 0.25 / N) ** 0.5 + 2**-16
    (status,) = [x for x in shown if x.shape[1] == N // 100]
    assert (status == 1).all()
