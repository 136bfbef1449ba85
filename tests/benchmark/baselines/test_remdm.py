"""ReMDM is MDLM without remasking, keeps the marginals with it, and holds on to what is known."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch

from sccountsdiff.benchmark.baselines.base import Cells
from sccountsdiff.benchmark.baselines.count_classes import CountClasses
from sccountsdiff.benchmark.baselines.remdm import ReMDM
from sccountsdiff.benchmark.baselines.torch_training import Batch
from sccountsdiff.benchmark.masked_diffusion import MASK, State, remasking_rates, sample_masked
from sccountsdiff.diffusion import reverse_walk

N = 8_000
JOINT = torch.tensor([[0.4, 0.1], [0.2, 0.3]])  # of two entries with two classes
ALL = torch.ones(N, 2, dtype=torch.bool)
NOTHING = torch.zeros(N, 2, dtype=torch.long)


def exact_law(codes, entries):
    """What a perfect network says of two entries with the law ``JOINT``."""
    conditional = torch.stack([JOINT.T, JOINT])  # (entry, class of the other one, class)
    conditional = conditional / conditional.sum(dim=2, keepdim=True)
    marginal = torch.stack([JOINT.sum(1), JOINT.sum(0)])
    other = codes.flip(1)
    law = torch.where((other == MASK)[..., None], marginal, conditional[torch.arange(2), other.clamp_min(0)])
    return law[entries].log()


def assert_law(codes, law):
    """Frequencies of rows within five standard errors; ``law`` maps rows to probabilities."""
    rows, numbers = codes.unique(dim=0, return_counts=True)
    found = dict(zip(map(tuple, rows.tolist()), numbers.tolist(), strict=True))
    assert sum(law.values()) == pytest.approx(1)
    assert set(found) <= {row for row, p in law.items() if p > 0}
    for row, p in law.items():
        assert found.get(row, 0) / len(codes) == pytest.approx(p, abs=5 * (p * (1 - p) / len(codes)) ** 0.5 + 1e-9)


def draw(log_law=exact_law, walk=None, x0=NOTHING, known=~ALL, fill=ALL, seed=0, **kwargs):
    generator = torch.Generator().manual_seed(seed)
    return sample_masked(log_law, walk or reverse_walk(4), x0, known, fill, generator=generator, **kwargs)


# The sampler --------------------------------------------------------------------------------------------------------


def test_a_step_without_remasking_is_the_posterior_of_mdlm():
    seen = []
    draw(on_move=lambda move, state: seen.append(state.codes))
    first, second = JOINT.sum(1).tolist(), JOINT.sum(0).tolist()
    entry = lambda alpha, law: {MASK: 1 - alpha, 0: alpha * law[0], 1: alpha * law[1]}
    law = {(a, b): p * q for (a, p), (b, q) in product(entry(0.25, first).items(), entry(0.25, second).items())}
    assert_law(seen[0], law)

    # From t = 3/4 to s = 1/2 a masked entry is revealed with probability (alpha_s - alpha_t) / (1 - alpha_t) = 1/3.
    for a, b in product([0, 1], [0, 1]):
        after = seen[1][(seen[0] == torch.tensor([a, MASK])).all(dim=1)]
        given = (JOINT[a] / JOINT[a].sum()).tolist()
        assert_law(after, {(a, MASK): 2 / 3, (a, 0): given[0] / 3, (a, 1): given[1] / 3})
        after = seen[1][(seen[0] == torch.tensor([a, b])).all(dim=1)]
        assert (after == torch.tensor([a, b])).all(), "nothing that was revealed changes"


@pytest.mark.parametrize("n_steps", [1, 2, 5])
def test_without_remasking_the_end_is_the_joint_law_but_for_entries_revealed_together(n_steps):
    # Both entries are revealed in the same of n equal steps with probability 1 / n, and are then independent.
    independent = JOINT.sum(1, keepdim=True) * JOINT.sum(0)
    law = independent / n_steps + (1 - 1 / n_steps) * JOINT
    assert_law(draw(walk=reverse_walk(n_steps)), {(a, b): law[a, b].item() for a in range(2) for b in range(2)})


@pytest.mark.parametrize(("remasking", "eta"), [("rescale", 0.4), ("rescale", 1.0), ("cap", 0.3), ("cap", 0.0)])
@pytest.mark.parametrize("n_resamples", [1, 2])
def test_remasking_keeps_the_marginals_at_every_move(remasking, eta, n_resamples):
    law = torch.tensor([[0.7, 0.1, 0.2], [0.1, 0.3, 0.6]])
    independent = lambda codes, entries: law.expand(N, 2, 3)[entries].log()
    walk, seen = reverse_walk(4, n_resamples=n_resamples), []
    end = draw(independent, walk, remasking=remasking, eta=eta, on_move=lambda move, state: seen.append(state.codes))
    for move, codes in zip(walk, seen, strict=True):
        for entry in range(2):
            shares = {(k,): (1 - move.s) * p for k, p in enumerate(law[entry].tolist())}
            assert_law(codes[:, [entry]], {(MASK,): move.s} | shares)
    assert torch.equal(end, seen[-1])
    remasked = any(((before != MASK) & (after == MASK)).any() for before, after in zip(seen, seen[1:], strict=False))
    assert remasked == (eta > 0 or n_resamples > 1)


def test_confidence_decides_who_is_masked_again():
    codes = torch.tensor([[0, 1, 2, MASK], [MASK, MASK, MASK, MASK]])
    state = State(codes, torch.tensor([[0.9, 0.2, 0.5, 0.1], [1.0, 1.0, 1.0, 1.0]]))
    fill = torch.tensor([[True, True, False, True]]).expand(2, 4)
    alpha_t, alpha_s = torch.tensor(0.5), torch.tensor(0.7)  # sigma_max = 0.3 / 0.5
    rates = remasking_rates("conf", 0.5, alpha_t, alpha_s, state, fill)
    shares = torch.tensor([-0.9, -0.2]).softmax(0)
    torch.testing.assert_close(rates[0, :2], 0.3 * shares)
    assert not rates[0, 2:].any() and not rates[1].any()

    kept = []
    draw(remasking="conf", eta=1.0, on_move=lambda move, state: kept.append(state))
    drawn_alone = (kept[0].codes[:, 0] == 1) & (kept[0].codes[:, 1] == MASK)
    assert kept[0].confidence[drawn_alone, 0].unique().tolist() == pytest.approx([0.5])  # the probability it had


@pytest.mark.parametrize("show", ["clean", "noised"])
def test_known_entries_are_held_and_others_stay_masked(show):
    x0 = torch.arange(3).repeat(N, 1)
    known, fill = torch.zeros_like(x0, dtype=torch.bool), torch.zeros_like(x0, dtype=torch.bool)
    known[:, 0], fill[:, 1] = True, True
    shown = []

    def log_law(codes, entries):
        shown.append(codes)
        assert not (entries & ~fill).any() and (codes[entries] == MASK).all()
        return torch.tensor([0.0, 0.0, 0.0, 1.0]).log().expand(int(entries.sum()), 4)

    end = draw(log_law, reverse_walk(4, n_resamples=2), x0, known, fill, show=show, eta=0.1)
    assert torch.equal(end, torch.tensor([0, 3, MASK]).expand(N, 3))
    for codes, t in zip(shown, [1.0, 1.0, 0.75, 0.75, 0.5, 0.5, 0.25, 0.25], strict=True):
        assert (codes[:, 2] == MASK).all()
        share = 1.0 if show == "clean" else 1 - t
        assert (codes[:, 0] == 0).float().mean().item() == pytest.approx(share, abs=5 * (t * (1 - t) / N) ** 0.5)


# Classes ------------------------------------------------------------------------------------------------------------


def cells_of(counts, observed=None):
    counts = np.asarray(counts, dtype=np.float32)
    observed = np.ones(counts.shape, dtype=bool) if observed is None else observed
    return Cells(counts, observed, pd.DataFrame(index=range(len(counts))))


def test_large_counts_come_back_as_training_counts_of_their_gene():
    counts = np.array([[0, 40, 0, 7], [1, 50, 2, 0], [3, 0, 1, 99]])
    observed = np.ones(counts.shape, dtype=bool)
    observed[2, 3] = False
    classes = CountClasses(cells_of(counts * observed, observed), 1.0, max_classes=6)
    assert len(classes) == 6
    below = torch.tensor([[0.0, 1.0, 4.0, 3.0]])
    assert torch.equal(classes.decode(classes.encode(below)), below)
    large = classes.decode(torch.full((4000, 4), 5), torch.Generator().manual_seed(0))
    for gene, values in enumerate([{40, 50, 7}, {40, 50}, {40, 50, 7}, {7}]):  # genes 0 and 2 had none
        assert set(large[:, gene].tolist()) == values
    assert (large[:, 1] == 40).float().mean().item() == pytest.approx(0.5, abs=5 * 0.5 / 4000**0.5)


@pytest.mark.parametrize(("counts", "n_classes"), [([[0, 0]], 2), ([[0, 3]], 4), ([[0] * 99 + [500]], 2)])
def test_number_of_classes(counts, n_classes):
    assert len(CountClasses(cells_of(counts), 0.95, max_classes=10)) == min(n_classes, 10)


# Network and loss ---------------------------------------------------------------------------------------------------


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
    law = lambda batch, gamma: network.guided(batch, gamma)(codes, ~observed).detach()
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


# The method ---------------------------------------------------------------------------------------------------------

SMALL = {"n_hidden": 64, "n_layers": 1, "max_epochs": 25, "batch_size": 32, "lr": 5e-3, "n_steps": 6, "p_uncond": 0.3}


def test_beats_the_mean_of_the_gene_also_when_entries_are_not_believed(low_rank):
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
        ({"remasking": "loop"}, "remasking must be one of"),
        ({"known": "none"}, "known must be"),
        ({"eta": 1.5}, "eta must be"),
        ({"guidance": -1.0}, "guidance must be"),
        ({"max_classes": 1}, "max_classes=1"),
        ({"quantile": 0.0}, "quantile=0.0"),
        ({"n_steps": 0}, "n_steps"),
    ],
)
def test_bad_settings_are_refused_before_training(setting, message):
    with pytest.raises(ValueError, match=message):
        ReMDM(**setting)
