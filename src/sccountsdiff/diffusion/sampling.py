"""The reverse walk, and the one loop that walks it: for generation and, with known entries, for RePaint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Literal, TypeVar

import torch
from torch import Tensor

from sccountsdiff.diffusion.attrition import Attrition
from sccountsdiff.diffusion.denoiser import NOISED, Prediction
from sccountsdiff.diffusion.process import birth_probability, survivors, thin
from sccountsdiff.diffusion.repaint import Known, show_known
from sccountsdiff.diffusion.rounding import draw_births
from sccountsdiff.diffusion.schedules import Schedule

Final = Literal["sample", "mean"]
State = TypeVar("State")


@dataclass(frozen=True)
class Move:
    """One move of the walk, from time ``t`` to time ``s``: back towards the data (s < t) or into the noise (s > t).

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

    Examples
    --------
    >>> from sccountsdiff.diffusion import reverse_walk
    >>> [(move.t, move.s) for move in reverse_walk(2, jump_length=2, n_resamples=2)]
    [(1.0, 0.5), (0.5, 0.0), (0.0, 1.0), (1.0, 0.5), (0.5, 0.0)]
    """
    for name, value in (("n_steps", n_steps), ("jump_length", jump_length), ("n_resamples", n_resamples)):
        if value < 1 or value != int(value):
            raise ValueError(f"`{name}` must be a whole number of at least 1, not {value}.")
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
    state: State,
    towards_data: Callable[[State, int], State],
    into_noise: Callable[[State, int], State],
    on_move: Callable[[Move, State], None] | None = None,
) -> State:
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


def sample(
    denoise: Callable[[Tensor, Tensor, Tensor], Prediction],
    schedule: Schedule,
    walk: list[Move],
    x0: Tensor,
    status: Tensor,
    *,
    attrition: Attrition,
    rounding: str = "random",
    known: Known = "clean",
    final: Final = "sample",
    generator: torch.Generator | None = None,
    on_move: Callable[[Move, Tensor], None] | None = None,
) -> Tensor:
    """Walk from nothing to counts (Algorithm 2), holding on to what is known (RePaint).

    Parameters
    ----------
    denoise
        Prediction for ``(x, status, t)``; :func:`guide` makes one.
    schedule
        Survival schedule.
    walk
        Moves from t = 1 to t = 0 (:func:`reverse_walk`).
    x0
        The known counts, ``(cells, genes)``; what stands elsewhere is not looked at.
    status
        For each entry :data:`KNOWN`, :data:`NOISED` (to be filled in) or :data:`ABSENT` (stays 0).
    attrition
        Attrition schedule.
    rounding
        How births are drawn (:func:`draw_births`).
    known
        How known entries are shown to the network: ``"clean"`` or ``"noised"`` (:func:`show_known`).
    final
        ``"mean"`` adds the expected births instead of drawn ones in the last move.
    generator
        Source of randomness.
    on_move
        Called with every move and the state after it, for those who want to watch.

    Returns
    -------
    Counts, ``(cells, genes)``: ``x0`` where known, filled in where asked for, 0 where absent.

    Examples
    --------
    >>> import torch
    >>> from sccountsdiff.diffusion import KNOWN, NOISED, Cosine, Prediction, Rescale, reverse_walk, sample
    >>> def denoise(x, status, t):
    ...     return Prediction(torch.full_like(x, 3.0).log())
    >>> x0, status = torch.tensor([[7.0, 0.0]]), torch.tensor([[KNOWN, NOISED]])
    >>> sample(denoise, Cosine(), reverse_walk(1), x0, status, attrition=Rescale(0.0), rounding="nearest").tolist()
    [[7.0, 3.0]]
    """
    times = schedule.snap(torch.tensor([(move.t, move.s) for move in walk], dtype=torch.float64))  # (moves, 2)
    if (times[:, 0] == times[:, 1]).any():
        raise ValueError(f"The walk has more steps than there are between the time points of {schedule}.")
    survival = schedule.survival(times)
    fill = status == NOISED
    n_denoised = count()

    def towards_data(x: Tensor, number: int) -> Tensor:
        p_t, p_s = survival[number]
        shown, seen_as = show_known(x, x0, status, float(p_t), known, generator)
        t = torch.full((len(x),), float(times[number, 0]), dtype=x.dtype, device=x.device)
        prediction = denoise(shown, seen_as, t)[fill]
        sigma = attrition.sigma(p_t, p_s, next(n_denoised))
        beta = _per_entry(birth_probability(p_t, p_s, sigma), x, fill)
        stay = survivors(x[fill], _per_entry(sigma, x, fill), generator)
        if final == "mean" and number == len(walk) - 1:
            return _filled_in(x, fill, stay + beta * prediction.mean)
        return _filled_in(x, fill, stay + draw_births(prediction, beta, rounding, generator))

    def into_noise(x: Tensor, number: int) -> Tensor:
        p_t, p_s = survival[number]
        return _filled_in(x, fill, thin(x[fill], float(p_s / p_t), generator))

    x = follow(walk, torch.zeros_like(x0), towards_data, into_noise, on_move)
    return torch.where(status > 0, x0, x)


def _filled_in(x: Tensor, fill: Tensor, values: Tensor) -> Tensor:
    """A copy of the state with other values in the entries to be filled in."""
    return x.masked_scatter(fill, values.to(x.dtype))


def _per_entry(value: Tensor, x: Tensor, fill: Tensor) -> Tensor:
    """Rates are one number, or one for each gene or entry; the entries to be filled in are a flat selection."""
    value = value.to(x)
    return value if value.ndim == 0 else value.expand_as(x)[fill]
