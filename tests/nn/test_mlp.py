"""The residual MLP over all genes at once."""

from __future__ import annotations

import numpy as np
import torch

from sccountsdiff.nn import MLP, mlp
from sccountsdiff.nn.mlp import AdaptiveBlock


def test_blocks_start_as_the_identity(perturb):
    block = AdaptiveBlock(8, 0.0)
    h, condition = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(3))
    assert torch.equal(block(h, condition), h)
    assert not torch.allclose(perturb(block)(h, condition), h)


def test_the_order_of_tokens_does_not_matter(channels, tokens, perturb):
    torch.manual_seed(0)
    backbone = perturb(MLP(7, 2, n_hidden=8)).eval()
    torch.testing.assert_close(backbone(channels, tokens.flip(1)), backbone(channels, tokens))


def test_there_may_be_no_blocks_and_sizes_may_be_numbers_of_numpy(channels, tokens):
    assert MLP(7, 2, np.int64(8), n_layers=0)(channels, tokens).shape == (2, 5, 7)


def test_a_channel_of_zeros_is_left_out_of_the_product_if_it_is_seen():
    network = MLP(n_genes=20, n_outputs=2, n_hidden=8, n_layers=1).eval()
    torch.nn.init.normal_(network.decoder.mean.weight)
    channels, tokens = torch.rand(5, 3, 20), torch.randn(5, 2, 8)
    channels[:, 0] = 0
    expected = network(channels, tokens)
    with torch.no_grad():
        torch.testing.assert_close(network(channels, tokens), expected.detach())
        network.encoder.weight[:, :20] = torch.nan
        assert network(channels, tokens).isfinite().all()
        channels[0, 0, 0] = 1
        assert network(channels, tokens).isnan().any()


def test_a_channel_that_is_the_same_in_all_cells_is_multiplied_once_if_it_is_seen(monkeypatch):
    network = MLP(n_genes=20, n_outputs=2, n_hidden=8, n_layers=1).eval()
    torch.nn.init.normal_(network.decoder.mean.weight)
    channels, tokens = torch.rand(5, 3, 20), torch.randn(5, 2, 8)
    channels[:, 2] = (torch.arange(20) < 10).float()
    with torch.no_grad():
        found = network(channels, tokens)
        monkeypatch.setattr(mlp, "host_sees", lambda values: False)
        torch.testing.assert_close(found, network(channels, tokens))


def test_dropout_does_not_depend_on_whether_gradients_are_recorded():
    network = MLP(n_genes=20, n_outputs=2, n_hidden=8, n_layers=1, dropout_rate=0.5).train()
    torch.nn.init.normal_(network.decoder.mean.weight)
    channels, tokens = torch.rand(5, 3, 20), torch.randn(5, 2, 8)
    results = []
    for recorded in (True, False):
        torch.manual_seed(0)
        with torch.set_grad_enabled(recorded):
            results.append(network(channels, tokens).detach())
    torch.testing.assert_close(*results)


def test_what_is_spread_around_means_costs_a_fraction_of_the_means():
    one, four = (sum(p.numel() for p in MLP(n_genes=1000, n_outputs=n).parameters()) for n in (1, 4))
    means = 1000 * (MLP(n_genes=2, n_outputs=1).n_hidden + 1)
    assert four - one < means


def test_outputs_beside_the_first_are_made_of_a_few_numbers(perturb):
    torch.manual_seed(0)
    network = perturb(MLP(n_genes=300, n_outputs=2, n_hidden=128)).eval()
    first, second = network(torch.rand(200, 3, 300), torch.randn(200, 2, 128))
    ranks = [int(torch.linalg.matrix_rank(outputs - outputs.mean(0), rtol=1e-4)) for outputs in (first, second)]
    assert ranks[0] > mlp.SHAPE_UNITS >= ranks[1]


def test_outputs_that_are_written_side_by_side_are_those_of_the_layers_and_so_are_their_gradients(perturb, monkeypatch):
    torch.manual_seed(0)
    decoder = perturb(mlp.Decoder(n_hidden=8, n_genes=30, n_outputs=4)).double()
    h, wanted = torch.randn(5, 8, dtype=torch.double, requires_grad=True), torch.randn(4, 5, 30, dtype=torch.double)
    results = []
    for is_seen in (True, False):
        monkeypatch.setattr(mlp, "host_sees", lambda values, is_seen=is_seen: is_seen)
        outputs = decoder(h)
        results.append([outputs, *torch.autograd.grad((outputs * wanted).sum(), [h, *decoder.parameters()])])
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected)


def test_the_status_is_told_by_a_few_numbers(perturb):
    torch.manual_seed(0)
    encoder = perturb(MLP(n_genes=300, n_outputs=1, n_hidden=128)).eval().encoder
    channels = torch.rand(200, 3, 300)
    channels[:, :2] = 0.5  # cells differ in nothing but their status
    h = encoder(channels)
    assert int(torch.linalg.matrix_rank(h - h.mean(0), rtol=1e-4)) == mlp.STATUS_UNITS


def test_the_first_output_alone_does_not_ask_for_the_others(channels, tokens, perturb):
    network = perturb(MLP(channels.shape[2], n_outputs=4, n_hidden=tokens.shape[2])).eval()
    expected = network(channels, tokens)[:1]
    network.decoder.shape = torch.nn.Identity()  # would not do
    torch.testing.assert_close(network.first_output(channels, tokens), expected)


def test_the_first_output_of_a_subclass_is_its_own(channels, tokens, perturb):
    class Doubled(MLP):
        def forward(self, channels, tokens):
            return 2 * super().forward(channels, tokens)

    network = perturb(Doubled(channels.shape[2], n_outputs=4, n_hidden=tokens.shape[2])).eval()
    torch.testing.assert_close(network.first_output(channels, tokens), network(channels, tokens)[:1])
