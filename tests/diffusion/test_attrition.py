"""Attrition stays within the bounds of Prop. 3.2, whatever the schedules."""

import numpy as np
import pytest
import torch

from sccountsdiff.diffusion import Cap, Max, PerStep, Rescale, birth_probability, get_attrition, max_attrition


def test_rates_are_probabilities_and_keep_the_marginals(schedule, attrition):
    times = torch.cat([torch.linspace(0, 1, 101), torch.tensor([1e-6, 1e-3, 1 - 1e-3, 1 - 1e-6])]).sort().values
    p = schedule.survival(times)
    p_t, p_s = torch.meshgrid(p, p, indexing="ij")
    back = p_t < p_s
    p_t, p_s = p_t[back], p_s[back]
    for step in (0, 3):
        sigma = attrition.sigma(p_t, p_s, step)
        beta = birth_probability(p_t, p_s, sigma)
        assert (sigma >= 0).all() and (sigma <= max_attrition(p_t, p_s)).all()
        assert (beta >= 0).all() and (beta <= 1).all()
        torch.testing.assert_close((1 - sigma) * p_t + beta * (1 - p_t), p_s, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("p_t", "p_s", "expected"),
    [(0.5, 0.75, 0.5), (0.8, 0.9, 0.125), (0.1, 0.2, 1.0), (0.0, 0.5, 1.0), (0.6, 1.0, 0.0), (0.0, 1.0, 0.0)],
)
def test_most_attrition_there_can_be(p_t, p_s, expected):
    found = max_attrition(torch.tensor(p_t, dtype=torch.float64), torch.tensor(p_s, dtype=torch.float64))
    assert found.item() == pytest.approx(expected, abs=1e-12)


def test_closed_forms():
    p_t, p_s = torch.tensor([0.1, 0.5, 0.8]), torch.tensor([0.2, 0.75, 0.9])
    sigma_max = torch.tensor([1.0, 0.5, 0.125])
    torch.testing.assert_close(Rescale(0.3).sigma(p_t, p_s), 0.3 * sigma_max)
    torch.testing.assert_close(Cap(0.3).sigma(p_t, p_s), torch.tensor([0.3, 0.3, 0.125]))
    torch.testing.assert_close(Max().sigma(p_t, p_s), sigma_max)
    rates = PerStep(torch.tensor([0.9, 0.2]))
    torch.testing.assert_close(rates.sigma(p_t, p_s, 0), torch.tensor([0.9, 0.5, 0.125]))
    torch.testing.assert_close(rates.sigma(p_t, p_s, 1), torch.tensor([0.2, 0.2, 0.125]))


def test_rates_per_gene():
    rates = PerStep(torch.tensor([[0.0, 0.4, 1.0], [0.1, 0.2, 0.3]]))
    p_t, p_s = torch.tensor(0.5), torch.tensor(0.75)
    torch.testing.assert_close(rates.sigma(p_t, p_s, 0), torch.tensor([0.0, 0.4, 0.5]))
    torch.testing.assert_close(rates.sigma(p_t, p_s, 1), torch.tensor([0.1, 0.2, 0.3]))


def test_what_users_pass():
    assert get_attrition(0.25) == Rescale(0.25)
    assert get_attrition(0) == Rescale(0.0)
    for number in (np.float32(0.25), np.float64(0.25)):
        assert get_attrition(number) == Rescale(0.25)
    assert get_attrition(np.int64(1)) == Rescale(1.0)
    assert get_attrition(np.array([0.5, 0.25])).rates.tolist() == [0.5, 0.25]
    cap = Cap(0.1)
    assert get_attrition(cap) is cap
    per_step = get_attrition([0.5, 0.25])
    assert isinstance(per_step, PerStep)
    assert per_step.rates.tolist() == [0.5, 0.25]


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_rates_outside_of_their_range_raise(value):
    with pytest.raises(ValueError, match="`attrition` must be within"):
        get_attrition(value)
    for kind in (Rescale, Cap):
        with pytest.raises(ValueError, match="`eta` must be within"):
            kind(value)
    with pytest.raises(ValueError, match="`attrition` as a tensor"):
        get_attrition(torch.tensor([0.5, value]))


def test_a_single_number_as_a_tensor_is_ambiguous():
    with pytest.raises(ValueError, match="one rate"):
        get_attrition(torch.tensor(0.5))


def test_too_few_rates_raise():
    rates = PerStep(torch.tensor([0.1, 0.2]))
    with pytest.raises(ValueError, match="has 2 rates"):
        rates.sigma(torch.tensor(0.5), torch.tensor(0.75), 2)


@pytest.mark.parametrize("value", ["0.1", None, object()])
def test_what_is_no_rate_is_named(value):
    with pytest.raises(
        ValueError, match="`attrition` must be a number, a tensor of rates or an attrition schedule, not"
    ):
        get_attrition(value)


def test_rates_must_be_made_for_the_walk():
    Rescale(0.1).check(n_moves=7, n_cells=3, n_genes=2)  # a formula is made for any
    for n_rates in (3, 5):
        rates = PerStep(torch.zeros(n_rates))
        rates.check(n_moves=n_rates)
        with pytest.raises(ValueError, match=rf"`attrition` has {n_rates} rates, but the walk has 4 reverse moves"):
            rates.check(n_moves=4)


def test_rates_must_be_made_for_the_cells_and_genes():
    for shape in ((4,), (4, 6), (4, 1), (4, 9, 6), (4, 1, 6), (4, 9, 1), (4, 1, 1)):
        PerStep(torch.zeros(shape)).check(n_moves=4, n_cells=9, n_genes=6)
    for shape in ((4, 5), (4, 9, 5)):
        with pytest.raises(ValueError, match="rates for 5 genes, but there are 6"):
            PerStep(torch.zeros(shape)).check(n_moves=4, n_cells=9, n_genes=6)
    rates = PerStep(torch.zeros(4, 8, 6))
    with pytest.raises(ValueError, match="rates for 8 cells, but there are 9"):
        rates.check(n_moves=4, n_cells=9, n_genes=6)
    rates.check(n_moves=4, n_genes=6)  # as long as nobody knows how many there are


def test_rates_of_some_cells():
    rates = torch.rand(3, 5, 2, generator=torch.Generator().manual_seed(0))
    for rows in (slice(1, 3), np.array([0, 4])):
        assert torch.equal(PerStep(rates).of_cells(rows).rates, rates[:, rows])
    for same in (Cap(0.1), PerStep(rates[:, 0]), PerStep(rates[:, :1])):
        assert same.of_cells(slice(1, 3)) is same
