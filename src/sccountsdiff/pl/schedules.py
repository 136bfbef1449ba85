"""The two curves that make a schedule: what is left at each time, and how much each time counts in training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes

from sccountsdiff.diffusion import Schedule, get_schedule
from sccountsdiff.pl.figure import colour, finish, own_axes

TIMES = np.linspace(0, 1, 501)
NAMES = ("cosine", "fisher")


def survival(
    schedules: Sequence[str | Schedule] = NAMES,
    *,
    ax: Axes | None = None,
    show: bool | None = None,
    save: str | Path | None = None,
) -> Axes:
    """Share p(t) of the counts that is left at time t, a line for each schedule.

    Parameters
    ----------
    schedules
        Names or :class:`~sccountsdiff.diffusion.Schedule` objects.
    ax, show, save
        As in :func:`history`.

    Returns
    -------
    The axes that were drawn into.

    Examples
    --------
    >>> import sccountsdiff
    >>> ax = sccountsdiff.pl.survival(["cosine"], show=False)
    >>> ax.get_ylabel()
    'Share of counts left, p(t)'
    """
    return _curves(schedules, "survival", "Share of counts left, p(t)", ax, show, save)


def loss_weight(
    schedules: Sequence[str | Schedule] = NAMES,
    *,
    ax: Axes | None = None,
    show: bool | None = None,
    save: str | Path | None = None,
) -> Axes:
    """Weight w(t) of time t in the training loss, a line for each schedule.

    Parameters
    ----------
    schedules
        Names or :class:`~sccountsdiff.diffusion.Schedule` objects.
    ax, show, save
        As in :func:`history`.

    Returns
    -------
    The axes that were drawn into.

    Examples
    --------
    >>> import sccountsdiff
    >>> ax = sccountsdiff.pl.loss_weight(["cosine"], show=False)
    >>> ax.get_ylabel()
    'Loss weight w(t)'
    """
    return _curves(schedules, "weight", "Loss weight w(t)", ax, show, save)


def _curves(
    schedules: Sequence[str | Schedule],
    what: str,
    label: str,
    ax: Axes | None,
    show: bool | None,
    save: str | Path | None,
) -> Axes:
    if isinstance(schedules, str | Schedule):
        schedules = [schedules]
    found = [get_schedule(schedule) for schedule in schedules]
    ax, is_own = own_axes(ax)
    for number, (given, schedule) in enumerate(zip(schedules, found, strict=True)):
        values = getattr(schedule, what)(torch.from_numpy(TIMES))
        ax.plot(TIMES, values.numpy(), color=colour(number), label=given if isinstance(given, str) else repr(given))
    ax.set(xlabel="Time t", ylabel=label, xlim=(0, 1))
    ax.set_ylim(bottom=0)
    ax.legend(frameon=False)
    return finish(ax, is_own, show, save)
