"""The reverse walk, and the one loop that walks it: for generation and, with known entries, for RePaint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar

import torch
from torch import Tensor

from sccountsdiff.checks import one_of, whole_number
from sccountsdiff.diffusion.attrition import Attrition
from sccountsdiff.diffusion.prediction import NOISED, OBSERVED, Prediction
from sccountsdiff.diffusion.process import birth_probability, survivors, thin
from sccountsdiff.diffusion.repaint import Known, show_observed
from sccountsdiff.diffusion.rounding import checked_mean, draw_births
from sccountsdiff.diffusion.schedules import Schedule

Final = Literal["sample", "mean"]
FINALS = ("sample", "mean")
State = TypeVar("State")


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
        For each entry :data:`OBSERVED`, :data:`NOISED` (to be filled in) or :data:`MISSING` (stays 0).
    attrition
        Attrition schedule.
    rounding
        How births are drawn (:func:`draw_births`).
    known
        How known entries are shown to the network: ``"clean"`` or ``"noised"`` (:func:`show_observed`).
    final
        ``"mean"`` adds the expected births instead of drawn ones in the last move.
    generator
        Source of randomness.
    on_move
        Called with every move and the state after it, for those who want to watch.

    Returns
    -------
    Counts, ``(cells, genes)``: ``x0`` where known, filled in where asked for, 0 where missing.

    Examples
    --------
    >>> import torch
    >>> from sccountsdiff.diffusion import OBSERVED, NOISED, Cosine, Prediction, Rescale, reverse_walk, sample
    >>> def denoise(x, status, t):
    ...     return Prediction(torch.full_like(x, 3.0).log())
    >>> x0, status = torch.tensor([[7.0, 0.0]]), torch.tensor([[OBSERVED, NOISED]])
    >>> sample(denoise, Cosine(), reverse_walk(1), x0, status, attrition=Rescale(0.0), rounding="nearest").tolist()
    [[7.0, 3.0]]
    """
    one_of("final", final, FINALS)
    reverse_moves = [number for number, move in enumerate(walk) if move.s < move.t]
    step_of = {number: step for step, number in enumerate(reverse_moves)}  # jumps into the noise do not count
    attrition.check(len(reverse_moves))
    times = schedule.snap(torch.tensor([(move.t, move.s) for move in walk], dtype=torch.float64))  # (moves, 2)
    if (times[:, 0] == times[:, 1]).any():
        raise ValueError(f"The walk has more steps than there are between the time points of {schedule}.")
    survival = schedule.survival(times)
    filled = _Selection(status == NOISED)

    def towards_data(x: Tensor, number: int) -> Tensor:
        p_t, p_s = survival[number]
        shown, seen_as = show_observed(x, x0, status, float(p_t), known, generator)
        t = torch.full((len(x),), float(times[number, 0]), dtype=x.dtype, device=x.device)
        prediction = filled.of_prediction(denoise(shown, seen_as, t))
        sigma = attrition.sigma(p_t, p_s, step_of[number])
        beta = filled.of_rates(birth_probability(p_t, p_s, sigma), x)
        stay = survivors(filled.of(x), filled.of_rates(sigma, x), generator)
        is_mean = final == "mean" and number == len(walk) - 1
        births = beta * checked_mean(prediction) if is_mean else draw_births(prediction, beta, rounding, generator)
        return filled.put(x, stay + births)

    def into_noise(x: Tensor, number: int) -> Tensor:
        p_t, p_s = survival[number]
        return filled.put(x, thin(filled.of(x), float(p_s / p_t), generator))

    x = follow(walk, torch.zeros_like(x0), towards_data, into_noise, on_move)
    return torch.where(status == OBSERVED, x0, x)


class _Selection:
    """Some entries of ``(cells, genes)`` as a flat vector. Where they are is looked up once, not in every step."""

    def __init__(self, chosen: Tensor):
        self._index = None if bool(chosen.all()) else chosen.flatten().nonzero()[:, 0]

    def of(self, x: Tensor) -> Tensor:
        """The chosen entries."""
        return x.reshape(-1) if self._index is None else x.reshape(-1).index_select(0, self._index)

    def of_prediction(self, prediction: Prediction) -> Prediction:
        """The prediction of the chosen entries."""
        log_dispersion = prediction.log_dispersion
        return Prediction(self.of(prediction.log_mean), None if log_dispersion is None else self.of(log_dispersion))

    def of_rates(self, rates: Tensor, x: Tensor) -> Tensor:
        """Rates of the chosen entries from one number for all, or one for each gene or entry of ``x``."""
        rates = rates.to(x)
        return rates if rates.ndim == 0 else self.of(rates.expand_as(x))

    def put(self, x: Tensor, values: Tensor) -> Tensor:
        """A new tensor: ``x`` with other values in the chosen entries."""
        values = values.to(x.dtype)
        if self._index is None:
            return values.view_as(x)
        return x.reshape(-1).index_copy(0, self._index, values).view_as(x)
