"""Masked sampling is MDLM without remasking, keeps the marginals with it, and holds on to what is observed."""

from itertools import product

import pytest
import torch

from sccountsdiff.benchmark.masked_diffusion import MASK, MaskedState, remasking_rates, sample_masked
from sccountsdiff.diffusion import birth_probability, reverse_walk

N = 8_000

JOINT = torch.tensor([[0.4, 0.1], [0.2, 0.3]])  # of two entries with two classes

ALL = torch.ones(N, 2, dtype=torch.bool)

NOTHING = torch.zeros(N, 2, dtype=torch.long)


def exact_law(codes, entries, t):
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


def draw(log_law=exact_law, walk=None, x0=NOTHING, observed=~ALL, sites=ALL, seed=0, **kwargs):
    generator = torch.Generator().manual_seed(seed)
    return sample_masked(log_law, walk or reverse_walk(4), x0, observed, sites, generator=generator, **kwargs)


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
    independent = lambda codes, entries, t: law.expand(N, 2, 3)[entries].log()
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
    state = MaskedState(codes, torch.tensor([[0.9, 0.2, 0.5, 0.1], [1.0, 1.0, 1.0, 1.0]]))
    sites = torch.tensor([[True, True, False, True]]).expand(2, 4)
    alpha_t, alpha_s = torch.tensor(0.5), torch.tensor(0.7)  # sigma_max = 0.3 / 0.5
    rates = remasking_rates("conf", 0.5, alpha_t, alpha_s, state, sites)
    shares = torch.tensor([-0.9, -0.2]).softmax(0)
    torch.testing.assert_close(rates[0, :2], 0.3 * shares)
    assert not rates[0, 2:].any() and not rates[1].any()

    kept = []
    draw(remasking="conf", eta=1.0, on_move=lambda move, state: kept.append(state))
    drawn_alone = (kept[0].codes[:, 0] == 1) & (kept[0].codes[:, 1] == MASK)
    assert kept[0].confidence[drawn_alone, 0].unique().tolist() == pytest.approx([0.5])  # the probability it had


@pytest.mark.parametrize("known", ["clean", "noised"])
def test_observed_entries_are_held_and_others_stay_masked(known):
    x0 = torch.arange(3).repeat(N, 1)
    observed, sites = torch.zeros_like(x0, dtype=torch.bool), torch.zeros_like(x0, dtype=torch.bool)
    observed[:, 0], sites[:, 1] = True, True
    shown = []

    def log_law(codes, entries, t):
        shown.append(codes)
        assert not (entries & ~sites).any() and (codes[entries] == MASK).all()
        return torch.tensor([0.0, 0.0, 0.0, 1.0]).log().expand(int(entries.sum()), 4)

    end = draw(log_law, reverse_walk(4, n_resamples=2), x0, observed, sites, known=known, eta=0.1)
    assert torch.equal(end, torch.tensor([0, 3, MASK]).expand(N, 3))
    for codes, t in zip(shown, [1.0, 1.0, 0.75, 0.75, 0.5, 0.5, 0.25, 0.25], strict=True):
        assert (codes[:, 2] == MASK).all()
        share = 1.0 if known == "clean" else 1 - t
        assert (codes[:, 0] == 0).float().mean().item() == pytest.approx(share, abs=5 * (t * (1 - t) / N) ** 0.5)


def test_remasking_probabilities_are_those_of_remdm():
    """sigma is a share of min(1, (1 - a_s) / a_t); a masked entry is revealed with (a_s - (1 - sigma) a_t) / (1 - a_t)."""
    state, sites = (
        MaskedState(torch.zeros(1, 1, dtype=torch.long), torch.ones(1, 1)),
        torch.ones(1, 1, dtype=torch.bool),
    )
    times = torch.linspace(1, 0, 12, dtype=torch.float64)[1:]
    alphas = torch.cos(times * torch.pi / 2) ** 2
    for a_t, a_s in zip(alphas[:-1], alphas[1:], strict=True):
        bound = min(1.0, float((1 - a_s) / a_t))
        rescaled, capped = (float(remasking_rates(kind, 0.3, a_t, a_s, state, sites)) for kind in ("rescale", "cap"))
        assert rescaled == pytest.approx(0.3 * bound) and capped == pytest.approx(min(0.3, bound))
        revealed = float(birth_probability(a_t, a_s, torch.tensor(rescaled)))
        assert revealed == pytest.approx(float((a_s - (1 - rescaled) * a_t) / (1 - a_t)))
        assert float(a_t) * (1 - rescaled) + float(1 - a_t) * revealed == pytest.approx(float(a_s)), (
            "the marginal stays"
        )
