"""The reverse walk as data: which moves it makes between noise and counts, with RePaint's jumps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from sccountsdiff.checks import whole_number

T = TypeVar("T")


@dataclass(frozen=True)
class Move:
    """One move of the walk, from time ``t`` to time ``s``: back towards the data (s < t) or into the noise (s > t).

    Parameters
    ----------
    t, s
        Time before and after the move, within [0, 1].

    Examples
    --------
    >>> from sccountsdiff.diffusion import Move
    >>> Move(t=1.0, s=0.5)
    Move(t=1.0, s=0.5)
    """

    t: float
    s: float


def reverse_walk(n_steps: int, jump_length: int = 1, n_resamples: int = 1) -> list[Move]:
    """The moves from t = 1 to t = 0 in ``n_steps`` equal steps.

    With ``n_resamples`` above 1 every stretch of ``jump_length`` steps is walked that many times, with a jump back
    into the noise in between (RePaint's resampling).

    Parameters
    ----------
    n_steps
        Reverse moves from noise to data, without those that resampling adds.
    jump_length
        Steps that a jump back into the noise undoes.
    n_resamples
        How often each stretch is walked; 1 for no resampling.

    Returns
    -------
    The moves in their order.

    Examples
    --------
    >>> from sccountsdiff.diffusion import reverse_walk
    >>> [(move.t, move.s) for move in reverse_walk(2, jump_length=2, n_resamples=2)]
    [(1.0, 0.5), (0.5, 0.0), (0.0, 1.0), (1.0, 0.5), (0.5, 0.0)]
    """
    n_steps = whole_number("n_steps", n_steps)
    jump_length = whole_number("jump_length", jump_length)
    n_resamples = whole_number("n_resamples", n_resamples)
    walk = []
    for top in range(n_steps, 0, -jump_length):
        bottom = max(top - jump_length, 0)
        stretch = [Move(k / n_steps, (k - 1) / n_steps) for k in range(top, bottom, -1)]
        back = Move(bottom / n_steps, top / n_steps)
        for repeat in range(n_resamples):
            walk += [back, *stretch] if repeat else stretch
    return walk


def follow(
    walk: list[Move],
    state: T,
    towards_data: Callable[[T, int], T],
    into_noise: Callable[[T, int], T],
    on_move: Callable[[Move, T], None] | None = None,
) -> T:
    """Make the moves of a walk one after the other, whatever it is that is diffused.

    Parameters
    ----------
    walk
        Moves (:func:`reverse_walk`).
    state
        Where the walk starts.
    towards_data, into_noise
        The state after move number ``k``, from the state before it and ``k``: for moves back in time, and for jumps into
        the noise. They return a new state and leave the old one as it is.
    on_move
        Called with every move and the state after it.

    Returns
    -------
    The state at the end.

    Examples
    --------
    >>> from sccountsdiff.diffusion import follow, reverse_walk
    >>> walk = reverse_walk(2, n_resamples=2)
    >>> follow(walk, "", lambda path, k: path + f" {walk[k].s}", lambda path, k: path + f" ({walk[k].s})")
    ' 0.5 (1.0) 0.5 0.0 (0.5) 0.0'
    """
    for number, move in enumerate(walk):
        state = into_noise(state, number) if move.s > move.t else towards_data(state, number)
        if on_move is not None:
            on_move(move, state)
    return state
