"""Walks lead from noise to data in connected moves, however often a stretch is walked again."""

from __future__ import annotations

import pytest
import torch

from sccountsdiff.diffusion import (
    NOISED,
    Cosine,
    Fisher,
    Move,
    Prediction,
    Rescale,
    follow,
    reverse_walk,
    sample,
    step_times,
)


def is_denoising(move: Move) -> bool:
    return move.s < move.t


@pytest.mark.parametrize("n_steps", [1, 2, 7, 1000])
def test_as_many_moves_as_steps(n_steps):
    walk = reverse_walk(n_steps)
    assert len(walk) == n_steps and all(map(is_denoising, walk))
    assert [move.t - move.s for move in walk] == pytest.approx([1 / n_steps] * n_steps)


@pytest.mark.parametrize("n_steps", [1, 6, 19])
@pytest.mark.parametrize("jump_length", [1, 2, 4, 50])
@pytest.mark.parametrize("n_resamples", [1, 2, 5])
def test_walks_are_connected_and_resampling_repeats_every_step(n_steps, jump_length, n_resamples):
    walk = reverse_walk(n_steps, jump_length, n_resamples)
    assert walk[0].t == 1 and walk[-1].s == 0
    assert all(before.s == after.t for before, after in zip(walk, walk[1:], strict=False))
    denoising = [move for move in walk if is_denoising(move)]
    assert len(denoising) == n_steps * n_resamples
    for step in reverse_walk(n_steps):
        assert denoising.count(step) == n_resamples
    jumps = [move for move in walk if not is_denoising(move)]
    assert len(jumps) == -(-n_steps // jump_length) * (n_resamples - 1)
    assert all(move.s - move.t <= min(jump_length, n_steps) / n_steps + 1e-12 for move in jumps)


def test_repaint_of_the_paper():
    walk = reverse_walk(19, jump_length=1, n_resamples=3)
    assert sum(map(is_denoising, walk)) == 57
    assert len(walk) == 57 + 2 * 19


@pytest.mark.parametrize("schedule", [Cosine(), Fisher()])
@pytest.mark.parametrize("n_steps", [2, 3, 8, 50])
def test_counts_grow_by_one_factor_in_geometric_steps(schedule, n_steps):
    times = step_times(schedule, n_steps, "geometric")
    assert times[0] == 1 and times[-1] == 0 and len(times) == n_steps + 1
    shares = schedule.survival(torch.tensor(times[1:], dtype=torch.float64))
    assert float(shares[0]) == pytest.approx(1 / 256)
    factors = shares[1:] / shares[:-1]
    assert factors.tolist() == pytest.approx([256 ** (1 / (n_steps - 1))] * (n_steps - 1))
    walk = reverse_walk(n_steps, 2, 2, times=times)
    assert walk[0].t == 1 and walk[-1].s == 0
    assert all(before.s == after.t for before, after in zip(walk, walk[1:], strict=False))


def test_times_are_one_more_than_steps():
    with pytest.raises(ValueError, match="one more than `n_steps=3`, not 3"):
        reverse_walk(3, times=[1.0, 0.5, 0.0])


def test_one_geometric_step_is_the_even_one():
    assert step_times(Cosine(), 1, "geometric") == step_times(Cosine(), 1, "even") == [1.0, 0.0]


def test_geometric_steps_keep_what_genes_have_in_common():
    """Twenty Poisson counts of one gamma rate, whose posterior is known: the total of the exact law has variance n m + n^2 v.

    Counts that appear in one step are independent of each other given those before. The standard error of a variance of
    20,000 totals is within 3 % of it (twice that of a normal, whose is 1 %): differences of a third are not chance.
    """
    n_genes, shape, rate = 20, 4.0, 1.0
    n_cells, mean, variance = 20_000, shape / rate, shape / rate**2

    def denoise(x, status, t):
        p = Cosine().survival(t)[:, None]
        total = x.sum(1, keepdim=True)
        expected = (1 - p) * (shape + total) / (rate + n_genes * p)
        return Prediction(expected.log().float().expand_as(x), (shape + total).log().expand_as(x))

    def spread(n_steps, spacing):
        walk = reverse_walk(n_steps, times=step_times(Cosine(), n_steps, spacing))
        options = {"attrition": Rescale(0.0), "rounding": "nb", "generator": torch.Generator().manual_seed(0)}
        nothing = torch.zeros(n_cells, n_genes)
        totals = sample(denoise, Cosine(), walk, nothing, torch.full_like(nothing, NOISED), **options).sum(1)
        assert float(totals.mean()) == pytest.approx(n_genes * mean, rel=0.03)
        return float(totals.var()) / (n_genes * mean + n_genes**2 * variance)

    few, more = spread(3, "geometric"), spread(8, "geometric")
    assert spread(3, "even") < 0.75 * few < few < more < 1
    assert more > 0.9 * spread(15, "even")


@pytest.mark.parametrize("name", ["n_steps", "jump_length", "n_resamples"])
@pytest.mark.parametrize("value", [0, -1, 1.5, 2.0, None, "3"])
def test_bad_walks_raise(name, value):
    given = value if isinstance(value, int) else repr(value)
    with pytest.raises(ValueError, match=f"`{name}` must be a whole number of at least 1, not {given}"):
        reverse_walk(**({"n_steps": 3} | {name: value}))


# Following a walk ---------------------------------------------------------------------------------------------------


def path_of(walk, **kwargs):
    return follow(walk, "", lambda path, k: path + f" {k}", lambda path, k: path + f" ({k})", **kwargs)


def test_moves_are_made_in_turn_and_by_their_direction():
    assert path_of(reverse_walk(3)) == " 0 1 2"
    assert path_of(reverse_walk(2, jump_length=1, n_resamples=2)) == " 0 (1) 2 3 (4) 5"
    assert path_of([]) == ""


def test_every_move_is_told_with_the_state_after_it():
    walk, told = reverse_walk(2, jump_length=2, n_resamples=2), []
    end = path_of(walk, on_move=lambda move, state: told.append((move, state)))
    assert [move for move, _ in told] == walk
    assert [state for _, state in told] == [" 0", " 0 1", " 0 1 (2)", " 0 1 (2) 3", " 0 1 (2) 3 4"]
    assert told[-1][1] == end


@pytest.mark.parametrize(("n_steps", "jump_length", "n_resamples"), [(1, 1, 1), (7, 2, 3), (19, 1, 3)])
def test_what_is_followed_ends_where_the_walk_does(n_steps, jump_length, n_resamples):
    walk = reverse_walk(n_steps, jump_length, n_resamples)
    time = follow(walk, 1.0, lambda t, k: walk[k].s, lambda t, k: walk[k].s)
    assert time == 0


def test_moves_do_not_change():
    with pytest.raises(AttributeError):
        reverse_walk(2)[0].t = 0.3
