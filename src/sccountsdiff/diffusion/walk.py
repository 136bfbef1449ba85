"""The reverse walk as data: which moves it makes between noise and counts, with RePaint's jumps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeVar

import torch

from sccountsdiff.checks import one_of, whole_number
from sccountsdiff.diffusion.schedules import Schedule

T = TypeVar("T")

SPACINGS = ("even", "geometric")
FIRST_SHARE = 1 / 256
"""Share of the counts that the first of geometric steps brings in."""


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


def step_times(schedule: Schedule, n_steps: int, spacing: Literal["even", "geometric"] = "even") -> list[float]:
    """The times between which a walk makes its steps, from 1 to 0.

    Counts that appear in one step do not know of each other, and what the genes of a cell have in common is settled by the
    first of them: the fewer appear at once, the better genes go together. Geometric steps take the first counts apart, so
    that a few of them do what takes many even ones.

    Parameters
    ----------
    schedule
        Share of the counts that is there at each time.
    n_steps
        Number of steps.
    spacing
        ``"even"``: steps are equally long. ``"geometric"``: after the first, which brings in a small share, the counts that
        are there grow by the same factor in each.

    Returns
    -------
    One time more than steps.

    Examples
    --------
    >>> from sccountsdiff.diffusion import Cosine, step_times
    >>> step_times(Cosine(), 2)
    [1.0, 0.5, 0.0]

    From nothing to 1 / 256 of the counts, to 1 / 16, to all:

    >>> [round(time, 3) for time in step_times(Cosine(), 3, "geometric")]
    [1.0, 0.96, 0.839, 0.0]
    """
    n_steps = whole_number("n_steps", n_steps)
    one_of("spacing", spacing, SPACINGS)
    if spacing == "even" or n_steps == 1:
        return _even(n_steps)
    shares = FIRST_SHARE ** torch.linspace(1, 0, n_steps, dtype=torch.float64, device="cpu")
    return [1.0, *schedule.time_of(shares[:-1]).tolist(), 0.0]


def reverse_walk(
    n_steps: int, jump_length: int = 1, n_resamples: int = 1, *, times: Sequence[float] | None = None
) -> list[Move]:
    """The moves from t = 1 to t = 0 in ``n_steps`` steps.

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
    times
        Times between the steps, from 1 to 0 (:func:`step_times`). Default: equally long steps.

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
    times = _even(n_steps) if times is None else times
    if len(times) != n_steps + 1:
        raise ValueError(f"`times` must be one more than `n_steps={n_steps}`, not {len(times)}.")
    walk = []
    for first in range(0, n_steps, jump_length):
        last = min(first + jump_length, n_steps)
        stretch = [Move(t, s) for t, s in pairwise(times[first : last + 1])]
        back = Move(times[last], times[first])
        for repeat in range(n_resamples):
            walk += [back, *stretch] if repeat else stretch
    return walk


def _even(n_steps: int) -> list[float]:
    return [k / n_steps for k in range(n_steps, -1, -1)]


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
