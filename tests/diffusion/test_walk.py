"""Walks lead from noise to data in connected moves, however often a stretch is walked again."""

from __future__ import annotations

import pytest

from sccountsdiff.diffusion import Move, follow, reverse_walk


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
