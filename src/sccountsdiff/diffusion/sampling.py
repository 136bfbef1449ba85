"""The reverse process (Algorithm 2): one loop for generation and, with observed entries, for RePaint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from sccountsdiff.checks import one_of
from sccountsdiff.diffusion.attrition import Attrition
from sccountsdiff.diffusion.expectation import log_mean
from sccountsdiff.diffusion.host import only_where, positions_of
from sccountsdiff.diffusion.prediction import NOISED, OBSERVED, Prediction
from sccountsdiff.diffusion.process import birth_probability, survivors, thin
from sccountsdiff.diffusion.repaint import Known, show_observed
from sccountsdiff.diffusion.rounding import ROUNDINGS, checked_mean
from sccountsdiff.diffusion.schedules import Schedule
from sccountsdiff.diffusion.walk import Move

Final = Literal["sample", "mean", "log_mean"]
FINALS = get_args(Final)


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
    generator: torch.Generator | Sequence[torch.Generator] | None = None,
    on_move: Callable[[Move, Tensor], None] | None = None,
    on_last: Callable[[Tensor, Prediction], None] | None = None,
) -> Tensor:
    """Walk from nothing to counts (Algorithm 2), while what is observed stays (RePaint).

    Parameters
    ----------
    denoise
        Prediction for ``(x, status, t)``; :func:`guide` makes one.
    schedule
        Survival schedule.
    walk
        Moves from t = 1 to t = 0 (:func:`reverse_walk`).
    x0
        The observed counts, ``(cells, genes)``; other entries are ignored.
    status
        For each entry :data:`OBSERVED`, :data:`NOISED` (to be filled in) or :data:`MISSING` (stays 0).
    attrition
        Attrition schedule.
    rounding
        How births are drawn (:func:`draw_births`).
    known
        How observed entries are shown to the network: ``"clean"`` or ``"noised"`` (:func:`show_observed`).
    final
        ``"mean"`` adds the expected births instead of drawn ones in the last move; ``"log_mean"`` gives the guess of the
        counts after it that is best on the scale of ``log1p`` (:func:`log_mean`).
    generator
        Source of randomness. Of several, each is that of as many cells, one after the other: copies of some cells, say, which
        are drawn together as each would be by itself.
    on_move
        Called with every move and the state after it, for those who want to watch.
    on_last
        Called before the last move is drawn with the counts that are there and the law of all that are still to come, as
        vectors of the sites (:class:`Outcome`); once for each generator. Unless somebody watches, the last move is not made
        then.

    Returns
    -------
    Counts, ``(cells, genes)``: ``x0`` where observed, filled in at the sites, 0 where missing.

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
    one_of("rounding", rounding, ROUNDINGS.names())
    attrition.check(sum(move.s < move.t for move in walk))
    # Times and rates are computed on the host, of which no step has to ask the device.
    times = torch.tensor([(move.t, move.s) for move in walk], dtype=torch.float64, device="cpu")  # (moves, 2)
    times = schedule.snap(times)
    if (times[:, 0] == times[:, 1]).any():
        raise ValueError(f"The walk has more steps than there are between the time points of {schedule}.")
    survival = schedule.survival(times)
    generators = generator if isinstance(generator, Sequence) else [generator]
    sites, is_clean = _Sites(status, len(generators)), known == "clean"
    drawn = partial(_drawn, sites.parts, generators)
    # At t = 1 nothing is left; entries that are shown as they are stand in the state from the start.
    x = torch.zeros_like(x0) if sites.are_all or not is_clean else only_where(status == OBSERVED, x0)
    step = 0
    for number, move in enumerate(walk):
        p_t, p_s = survival[number]
        if move.s > move.t:
            # RePaint's resampling: back into the noise (Eq. 5).
            x = sites.put(x, drawn(thin, sites.of(x), float(p_s / p_t)))
        else:
            # What the network is shown, and what it expects to come.
            shown, shown_status = x, status
            if not is_clean:
                cells = (values.chunk(len(generators)) for values in (x, x0, status))
                show = partial(show_observed, p_t=float(p_t), known=known)
                parts = [show(*some, generator=own) for *some, own in zip(*cells, generators, strict=True)]
                shown, shown_status = (torch.cat(values) for values in zip(*parts, strict=True))
            t = torch.full((len(x),), float(times[number, 0]), dtype=x.dtype, device=x.device)
            prediction = denoise(shown, shown_status, t).map(sites.of)
            # Deaths and births of Prop. 3.2.
            sigma = attrition.sigma(p_t, p_s, step)
            beta = sites.of_rates(birth_probability(p_t, p_s, sigma), x)
            n = sites.of(x)
            if sigma.any():
                n = drawn(survivors, n, sites.of_rates(sigma, x))
            if on_last is not None and number == len(walk) - 1:
                for own in sites.parts:
                    on_last(_part(n, own), _part(prediction, own))  # all that remains is born now: beta is 1
                if on_move is None:
                    return x
            if final == "sample" or number < len(walk) - 1:
                filled = n + drawn(partial(_births, rounding), prediction, checked_mean(prediction), beta)
            elif final == "mean":
                filled = torch.addcmul(n, beta, checked_mean(prediction))
            else:
                filled = log_mean(prediction, n, beta)
            x = sites.put(x, filled)
            step += 1
        if on_move is not None:
            on_move(move, x if not is_clean else x.masked_fill(status == OBSERVED, 0))
    return x if is_clean else torch.where(status == OBSERVED, x0, x)


def _drawn(
    parts: Sequence[slice], generators: Sequence[torch.Generator | None], draw: Callable[..., Tensor], *values: Any
) -> Tensor:
    """What is drawn at the sites given some values of theirs, which each generator does for its own part."""
    if len(generators) == 1:
        return draw(*values, generator=generators[0])
    of_parts = zip(parts, generators, strict=True)
    return torch.cat([draw(*(_part(value, own) for value in values), generator=source) for own, source in of_parts])


def _births(
    rounding: str, prediction: Prediction, mean: Tensor, beta: Tensor, *, generator: torch.Generator | None
) -> Tensor:
    """As :func:`draw_births`, of a mean that was checked for all chains at once."""
    return ROUNDINGS[rounding](prediction, mean, beta.to(mean.dtype), generator)


def _part(value: Any, own: slice) -> Any:
    """Some of the sites: of a law, of a vector, or what holds for all."""
    if isinstance(value, Prediction):
        return value.map(lambda values: values[own])
    return value[own] if isinstance(value, Tensor) and value.ndim else value


class _Sites:
    """The entries to fill in, as a flat vector. Where they are is looked up once, not in every step.

    ``parts`` are those of as many cells each, one for each generator.
    """

    def __init__(self, status: Tensor, n_parts: int):
        index = positions_of(NOISED, status)
        self.parts = [slice(None)]
        if n_parts > 1:
            edges = torch.arange(n_parts + 1, device=index.device) * (status.numel() // n_parts)
            self.parts = [slice(*edge) for edge in pairwise(torch.searchsorted(index, edges).tolist())]
        self.are_all = len(index) == status.numel()
        self._index = None if self.are_all else index

    def of(self, x: Tensor) -> Tensor:
        """The entries of ``x`` at the sites."""
        return x.reshape(-1) if self._index is None else x.reshape(-1).index_select(0, self._index)

    def of_rates(self, rates: Tensor, x: Tensor) -> Tensor:
        """Rates at the sites, from one number for all, or one for each gene or entry of ``x``."""
        if rates.ndim == 0 and rates.device.type == "cpu":  # a number, which needs no copy to be waited for
            return torch.full((), float(rates), dtype=x.dtype, device=x.device)
        rates = rates.to(x)
        return rates if rates.ndim == 0 else self.of(rates.expand_as(x))

    def put(self, x: Tensor, values: Tensor) -> Tensor:
        """A new tensor: ``x`` with other values at the sites."""
        values = values.to(x.dtype)
        if self._index is None:
            return values.view_as(x)
        return x.reshape(-1).index_copy(0, self._index, values).view_as(x)
