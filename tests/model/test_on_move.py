"""Watching a draw being made changes nothing of it, and shows all of it."""

import numpy as np
import pytest


@pytest.fixture
def watch():
    seen = []
    return seen, lambda move, state: seen.append((move, state.numpy()))


def test_imputation_is_watched_from_nothing_to_what_is_returned(model, sites, dense, watch):
    seen, on_move = watch
    options = {"sites": sites, "n_samples": 1, "n_steps": 4, "seed": 3, "key_added": None, "silent": True}
    unwatched = dense(model.impute(**options))
    watched = dense(model.impute(**options, on_move=on_move))
    np.testing.assert_array_equal(watched, unwatched)
    assert [(move.t, move.s) for move, _ in seen] == [(1, 0.75), (0.75, 0.5), (0.5, 0.25), (0.25, 0)]
    np.testing.assert_array_equal(seen[-1][1][sites], watched[sites])
    assert all((state[~sites] == 0).all() for _, state in seen), "only what is filled in moves"


def test_each_block_and_draw_is_watched_in_turn(model, sites, watch):
    seen, on_move = watch
    draws = model.impute(
        sites=sites, n_samples=2, n_steps=3, batch_size=30, return_mean=False, key_added=None, silent=True, on_move=on_move
    )  # fmt: skip
    assert [state.shape[0] for _, state in seen] == [30] * 6 + [20] * 6
    ends = [state for move, state in seen if move.s == 0]
    for k in range(2):
        np.testing.assert_array_equal(np.concatenate([ends[k], ends[2 + k]])[sites], draws[k][sites])


def test_generation_is_watched(model, watch):
    seen, on_move = watch
    cells = model.generate(5, n_steps=3, seed=0, silent=True, on_move=on_move)
    assert [move.s for move, _ in seen] == pytest.approx([2 / 3, 1 / 3, 0])
    np.testing.assert_array_equal(seen[-1][1], cells.X.toarray())
