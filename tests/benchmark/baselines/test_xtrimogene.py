"""xTrimoGene: encodes expressed genes only, embeds values smoothly, decodes all genes."""

import numpy as np
import pandas as pd
import pytest
import torch
from anndata import AnnData
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from sccountsdiff.benchmark.baselines.base import Cells
from sccountsdiff.benchmark.baselines.depth import PSEUDO_COUNT
from sccountsdiff.benchmark.baselines.torch_training import Batch
from sccountsdiff.benchmark.baselines.xtrimogene import AutoDiscretization, XTrimoGene, _linear_attention

SMALL = {"n_hidden": 8, "n_decoder_hidden": 8, "n_layers": 1, "n_bins": 10, "max_epochs": 1}


@pytest.fixture(scope="module")
def counts():
    return np.random.default_rng(0).poisson(np.random.default_rng(1).gamma(0.5, 4, (30, 12))).astype(np.float32)


def network_of(counts, observed=None, **settings):
    torch.manual_seed(0)
    observed = np.ones(counts.shape, dtype=bool) if observed is None else observed
    cells = Cells(counts.astype(np.float32), observed, pd.DataFrame(index=range(len(counts))))
    return XTrimoGene(**SMALL | settings)._network(cells).eval()


def test_learns(low_rank):
    method = XTrimoGene(n_hidden=32, n_layers=1, n_bins=32, batch_size=32, max_steps=180, n_warmup_steps=20)
    assert low_rank.rmse(method) < 0.9 * low_rank.rmse_of_gene_mean


def test_cost_falls_with_sparsity():
    """The encoder pays for expressed genes only, the decoder for all, in proportion to their number."""

    def flops(n_genes, n_expressed):
        counts = torch.zeros(4, n_genes)
        counts[:, :n_expressed] = 3.0
        network = network_of(counts.numpy(), n_hidden=16, n_layers=2)
        observed = torch.ones(4, n_genes, dtype=torch.bool)
        with FlopCounterMode(display=False) as counter:
            network(counts, observed)
        of = counter.get_flop_counts()
        return tuple(sum(of[f"HiddenExpression.{part}"].values()) for part in ("encoder", "decoder"))

    dense, sparse, wider = flops(200, 200), flops(200, 20), flops(400, 20)
    assert 0 < sparse[0] <= dense[0] / 10, "hidden or silent genes are encoded"
    assert wider[0] == sparse[0], "silent genes cost the encoder something"
    assert wider[1] < 2.01 * sparse[1], "the decoder is more than linear in the number of genes"


def test_zeros_and_hidden_genes_are_not_encoded(counts):
    network, x = network_of(counts), torch.as_tensor(counts)
    observed = torch.rand(x.shape, generator=torch.Generator().manual_seed(0)) < 0.5
    seen = {}
    network.encoder.register_forward_pre_hook(lambda _, inputs: seen.update(zip("viw", inputs, strict=True)))
    network(x, observed)
    expected = (observed & (x > 0)).sum(dim=1)
    assert seen["w"].sum(dim=1).equal(expected)
    assert seen["v"].shape[1] == expected.max()
    assert (seen["v"][seen["w"]] > 0).all()


def test_hidden_values_do_not_leak_and_observed_ones_matter(counts):
    network, x = network_of(counts), torch.as_tensor(counts)
    observed = torch.rand(x.shape, generator=torch.Generator().manual_seed(0)) < 0.5
    answer = network(x, observed)
    torch.testing.assert_close(network(torch.where(observed, x, 40.0), observed), answer)
    # A observed zero is not the same as a hidden entry, and a count is not the same as another.
    cell = int(((x == 0) & observed).any(dim=1).nonzero()[0])
    gene = int(((x[cell] == 0) & observed[cell]).nonzero()[0])
    less = observed.clone()
    less[cell, gene] = False
    assert (network(x, less) - answer)[cell].abs().max() > 1e-4
    more = x.clone()
    more[cell, gene] = 9.0
    assert (network(more, observed) - answer)[cell].abs().min() > 0


def test_padding_changes_nothing(counts):
    """Cells alone and together with a cell that has many more expressed genes."""
    network, x = network_of(counts), torch.as_tensor(counts)
    x[0] = 5.0
    observed = torch.ones(x.shape, dtype=torch.bool)
    together = network(x, observed)
    alone = torch.cat([network(x[i : i + 1], observed[i : i + 1]) for i in range(5)])
    torch.testing.assert_close(alone, together[:5], rtol=1e-4, atol=1e-5)


def test_values_are_convex_combinations_of_bins_and_close_if_close():
    torch.manual_seed(0)
    embed = AutoDiscretization(n_bins=20, n_hidden=6)
    values = torch.linspace(0, 5, 2001)
    weights = embed.weights(values)
    assert (weights >= 0).all()
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(2001))
    vectors = embed(values)
    torch.testing.assert_close(vectors, weights @ embed.bins)
    assert (vectors <= embed.bins.max(dim=0).values).all() and (vectors >= embed.bins.min(dim=0).values).all()
    step = (vectors[1:] - vectors[:-1]).norm(dim=-1)
    far = (vectors[-1] - vectors[0]).norm()
    assert far > 0.5, "all values look alike"
    assert step.max() < 0.05 * far, "values that are close have vectors that are not"


def test_linear_attention_is_attention_with_product_weights():
    q, k, v = (torch.randn(2, 3, 7, 4, generator=torch.Generator().manual_seed(s)) for s in range(3))
    valid = torch.ones(2, 7, dtype=torch.bool)
    valid[1, 5:] = False
    features = [torch.nn.functional.elu(x) + 1 for x in (q, k)]
    weights = (features[0] @ features[1].transpose(-1, -2)) * valid[:, None, None, :]
    expected = weights / weights.sum(dim=-1, keepdim=True) @ v
    torch.testing.assert_close(_linear_attention(q, k, v, valid), expected, rtol=1e-4, atol=1e-5)


def test_attention_has_a_fast_kernel_and_empty_cells_work(counts):
    x = torch.as_tensor(counts.copy())
    x[1] = 0
    network = network_of(counts, dropout=0.1).train()
    batch = Batch(x, torch.ones(x.shape, dtype=torch.bool), None, None, None)
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]):
        network.loss(batch).backward()
    assert all(torch.isfinite(p.grad).all() for p in network.parameters() if p.grad is not None)
    assert torch.isfinite(network.eval()(torch.zeros(3, 12), torch.zeros(3, 12, dtype=torch.bool))).all()


def test_loss_is_the_error_at_hidden_entries_zeros_and_others(counts):
    """Not observed entries count for nothing; each hidden one as much as any other."""
    observed = np.random.default_rng(2).random(counts.shape) < 0.7
    network = network_of(np.where(observed, counts, 0), observed)
    network.forward = lambda counts, observed: torch.zeros_like(counts)  # errors are the squared values then
    network.values.forward = lambda counts, observed: counts
    losses = []
    for seed in range(100):
        torch.manual_seed(seed)
        x = torch.as_tensor(np.where(observed, counts, np.float32(1e3)))
        losses.append(float(network.loss(Batch(x, torch.as_tensor(observed), None, None, None))))
    expected = (counts[observed] ** 2).mean()
    assert np.mean(losses) == pytest.approx(expected, abs=4.5 * np.std(losses) / np.sqrt(100))
    cells = AnnData(counts)
    method = XTrimoGene(**SMALL).fit(cells, observed=observed)
    assert np.isfinite(method.impute(cells, ~observed, observed=observed)).all()


def test_answers_follow_the_observed_depth(low_rank):
    method = XTrimoGene(**SMALL | {"max_epochs": 3, "lr": 1e-2, "n_warmup_steps": 1}).fit(low_rank.train)
    deeper = low_rank.test.copy()
    deeper.X = deeper.X * 4
    shallow, deep = (method.impute(cells, low_rank.sites)[low_rank.sites] for cells in (low_rank.test, deeper))
    assert 3 < deep.sum() / shallow.sum() < 5


def test_values_are_embedded_as_in_the_authors_code():
    """A linear layer, leaky rectifier, another linear layer added to its input, softmax, and the mean of bin vectors."""
    embed = AutoDiscretization(n_bins=7, n_hidden=5)
    w1, b1, w2, b2 = (p.detach().numpy() for p in (*embed.score.parameters(), *embed.mix.parameters()))
    for value in (0.0, 0.7, 5.0):
        x = value * w1[:, 0] + b1
        x = np.where(x > 0, x, 0.1 * x)
        x = 1.0 * x + w2 @ x + b2
        weights = np.exp(x - x.max()) / np.exp(x - x.max()).sum()
        found = embed(torch.tensor([value])).detach().numpy()[0]
        np.testing.assert_allclose(found, weights @ embed.bins.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_a_training_step_has_the_loss_of_the_authors_code(counts, monkeypatch):
    """Squared error of log(1 + count / shown total * constant) at targets; the constant is that of the mean cell, not 10,000."""
    network = network_of(counts)
    hidden = np.random.default_rng(3).random(counts.shape) < 0.3
    answer = np.random.default_rng(4).random(counts.shape).astype(np.float32)
    monkeypatch.setattr(network, "hide", lambda batch: torch.as_tensor(hidden))
    monkeypatch.setattr(network, "forward", lambda counts, observed: torch.as_tensor(answer))
    everything = torch.ones(counts.shape, dtype=torch.bool)
    found = float(network.loss(Batch(torch.as_tensor(counts), everything, None, None, None)))
    shown, constant = (
        np.where(hidden, 0, x).sum(axis=1, keepdims=True) + PSEUDO_COUNT for x in (counts, counts.mean(0))
    )
    target = np.log1p(counts * constant / shown)
    assert found == pytest.approx(((answer - target)[hidden] ** 2).mean(), rel=1e-5)


def test_zeros_and_other_counts_are_hidden_at_rates_of_their_own():
    counts = (np.random.default_rng(0).random((200, 60)) < 0.4).astype(np.float32)
    network = network_of(counts, hidden_shares=(0.3,), hidden_zeros=0.03)
    torch.manual_seed(0)
    hidden = network.hide(Batch(torch.as_tensor(counts), torch.ones(counts.shape, dtype=torch.bool), None, None, None))
    for where, rate in ((counts > 0, 0.3), (counts == 0, 0.03)):
        found, n = hidden.numpy()[where].mean(), where.sum()
        assert found == pytest.approx(rate, abs=5 * np.sqrt(rate * (1 - rate) / n))
    with pytest.raises(ValueError, match="hidden_zeros"):
        XTrimoGene(hidden_zeros=0.0)
