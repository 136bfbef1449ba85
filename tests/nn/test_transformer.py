"""The transformer with one token for each gene."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from sccountsdiff.nn import Transformer


def make(**kwargs):
    torch.manual_seed(0)
    return Transformer(7, 2, n_hidden=8, **({"n_layers": 3, "n_heads": 2} | kwargs))


@pytest.mark.parametrize(("training", "dropout"), [(True, 0.3), (False, 0.0)])
def test_attends_with_the_fused_kernel(monkeypatch, channels, tokens, training, dropout):
    calls = []
    fused = F.scaled_dot_product_attention

    def counting(q, k, v, **kwargs):
        calls.append((q.shape, kwargs))
        return fused(q, k, v, **kwargs)

    monkeypatch.setattr(F, "scaled_dot_product_attention", counting)
    make(dropout_rate=0.3).train(training)(channels, tokens)
    # Once for each layer: 2 heads of width 4 over 4 conditioning and 7 gene tokens.
    assert calls == [((5, 2, 11, 4), {"dropout_p": dropout})] * 3


def test_genes_have_no_order(channels, tokens, perturb):
    backbone = perturb(make()).eval()
    before = backbone(channels, tokens)
    order = torch.tensor([4, 0, 6, 1, 5, 3, 2])
    backbone.genes.data = backbone.genes.data[order]
    torch.testing.assert_close(backbone(channels[:, :, order], tokens), before[:, :, order])
    assert not torch.allclose(backbone(channels, tokens), before), "which gene it is matters"


def test_genes_have_no_order_in_the_denoiser(make_denoiser, cells, predict, gene_means):
    order = torch.tensor([3, 0, 7, 5, 1, 6, 2, 4])
    denoiser = make_denoiser("transformer", perturb=True)
    permuted = make_denoiser("transformer", perturb=True, gene_means=gene_means[order])
    permuted.backbone.genes.data = denoiser.backbone.genes.data[order]
    before, after = predict(denoiser), predict(permuted, x=cells.x[:, order], status=cells.status[:, order])
    torch.testing.assert_close(after.log_mean, before.log_mean[:, order])
    torch.testing.assert_close(after.log_dispersion, before.log_dispersion[:, order])
    assert not torch.allclose(after.log_mean, before.log_mean)


def test_there_may_be_no_blocks_and_sizes_may_be_numbers_of_numpy(channels, tokens):
    backbone = Transformer(7, 2, np.int64(8), n_layers=0, n_heads=np.int8(2))
    assert backbone(channels, tokens).shape == (2, 5, 7)


def test_there_is_at_least_one_head():
    with pytest.raises(ValueError, match="`n_heads` must be a whole number of at least 1, not 0"):
        Transformer(7, 1, n_heads=0)


def test_heads_must_divide_the_width():
    with pytest.raises(ValueError, match="`n_heads` must divide `n_hidden`, but 10 is no multiple of 4"):
        Transformer(7, 1, n_hidden=10, n_heads=4)
