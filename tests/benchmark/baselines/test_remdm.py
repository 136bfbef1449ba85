"""ReMDM learns the law of masked counts from those that are not masked."""

import numpy as np
import pytest
import torch

from sccountsdiff.benchmark.baselines.remdm import ReMDM, ReMDMMean
from sccountsdiff.benchmark.baselines.torch_training import Batch
from sccountsdiff.benchmark.masked_diffusion import MASK


def batch_of(counts, observed, types, unseen=None):
    types = torch.as_tensor(types)[:, None]
    unseen = torch.zeros(len(types), dtype=torch.bool) if unseen is None else unseen
    return Batch(counts, observed, types, torch.zeros(len(types), 0), unseen)


@pytest.fixture
def network(low_rank):
    """Untrained, but with random weights at its end, so that it says something."""
    method = ReMDM(n_hidden=16, max_epochs=0, patience=None).fit(low_rank.train, covariates="type")
    return method.network


def disturb(network):
    generator = torch.Generator().manual_seed(1)
    for parameter in network.parameters():
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=generator)
    return network


def test_guidance_one_and_zero_are_the_conditional_and_the_unconditional_model(network, low_rank):
    disturb(network)
    counts = torch.as_tensor(low_rank.test.X[:8])
    observed = torch.rand(counts.shape, generator=torch.Generator().manual_seed(0)) < 0.5
    codes = torch.where(observed, network.classes.encode(counts), MASK)
    law = lambda batch, gamma: network.guided(batch, gamma)(codes, ~observed, 0.5).detach()
    first, second = (batch_of(counts, observed, [kind] * 8) for kind in (0, 1))
    never = batch_of(counts, observed, [0] * 8, torch.ones(8, dtype=torch.bool))
    conditional, unconditional = law(first, 1), law(first, 0)
    assert not torch.allclose(conditional, law(second, 1))
    assert torch.equal(unconditional, law(second, 0))
    assert torch.equal(unconditional, law(never, 1)), "an unseen category is no condition"
    torch.testing.assert_close(law(first, 1 + 1e-9), conditional)
    torch.testing.assert_close(law(first, 1e-9), unconditional)
    tilted = conditional.exp() ** 2 / unconditional.exp()
    torch.testing.assert_close(law(first, 2).exp(), tilted / tilted.sum(dim=1, keepdim=True))


def test_the_untrained_network_gives_the_frequencies_and_the_bound_is_their_entropy(network, low_rank):
    counts = torch.as_tensor(low_rank.train.X)
    batch = batch_of(counts, torch.ones_like(counts, dtype=torch.bool), [0] * len(counts))
    codes = network.classes.encode(counts)
    one_hot = torch.nn.functional.one_hot(codes, len(network.classes)).float()
    frequencies = one_hot.sum(0) + 1 / len(network.classes)
    frequencies = frequencies / frequencies.sum(1, keepdim=True)
    expected = -(one_hot * frequencies.log()).sum(2).mean().item()
    torch.manual_seed(0)
    losses = torch.stack([network.loss(batch).detach() for _ in range(60)])
    assert losses.mean().item() == pytest.approx(expected, abs=5 * losses.std().item() / 60**0.5)


def test_only_observed_entries_count(network, low_rank):
    disturb(network)
    counts = torch.as_tensor(low_rank.train.X[:20])
    observed = torch.rand(counts.shape, generator=torch.Generator().manual_seed(0)) < 0.7
    observed[:, 3] = False

    def loss(counts):
        torch.manual_seed(0)
        return network.loss(batch_of(counts, observed, [0] * 20))

    other = torch.where(observed, counts, 17.0)
    assert torch.equal(loss(counts), loss(other))
    assert not torch.equal(loss(counts), loss(torch.where(observed, 17.0, counts)))
    loss(counts).backward()
    assert not network.bias.grad[3].any() and network.bias.grad[4].any()


SMALL = {"n_hidden": 64, "n_layers": 1, "max_epochs": 25, "batch_size": 32, "lr": 5e-3, "n_steps": 6, "p_uncond": 0.3}


def test_beats_the_mean_of_the_gene_also_when_entries_are_missing(low_rank):
    observed = np.random.default_rng(0).random(low_rank.train.shape) < 0.8
    method = ReMDM(**SMALL).fit(low_rank.train, covariates="type", observed=observed)
    test = np.random.default_rng(1).random(low_rank.test.shape) < 0.8
    rmse = lambda sites, method=method, observed=None: np.sqrt(
        np.mean((method.impute(low_rank.test, sites, 10, observed=observed).mean(0) - low_rank.test.X)[sites] ** 2)
    )
    assert rmse(low_rank.sites, observed=test) < 0.8 * low_rank.rmse_of_gene_mean

    # With nothing observed only the covariates are left; without guidance, not even they.
    everything = np.ones_like(low_rank.sites)
    conditional = rmse(everything)
    method.guidance = 0.0
    assert conditional < 0.8 * rmse(everything)


def test_the_mean_in_one_pass_is_that_of_draws_in_one_step(low_rank):
    """Of each gene, over the cells: 50 differences in standard errors of 400 draws, none beyond 4 and about 1 by their size."""
    settings = SMALL | {"n_steps": 1, "eta": 0.0, "max_epochs": 3}
    method = ReMDM(**settings).fit(low_rank.train, covariates="type")
    cells, sites = low_rank.test[:10].copy(), low_rank.sites[:10]
    draws = (method.impute(cells, sites, 400) * sites).sum(1)
    mean = ReMDMMean(**settings).take_over(method).impute(cells, sites)
    error = ((mean * sites).sum(0) - draws.mean(0)) / (draws.std(0) / len(draws) ** 0.5)
    assert np.abs(error).max() < 4 and np.sqrt(np.mean(error**2)) < 1.4
    assert np.array_equal(mean[~sites], cells.X[~sites])


def test_counts_in_counts_out_whatever_the_cells(low_rank):
    train = low_rank.train[:30].copy()
    train.X[:, 7] = 0
    method = ReMDM(n_hidden=8, max_epochs=1, n_steps=3, known="noised", n_resamples=2, remasking="conf", eta=1.0)
    method.fit(train, covariates="type")
    test = low_rank.test[:1].copy()
    test.X[:] = 0
    for sites in (np.ones(test.shape, dtype=bool), np.arange(50)[None] < 3):
        answer = method.impute(test, sites, n_samples=2)
        assert np.isfinite(answer).all() and (answer >= 0).all() and (answer == np.round(answer)).all()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"remasking": "loop"}, "`remasking` must be"),
        ({"known": "none"}, "`known` must be"),
        ({"eta": 1.5}, "eta must be"),
        ({"guidance": -1.0}, "guidance must be"),
        ({"max_classes": 1}, "max_classes=1"),
        ({"quantile": 0.0}, "quantile=0.0"),
        ({"n_steps": 0}, "n_steps"),
        ({"backbone": "unet"}, "`backbone` must be"),
        ({"backbone": "transformer", "n_heads": 7}, "n_heads=7 must divide"),
    ],
)
def test_bad_settings_are_refused_before_training(setting, message):
    with pytest.raises(ValueError, match=message):
        ReMDM(**setting)


def test_a_transformer_over_genes_beats_the_mean(low_rank):
    size = {"backbone": "transformer", "n_hidden": 32, "n_heads": 2, "lr": 1e-2, "n_warmup_steps": 10, "max_epochs": 40}
    method = ReMDM(**SMALL | size).fit(low_rank.train, covariates="type")
    answer = method.impute(low_rank.test, low_rank.sites, 10).mean(0)
    assert np.sqrt(np.mean((answer - low_rank.test.X)[low_rank.sites] ** 2)) < 0.85 * low_rank.rmse_of_gene_mean


def test_the_transformer_has_one_output_layer_for_all_genes(low_rank):
    """Genes are told apart by their vectors alone: with the same vector and the same count they have the same law."""
    size = {"backbone": "transformer", "n_hidden": 16, "n_heads": 2, "n_layers": 1, "max_epochs": 0, "patience": None}
    network = disturb(ReMDM(**size).fit(low_rank.train, covariates="type").network).eval()
    network.backbone.genes.data[7] = network.backbone.genes.data[3]
    counts = torch.as_tensor(low_rank.test.X[:4])
    codes = network.classes.encode(counts)
    codes[:, 7] = codes[:, 3]
    batch = batch_of(counts, torch.ones_like(counts, dtype=torch.bool), [0] * 4)
    numbers = network(codes, batch, torch.zeros(4, dtype=torch.bool))
    law = network.log_law(numbers, torch.ones_like(codes, dtype=torch.bool)).unflatten(0, codes.shape)
    torch.testing.assert_close(law[:, 7], law[:, 3])
    assert not torch.allclose(law[:, 8], law[:, 3])
    assert network.bias.shape == (1, len(network.classes))
