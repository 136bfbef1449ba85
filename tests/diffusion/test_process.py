"""The forward process is binomial thinning, and thinnings compose."""

import pytest
import torch
from scipy import stats

from sccountsdiff.diffusion import birth_probability, max_attrition, process, survivors, thin

N = 20_000
CASES = [(1, 0.3), (1, 0.998), (2, 0.05), (2, 0.7), (3, 0.5), (7, 0.5), (60, 0.05), (60, 0.8), (1000, 0.2)]


@pytest.mark.parametrize("is_seen", [True, False])
@pytest.mark.parametrize(("x0", "p"), CASES)
def test_thinning_is_binomial_whether_counts_are_seen_or_not(x0, p, is_seen, generator, assert_follows, monkeypatch):
    monkeypatch.setattr(process, "host_sees", lambda values: is_seen)
    assert_follows(thin(torch.full((N,), float(x0)), p, generator), stats.binom(x0, p))


@pytest.mark.parametrize(("x0", "p"), CASES)
def test_two_thinnings_are_one(x0, p, generator, assert_follows):
    p_s = 1 - 0.4 * (1 - p)
    xs = thin(torch.full((N,), float(x0)), p_s, generator)
    xt = thin(xs, p / p_s, generator)
    assert (xt <= xs).all()
    assert_follows(xs, stats.binom(x0, p_s))
    assert_follows(xt, stats.binom(x0, p))


def test_each_cell_has_its_own_survival(generator, assert_follows):
    p = torch.tensor([0.0, 0.1, 0.6, 1.0])
    thinned = thin(torch.full((4, N), 12.0), p[:, None], generator)
    for row, p_row in zip(thinned, p.tolist(), strict=True):
        assert_follows(row, stats.binom(12, p_row))


def test_counts_of_one_and_two_take_a_random_number_each():
    """What is drawn of one entry says nothing of the next."""
    ones = thin(torch.tensor([1.0, 2.0]).repeat(N, 1), 0.5, torch.Generator().manual_seed(0))
    assert abs(torch.corrcoef(ones.T)[0, 1]) < 4 / N**0.5


def test_what_is_certain_costs_no_random_number():
    x, p = torch.full((3, 40), 3.0), torch.tensor([[1.0], [0.5], [0.0]])
    first, second = torch.Generator().manual_seed(0), torch.Generator().manual_seed(0)
    thinned = thin(x, p, first)
    assert torch.equal(thinned[0], x[0]) and not thinned[2].any()
    assert torch.equal(thinned[1], thin(x[1], 0.5, second))
    assert torch.equal(first.get_state(), second.get_state())


def test_what_is_no_number_stays_none():
    assert thin(torch.tensor([1.0, 2.0, 5.0]), torch.tensor(float("nan"))).isnan()[:2].all()
    assert thin(torch.tensor([float("nan"), 1.0]), 0.5).isnan().tolist() == [True, False]


def test_only_counts_cost_a_random_number():
    """Among zeros, counts are thinned by the same random numbers as without them."""
    x = torch.zeros(4, 50)
    x[:, ::10] = 9.0
    thinned, alone = (thin(counts, 0.5, torch.Generator().manual_seed(0)) for counts in (x, x[x > 0]))
    assert torch.equal(thinned[x > 0], alone) and alone.any() and not thinned[x == 0].any()


def test_torch_is_only_given_probabilities(monkeypatch):
    given = []
    binomial = torch.binomial
    monkeypatch.setattr(torch, "binomial", lambda n, p, **kwargs: given.append(p) or binomial(n, p, **kwargs))
    x = torch.arange(20.0)
    assert torch.equal(thin(x, 1 + 1e-6), x)
    assert not thin(x, -1e-6).any()
    assert all(((p >= 0) & (p <= 1)).all() for p in given) and len(given) == 2


def test_the_input_is_left_alone(generator):
    x = torch.arange(20.0)
    thin(x, 0.5, generator)
    survivors(x, 0.5, generator)
    assert torch.equal(x, torch.arange(20.0))


@pytest.mark.parametrize("sigma", [0.0, 0.15, 1.0])
def test_survivors_are_binomial(sigma, generator, assert_follows):
    assert_follows(survivors(torch.full((N,), 15.0), sigma, generator), stats.binom(15, 1 - sigma))


def test_births_make_up_for_deaths_exactly():
    # Prop. 3.2: one count is there at s if it was there at t and outlived, or was not there and is born.
    p_t, p_s, share = torch.meshgrid(*[torch.linspace(0, 1, 41, dtype=torch.float64)] * 3, indexing="ij")
    back = (p_t < p_s) & (p_t < 1)
    p_t, p_s, share = p_t[back], p_s[back], share[back]
    sigma = share * max_attrition(p_t, p_s)
    beta = birth_probability(p_t, p_s, sigma)
    torch.testing.assert_close((1 - sigma) * p_t + beta * (1 - p_t), p_s, rtol=0, atol=1e-12)
    assert beta.min() >= 0 and beta.max() <= 1


def test_too_much_attrition_counts_as_the_most_there_can_be():
    p_t, p_s = torch.tensor(0.8), torch.tensor(0.9)
    assert birth_probability(p_t, p_s, 0.5) == birth_probability(p_t, p_s, max_attrition(p_t, p_s)) == 1
    assert birth_probability(p_t, p_s, -0.5) == birth_probability(p_t, p_s)


def test_everything_is_born_in_a_move_to_the_data():
    p_t = torch.linspace(0, 0.999, 50)
    assert (birth_probability(p_t, torch.ones(50), 0.3) == 1).all()
