"""The reverse walk keeps the marginals of the forward process at every move, and holds on to what is observed."""

from __future__ import annotations

import pytest
import torch
from scipy import stats

from sccountsdiff.diffusion import (
    MISSING,
    NOISED,
    OBSERVED,
    Attrition,
    Blackout,
    Cosine,
    Max,
    Move,
    PerStep,
    Prediction,
    Rescale,
    reverse_walk,
    sample,
)

N = 4_000
TRUTH = torch.tensor([0.0, 1.0, 6.0, 40.0], dtype=torch.float64).repeat(N, 1)


def is_denoising(move: Move) -> bool:
    return move.s < move.t


def exact_remainder(x, status, t) -> Prediction:
    """What an oracle predicts: exactly the counts that are still to come."""
    return Prediction((TRUTH - x).log())


def generate(denoise, schedule, walk, like, **settings) -> torch.Tensor:
    """Counts from nothing, in the shape and type of others."""
    return sample(denoise, schedule, walk, torch.zeros_like(like), torch.full_like(like, NOISED), **settings)


class Recorder:
    """Collects what ``on_move`` is told."""

    def __init__(self):
        self.moves, self.states = [], []

    def __call__(self, move, x):
        self.moves.append(move)
        self.states.append(x)


# Marginals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rounding", ["random", "nearest"])
def test_marginals_hold_at_every_move_and_the_end_is_the_data(schedule, attrition, rounding, generator, assert_follows):
    seen = Recorder()
    walk = reverse_walk(8)
    drawn = generate(
        exact_remainder,
        schedule,
        walk,
        TRUTH,
        attrition=attrition,
        rounding=rounding,
        generator=generator,
        on_move=seen,
    )
    assert seen.moves == walk
    for move, x in zip(walk, seen.states, strict=True):
        p = schedule.survival(schedule.snap(move.s)).item()
        for gene, x0 in enumerate(TRUTH[0].int().tolist()):
            assert_follows(x[:, gene], stats.binom(x0, p))
    assert torch.equal(drawn, TRUTH)


@pytest.mark.parametrize("jump_length", [1, 2])
def test_marginals_hold_under_resampling(jump_length, generator, assert_follows):
    seen = Recorder()
    walk = reverse_walk(4, jump_length, n_resamples=2)
    schedule = Cosine()
    generate(exact_remainder, schedule, walk, TRUTH, attrition=Rescale(0.3), generator=generator, on_move=seen)
    for move, x in zip(walk, seen.states, strict=True):
        for gene, x0 in enumerate(TRUTH[0].int().tolist()):
            assert_follows(x[:, gene], stats.binom(x0, schedule.survival(move.s).item()))


@pytest.mark.parametrize("n_steps", [1, 2, 5])
def test_the_exact_poisson_denoiser_generates_poisson_counts(n_steps, schedule, generator, assert_follows):
    rates = torch.tensor([0.2, 3.0, 25.0])
    denoise = lambda x, status, t: Prediction(((1 - schedule.survival(t)).to(x)[:, None] * rates).log().expand_as(x))
    drawn = generate(
        denoise,
        schedule,
        reverse_walk(n_steps),
        torch.zeros(N, 3),
        attrition=Rescale(0.4),
        rounding="poisson",
        generator=generator,
    )
    for gene, rate in enumerate(rates.tolist()):
        assert_follows(drawn[:, gene], stats.poisson(rate))


@pytest.mark.parametrize("n_steps", [1, 2, 5])
def test_the_exact_nb_denoiser_generates_nb_counts(n_steps, schedule, generator, assert_follows, negative_binomial):
    mu, theta = torch.tensor([0.5, 6.0]), torch.tensor([0.4, 2.5])

    def denoise(x, status, t):
        p = schedule.survival(t).to(x)[:, None]
        shape = theta + x  # Gamma(theta, theta / mu), after x counts were seen with probability p
        return Prediction(((1 - p) * shape / (theta / mu + p)).log(), shape.log())

    drawn = generate(
        denoise,
        schedule,
        reverse_walk(n_steps),
        torch.zeros(N, 2),
        attrition=Rescale(0.4),
        rounding="nb",
        generator=generator,
    )
    for gene in range(2):
        assert_follows(drawn[:, gene], negative_binomial(mu[gene].item(), theta[gene].item()))


def test_without_attrition_counts_only_grow(generator):
    seen = Recorder()
    args = (exact_remainder, Cosine(), reverse_walk(6), TRUTH)
    generate(*args, attrition=Rescale(0.0), generator=generator, on_move=seen)
    assert all((later >= earlier).all() for earlier, later in zip(seen.states, seen.states[1:], strict=False))
    seen = Recorder()
    generate(*args, attrition=Max(), generator=generator, on_move=seen)
    assert any((later < earlier).any() for earlier, later in zip(seen.states, seen.states[1:], strict=False))


def test_attrition_of_each_gene(generator, assert_follows):
    rates = torch.zeros(6, 4)
    rates[:, 3] = 0.8  # only the last gene dies
    rates[3:, 2] = 0.5  # and the one before it from the fourth move on
    seen = Recorder()
    walk = reverse_walk(6)
    status = torch.full_like(TRUTH, NOISED)
    status[:, 0] = MISSING  # rates must still go to the right genes
    sample(
        exact_remainder, Cosine(), walk, TRUTH * 0, status, attrition=PerStep(rates), generator=generator, on_move=seen
    )
    falls = [(later < earlier).any(0) for earlier, later in zip(seen.states, seen.states[1:], strict=False)]
    assert not torch.stack(falls)[:, :2].any()
    assert [bool(fall[2]) for fall in falls] == [False, False, True, True, False]  # none in a move to the data
    assert [bool(fall[3]) for fall in falls] == [True, True, True, True, False]
    for move, x in zip(walk, seen.states, strict=True):
        for gene in (1, 2, 3):
            assert_follows(x[:, gene], stats.binom(int(TRUTH[0, gene]), Cosine().survival(move.s).item()))


def test_rates_for_another_walk_raise_before_the_first_step():
    calls = []
    for walk in (reverse_walk(5), reverse_walk(7), reverse_walk(6, n_resamples=2)):
        with pytest.raises(ValueError, match="has 6 rates, but the walk has (5|7|12) reverse moves"):
            sample(
                lambda *args: calls.append(args),
                Cosine(),
                walk,
                TRUTH * 0,
                TRUTH * 0,
                attrition=PerStep(torch.zeros(6)),
            )
    assert not calls


@pytest.mark.parametrize("walk", [reverse_walk(4), reverse_walk(3, 2, 3)], ids=["once", "resampled"])
def test_attrition_is_asked_for_each_reverse_move_in_turn(walk, generator):
    asked = []

    class Noting(Attrition):
        def _sigma(self, sigma_max, step):
            asked.append(step)
            return 0 * sigma_max

    x0, status = imputation_problem()
    sample(poisson_denoiser, Cosine(), walk, x0, status, attrition=Noting(), generator=generator)
    assert asked == list(range(sum(map(is_denoising, walk))))


def test_attrition_of_each_entry(generator):
    rates = torch.zeros(3, N, 4)
    rates[:, : N // 2, 1] = 1.0  # in half of the cells, the gene with a single count is drawn anew where it can be
    seen = Recorder()
    args = (exact_remainder, Cosine(), reverse_walk(3), TRUTH)
    generate(*args, attrition=PerStep(rates), generator=generator, on_move=seen)
    falls = seen.states[1] < seen.states[0]
    assert falls[: N // 2, 1].any() and not falls[N // 2 :].any() and not falls[:, [0, 2, 3]].any()


# Observed, missing, noised ------------------------------------------------------------------------------------------


def imputation_problem() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    x0 = torch.randint(0, 30, (60, 9), generator=generator).float()
    x0[0, 0] = 2**24 - 1
    status = torch.tensor([OBSERVED, NOISED, MISSING])[torch.randint(0, 3, (60, 9), generator=generator)]
    status[0, 0] = OBSERVED
    return x0, status


def poisson_denoiser(x, status, t) -> Prediction:
    """A made-up network whose prediction depends on all it is shown."""
    return Prediction((1 + 0.1 * x.mean(1, keepdim=True) + (status == OBSERVED) - t[:, None] / 2).log().expand_as(x))


@pytest.mark.parametrize("known", ["clean", "noised"])
@pytest.mark.parametrize("walk", [reverse_walk(1), reverse_walk(5), reverse_walk(4, 2, 3)], ids=["1", "5", "4x3"])
def test_observed_counts_come_back_and_missing_ones_stay_zero(known, walk, generator):
    x0, status = imputation_problem()
    untouched = x0.clone()
    drawn = sample(
        poisson_denoiser, Cosine(), walk, x0, status, attrition=Rescale(0.1), known=known, generator=generator
    )
    assert torch.equal(drawn[status == OBSERVED], x0[status == OBSERVED])
    assert not drawn[status == MISSING].any()
    filled = drawn[status == NOISED]
    assert filled.any() and torch.equal(filled, filled.round())
    assert torch.equal(x0, untouched) and drawn.dtype == x0.dtype


@pytest.mark.parametrize("known", ["clean", "noised"])
def test_what_stands_in_other_entries_is_not_looked_at(known):
    x0, status = imputation_problem()
    draw = lambda x0: sample(
        poisson_denoiser,
        Cosine(),
        reverse_walk(4),
        x0,
        status,
        attrition=Rescale(0.1),
        known=known,
        generator=torch.Generator().manual_seed(1),
    )
    assert torch.equal(draw(x0.masked_fill(status != OBSERVED, torch.nan)), draw(x0))


@pytest.mark.parametrize("known", ["clean", "noised"])
def test_what_the_network_is_shown(known, generator):
    x0, status = imputation_problem()
    calls = []

    def denoise(x, seen_as, t):
        calls.append((x, seen_as, t))
        return poisson_denoiser(x, seen_as, t)

    schedule = Blackout(n_grid=9)
    walk = reverse_walk(5, n_resamples=2)
    sample(denoise, schedule, walk, x0, status, attrition=Rescale(0.1), known=known, generator=generator)
    times = [schedule.snap(move.t).item() for move in walk if is_denoising(move)]
    assert [t.tolist() for _, _, t in calls] == [[t] * 60 for t in times]
    is_observed = status == OBSERVED
    for x, seen_as, _ in calls:
        assert not x[status == MISSING].any()
        if known == "clean":
            assert torch.equal(seen_as, status)
            assert torch.equal(x[is_observed], x0[is_observed])
        else:
            assert torch.equal(seen_as, status.masked_fill(is_observed, NOISED))
            assert (x[is_observed] <= x0[is_observed]).all()
    assert not calls[0][0][status == NOISED].any(), "at t = 1 nothing is there"
    if known == "noised":
        shares = [(x[is_observed].sum() / x0[is_observed].sum()).item() for x, _, _ in calls]
        n = x0[is_observed].sum().item()
        for share, t in zip(shares, times, strict=True):
            p = schedule.survival(t).item()
            assert share == pytest.approx(p, abs=5 * (p * (1 - p) / n) ** 0.5)


@pytest.mark.parametrize("rounding", ["random", "nearest", "poisson", "nb"])
def test_the_generator_decides_every_draw(rounding):
    x0, status = imputation_problem()
    denoise = lambda x, status, t: Prediction(poisson_denoiser(x, status, t).log_mean, torch.ones_like(x))
    draw = lambda seed: sample(
        denoise,
        Cosine(),
        reverse_walk(3, n_resamples=2),
        x0,
        status,
        attrition=Rescale(0.3),
        rounding=rounding,
        known="noised",
        generator=torch.Generator().manual_seed(seed),
    )
    first = draw(1)
    torch.rand(7)
    assert torch.equal(draw(1), first)
    assert not torch.equal(draw(2), first)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_states_on_the_way_are_not_changed_later(share, generator):
    """Whoever watches may keep what it is shown."""
    x0, _ = imputation_problem()
    status = torch.where(torch.rand(x0.shape, generator=generator) < share, NOISED, OBSERVED)
    copies, states = [], []

    def watch(move, x):
        states.append(x)
        copies.append(x.clone())

    sample(
        poisson_denoiser,
        Cosine(),
        reverse_walk(4, n_resamples=2),
        x0,
        status,
        attrition=Rescale(0.0),
        generator=generator,
        on_move=watch,
    )
    assert all(torch.equal(state, copy) for state, copy in zip(states, copies, strict=True))


def test_cells_may_be_stored_by_columns(generator):
    """As they are when genes were picked from a larger matrix."""
    x0, status = imputation_problem()
    draw = lambda x0, status: sample(
        poisson_denoiser,
        Cosine(),
        reverse_walk(3, n_resamples=2),
        x0,
        status,
        attrition=PerStep(torch.linspace(0, 1, 54).reshape(6, 9)),
        known="noised",
        generator=torch.Generator().manual_seed(0),
    )
    by_columns = [tensor.T.contiguous().T for tensor in (x0, status)]
    assert not by_columns[0].is_contiguous()
    assert torch.equal(draw(*by_columns), draw(x0, status))


# The mean -----------------------------------------------------------------------------------------------------------


def test_mean_in_one_step_is_the_prediction_at_the_last_time():
    x0, status = imputation_problem()
    found = sample(poisson_denoiser, Cosine(), reverse_walk(1), x0, status, attrition=Rescale(0.0), final="mean")
    shown = x0.masked_fill(status != OBSERVED, 0)
    expected = poisson_denoiser(shown, status, torch.ones(60)).mean
    fill = status == NOISED
    assert torch.equal(found[fill], expected[fill])
    assert torch.equal(found[~fill], shown[~fill])


@pytest.mark.parametrize("walk", [reverse_walk(3), reverse_walk(3, n_resamples=3)], ids=["once", "resampled"])
def test_only_the_last_draw_is_replaced_by_its_mean(walk):
    x0 = torch.zeros(200, 5)
    status = torch.full_like(x0, NOISED)
    schedule = Cosine()

    def draw(final):
        seen, predictions = Recorder(), []

        def denoise(x, status, t):
            predictions.append(poisson_denoiser(x, status, t))
            return predictions[-1]

        generator = torch.Generator().manual_seed(2)
        args = (denoise, schedule, walk, x0, status)
        sample(*args, attrition=Rescale(0.3), final=final, generator=generator, on_move=seen)
        return seen.states, predictions[-1].mean

    (states, remaining), (drawn, _) = draw("mean"), draw("sample")
    for mean_state, drawn_state in zip(states[:-1], drawn[:-1], strict=True):
        assert torch.equal(mean_state, drawn_state)
    # To the data, nothing dies and all that remains is born.
    torch.testing.assert_close(states[-1], states[-2] + remaining)
    assert not torch.equal(states[-1], states[-1].round())


@pytest.mark.parametrize("final", ["sample", "mean", "log_mean"])
def test_predictions_that_have_run_away_raise(final):
    denoise = lambda x, status, t: Prediction(torch.full_like(x, float("inf")))
    with pytest.raises(ValueError, match="predicts a count of inf: it has run away"):
        generate(denoise, Cosine(), reverse_walk(1), torch.zeros(2, 3), attrition=Rescale(0.0), final=final)


def test_other_endings_raise():
    with pytest.raises(ValueError, match="`final` must be 'sample', 'mean' or 'log_mean', not 'median'"):
        generate(poisson_denoiser, Cosine(), reverse_walk(1), torch.zeros(2, 3), attrition=Rescale(0.0), final="median")


# Time grids ---------------------------------------------------------------------------------------------------------


def test_more_steps_than_the_grid_has_raise():
    schedule = Blackout(n_grid=6)
    generate(poisson_denoiser, schedule, reverse_walk(5), torch.zeros(2, 3), attrition=Rescale(0.0))
    for n_steps in (6, 7, 100):
        with pytest.raises(ValueError, match="more steps"):
            generate(poisson_denoiser, schedule, reverse_walk(n_steps), torch.zeros(2, 3), attrition=Rescale(0.0))
