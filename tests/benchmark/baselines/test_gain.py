"""GAIN: hints, the losses of both networks, the scale of the counts, what is learned."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import log_expit

from sccountsdiff.benchmark.baselines.cells import Cells
from sccountsdiff.benchmark.baselines.gain import GAIN, discriminator_loss, generator_loss
from sccountsdiff.benchmark.baselines.torch_training import Batch

SMALL = {"n_hidden": 64, "lr": 5e-3, "n_warmup_steps": 10, "batch_size": 32}


@pytest.fixture(scope="module")
def method(low_rank):
    return GAIN(max_epochs=60, **SMALL).fit(low_rank.train)


def batch_of(counts, observed):
    n = len(counts)
    empty = torch.zeros(n, 0)
    return Batch(torch.as_tensor(counts), torch.as_tensor(observed), empty.long(), empty, torch.zeros(n).bool())


@pytest.fixture
def batch(low_rank):
    return batch_of(low_rank.train.X[:40], np.random.default_rng(0).random((40, 50)) < 0.8)


def test_beats_the_mean(low_rank, method):
    answer = method.impute(low_rank.test, low_rank.sites)
    error = np.sqrt(np.mean((answer - low_rank.test.X)[low_rank.sites] ** 2))
    assert error < 0.85 * low_rank.rmse_of_gene_mean


def test_hints_are_given_at_their_rate_and_only_where_entries_are_observed(method):
    torch.manual_seed(0)
    observed = torch.rand(200, 300) < 0.4
    hint = method.network.hint(observed)
    assert set(hint.unique().tolist()) == {0.0, 1.0}
    assert (hint[~observed] == 0).all()
    n = int(observed.sum())
    assert abs(hint[observed].mean() - 0.9) < 4 * np.sqrt(0.9 * 0.1 / n)


def test_losses_of_both_networks_in_closed_form():
    rng = np.random.default_rng(0)
    logits, observed = rng.normal(0, 3, (7, 5)), rng.random((7, 5)) < 0.6
    cross_entropy = -np.mean(np.where(observed, log_expit(logits), log_expit(-logits)))
    fooled = -np.mean(np.where(observed, 0, log_expit(logits)))
    tensors = torch.as_tensor(logits), torch.as_tensor(observed)
    np.testing.assert_allclose(discriminator_loss(tensors[0].float(), tensors[1]).item(), cross_entropy, rtol=1e-5)
    np.testing.assert_allclose(generator_loss(*tensors).item(), fooled, rtol=1e-6)
    # The best discriminator of entries that look alike says the share of observed entries.
    share = torch.full((7, 5), float(observed.mean()))
    best = -(observed.mean() * np.log(observed.mean()) + (1 - observed.mean()) * np.log(1 - observed.mean()))
    np.testing.assert_allclose(discriminator_loss(torch.logit(share), tensors[1]).item(), best, rtol=1e-5)


def test_observed_entries_are_not_in_the_adversarial_loss():
    logits = torch.randn(6, 4, requires_grad=True)
    observed = torch.rand(6, 4) < 0.5
    generator_loss(logits, observed).backward()
    assert (logits.grad[observed] == 0).all() and (logits.grad[~observed] < 0).all()


def test_reconstruction_reads_observed_entries_only(method, batch, monkeypatch):
    """The generator's loss is the adversarial one plus 100 times the squared error at what it saw."""
    network = method.network.train()
    shown = {}

    def generate(values, observed, noise):
        shown.update(values=values, observed=observed)
        return torch.where(observed, values + 0.1, values + 7.0)

    monkeypatch.setattr(network, "generate", generate)
    monkeypatch.setattr(network, "discriminate", lambda filled, observed: shown.update(filled=filled) or 0 * filled)
    loss = network.loss(batch)
    adversarial = np.log(2) * (~shown["observed"]).float().mean().item()
    np.testing.assert_allclose(loss.item(), adversarial + 100 * 0.1**2, rtol=1e-4)
    assert torch.equal(shown["filled"][shown["observed"]], shown["values"][shown["observed"]]), (
        "observed entries are kept"
    )
    assert not (shown["observed"] & ~batch.observed).any(), "what is not observed is never shown"
    np.testing.assert_allclose(network.discriminator_objective(batch).item(), np.log(2), rtol=1e-5)
    network.eval()
    np.testing.assert_allclose(network.loss(batch).item(), 49.0, rtol=1e-4)


def test_counts_that_are_not_observed_have_no_influence(method, batch):
    disturbed = batch_of(torch.where(batch.observed, batch.counts, 1000.0), batch.observed)
    for _, objective in method.network.train().objectives():
        losses = []
        for cells in (batch, disturbed):
            torch.manual_seed(0)
            losses.append(objective(cells).item())
        assert losses[0] == losses[1]
    method.network.eval()


def test_a_batch_with_everything_missing_has_a_loss(method, batch):
    network = method.network.train()
    for _, objective in network.objectives():
        loss = objective(batch_of(batch.counts, torch.zeros_like(batch.observed)))
        assert torch.isfinite(loss) and loss > 0
    network.eval()


def test_scale_is_undone(method, low_rank):
    scale, counts = method.network.values, torch.as_tensor(low_rank.train.X)
    everything = torch.ones_like(counts, dtype=torch.bool)
    values = scale(counts, everything)
    np.testing.assert_allclose(scale.decode(values, counts, everything), counts, rtol=1e-3, atol=1e-4)
    assert values.min() == 0
    np.testing.assert_allclose(values.amax(dim=0), 1.0, rtol=1e-5)  # each gene has its highest value somewhere
    assert (scale.decode(torch.full_like(values, -3.0), counts, everything) == 0).all()


def test_answers_follow_the_depth(method, low_rank):
    """A cell sequenced three times as deep has three times the counts, up to what the pseudo count hides."""
    test, deeper = low_rank.test, low_rank.test.copy()
    deeper.X *= 3
    ratio = (
        method.impute(deeper, low_rank.sites)[low_rank.sites].sum()
        / method.impute(test, low_rank.sites)[low_rank.sites].sum()
    )
    assert 2.6 < ratio < 3.4


def test_training_on_cells_with_gaps(low_rank):
    rng = np.random.default_rng(0)
    observed = rng.random(low_rank.train.shape) < 0.8
    method = GAIN(max_epochs=2, **SMALL).fit(low_rank.train, observed=observed)
    expected = np.mean(low_rank.train.X, axis=0, where=observed)
    np.testing.assert_allclose(method.network.values.gene_mean, expected, rtol=1e-5)
    answer = method.impute(low_rank.test, low_rank.sites, observed=rng.random(low_rank.test.shape) < 0.8)
    assert np.isfinite(answer).all()


def test_hint_rate_is_checked(low_rank):
    with pytest.raises(ValueError, match="hint_rate must be between 0 and 1, found 2"):
        GAIN(hint_rate=2).fit(low_rank.train)


def test_a_training_step_has_the_losses_of_the_authors_code(method, batch, monkeypatch):
    """Written there with probabilities and masks of numbers: D by cross-entropy, G by log D and 100 times its error."""
    network = method.network.train()
    monkeypatch.setattr("sccountsdiff.benchmark.baselines.gain.random_part", lambda observed: observed)
    with torch.no_grad():
        losses = []
        for objective in (network.discriminator_objective, network.loss):
            torch.manual_seed(3)
            losses.append(objective(batch).item())
        torch.manual_seed(3)
        values = network.values(batch.counts, batch.observed)
        m, z = batch.observed.float(), 0.01 * torch.rand_like(values)
        g = network.generator(torch.cat([m * values + (1 - m) * z, m], dim=1))
        hints = m * (torch.rand(m.shape) < 0.9).float()
        d = network.discriminator(torch.cat([m * values + (1 - m) * g, hints], dim=1)).sigmoid()
    of_d = -(m * (d + 1e-8).log() + (1 - m) * (1 - d + 1e-8).log()).mean()
    of_g = -((1 - m) * (d + 1e-8).log()).mean() + 100 * ((m * values - m * g) ** 2).mean() / m.mean()
    np.testing.assert_allclose(losses, [of_d.item(), of_g.item()], rtol=1e-4)


def test_layers_are_those_of_the_authors_code(low_rank):
    """By hand: three layers as wide as there are genes, of values and mask side by side; no sigmoid at the end of G."""
    counts = low_rank.train.X
    cells = Cells(counts, np.ones(counts.shape, dtype=bool), pd.DataFrame(index=range(len(counts))))
    network = GAIN().untrained(cells).eval()
    n_genes = low_rank.train.n_vars
    x, m = np.random.default_rng(0).random((2, 5, n_genes)).astype(np.float32)
    m = (m < 0.5).astype(np.float32)
    for layers in (network.generator, network.discriminator):
        weights = [layer.weight.detach().numpy() for layer in layers[::2]]
        biases = [layer.bias.detach().numpy() for layer in layers[::2]]
        assert [w.shape for w in weights] == [(n_genes, 2 * n_genes), (n_genes, n_genes), (n_genes, n_genes)]
        spread = [w.std() / np.sqrt(2 / sum(w.shape)) for w in weights]
        np.testing.assert_allclose(spread, 1, atol=0.1)
        h = np.concatenate([x, m], axis=1)
        for w, b in zip(weights[:-1], biases[:-1], strict=True):
            h = np.maximum(h @ w.T + b, 0)
        theirs = h @ weights[-1].T + biases[-1]
        with torch.no_grad():
            ours = layers(torch.from_numpy(np.concatenate([x, m], axis=1)))
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


def test_an_answer_is_made_as_in_the_authors_code(method, batch):
    """Noise of at most 0.01 in place of what is missing, the guess clamped at 0 and brought back to counts."""
    network, generator = method.network, torch.Generator().manual_seed(5)
    sites = ~batch.observed
    with torch.no_grad():
        ours = method._fill(batch, sites, generator).numpy()
        values = network.values(batch.counts, batch.observed)
        noise = 0.01 * torch.rand(sites.shape, generator=torch.Generator().manual_seed(5))
        m = batch.observed.float()
        g = network.generator(torch.cat([m * values + (1 - m) * noise, m], dim=1))
        theirs = network.values.decode(g, batch.counts, batch.observed).numpy()
    assert noise.max() <= 0.01 and (ours >= 0).all()
    np.testing.assert_allclose(ours[sites], theirs[sites], rtol=1e-6)
