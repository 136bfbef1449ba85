"""Survival schedules p(t): the share of counts that is left at time t."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor

from sccountsdiff.registry import Registry

SCHEDULES: Registry[type[Schedule]] = Registry("schedule")

BLACKOUT_LOG_P_MIN = -15.0
"""Blackout's schedule runs from ``1 - p_min`` to ``p_min`` with ``p_min = exp(-15)``."""


class Schedule(ABC):
    """A survival schedule: decreasing, ``p(0) = 1`` and ``p(1) = 0`` (Prop. 3.1).

    Subclasses define ``_curve``. Its derivative and its inverse follow from it (automatic differentiation,
    bisection) unless a subclass knows them in closed form.

    Parameters
    ----------
    n_grid
        ``None`` for continuous time. A number makes time discrete: training and sampling then only use the
        ``n_grid`` equally spaced points of [0, 1], as Blackout diffusion does.

    Examples
    --------
    >>> import torch
    >>> from sccountsdiff.diffusion import Schedule
    >>> class Linear(Schedule):
    ...     def _curve(self, t):
    ...         return 1 - t
    >>> Linear().rate(torch.tensor([0.25, 0.75])).tolist()
    [1.0, 1.0]
    """

    def __init__(self, n_grid: int | None = None):
        if n_grid is not None and n_grid < 2:
            raise ValueError(f"`n_grid` must be None (continuous time) or at least 2 time points, not {n_grid}.")
        self.n_grid = n_grid

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({settings})"

    @abstractmethod
    def _curve(self, t: Tensor) -> Tensor:
        """``p(t)`` inside (0, 1)."""

    def _slope(self, t: Tensor) -> Tensor:
        """``-p'(t)`` inside (0, 1)."""
        with torch.inference_mode(False), torch.enable_grad():
            t = t.detach().clone().requires_grad_()
            (slope,) = torch.autograd.grad(self._curve(t).sum(), t)
        return -slope

    def survival(self, t: Tensor) -> Tensor:
        """``p(t)``, the probability that a count is still there at time ``t``; exactly 1 at 0 and 0 at 1."""
        t = _as_time(t)
        p = self._curve(t).clamp(0.0, 1.0)
        return torch.where(t <= 0, torch.ones_like(p), torch.where(t >= 1, torch.zeros_like(p), p))

    def rate(self, t: Tensor) -> Tensor:
        """``-p'(t)``, the speed at which counts are lost."""
        return self._slope(_as_time(t))

    def weight(self, t: Tensor) -> Tensor:
        """Loss weight ``w(t)`` of Eq. 6. Here ``-p'(t)``, which has mean 1 over uniform times."""
        return self.rate(t)

    def time_of(self, p: Tensor) -> Tensor:
        """The time at which the survival probability is ``p``: the inverse of :meth:`survival`."""
        p = _as_time(p)
        low, high = torch.zeros_like(p), torch.ones_like(p)
        for _ in range(60):  # a bit of the answer each: beyond float64's mantissa nothing changes
            middle = (low + high) / 2
            too_early = self.survival(middle) > p
            low, high = torch.where(too_early, middle, low), torch.where(too_early, high, middle)
        return (low + high) / 2

    def snap(self, t: Tensor) -> Tensor:
        """The time points that training and sampling use: ``t`` itself, or the nearest point of the grid."""
        t = _as_time(t)
        return t if self.n_grid is None else torch.round(t * (self.n_grid - 1)) / (self.n_grid - 1)


def _as_time(t) -> Tensor:
    """Times in double precision: ``1 - p`` near t = 0 cancels in single precision."""
    return t.double() if isinstance(t, Tensor) else torch.as_tensor(t, dtype=torch.float64)


def register_schedule(name: str):
    """Class decorator that makes a :class:`Schedule` available under ``name``.

    Parameters
    ----------
    name
        Name for ``schedule=`` and for :func:`get_schedule`.

    Returns
    -------
    A decorator that returns the class as it is.

    Examples
    --------
    >>> from sccountsdiff.diffusion import Schedule, get_schedule, register_schedule
    >>> @register_schedule("quadratic")
    ... class Quadratic(Schedule):
    ...     def _curve(self, t):
    ...         return (1 - t) ** 2
    >>> get_schedule("quadratic")
    Quadratic(n_grid=None)
    """
    return SCHEDULES.register(name)


def get_schedule(schedule: str | Schedule) -> Schedule:
    """The schedule of that name, or the object itself.

    Parameters
    ----------
    schedule
        A registered name, or a schedule.

    Returns
    -------
    The schedule; a named one has its default settings.

    Examples
    --------
    >>> from sccountsdiff.diffusion import get_schedule
    >>> round(get_schedule("cosine").survival(0.5).item(), 4)
    0.5
    """
    if isinstance(schedule, Schedule):
        return schedule
    if not isinstance(schedule, str):
        raise TypeError(f"`schedule` must be a name or a Schedule, not {type(schedule).__name__}.")
    return SCHEDULES.get(schedule)()


@register_schedule("cosine")
class Cosine(Schedule):
    """``p(t) = cos^2(pi t / 2)``: the signal-to-noise ratio of the Gaussian cosine schedule (App. B.3).

    Parameters
    ----------
    n_grid
        ``None`` for continuous time, or the number of time points, see :class:`Schedule`.

    Examples
    --------
    >>> from sccountsdiff.diffusion import Cosine
    >>> round(Cosine().weight(0.5).item(), 4)
    1.5708
    """

    def _curve(self, t: Tensor) -> Tensor:
        return torch.cos(math.pi / 2 * t) ** 2

    def _slope(self, t: Tensor) -> Tensor:
        return math.pi / 2 * torch.sin(math.pi * t)

    def time_of(self, p: Tensor) -> Tensor:
        """The time at which the survival probability is ``p``."""
        return 2 / math.pi * torch.acos(_as_time(p).clamp(0, 1).sqrt())


@register_schedule("fisher")
class Fisher(Schedule):
    """Blackout's schedule in continuous time: a logistic curve along which Fisher information decays evenly (App. B.2).

    Blackout stops at ``p_min`` and ``1 - p_min``; here the two end points are exactly 0 and 1, as Prop. 3.1 asks.

    Parameters
    ----------
    n_grid
        ``None`` for continuous time, or the number of time points, see :class:`Schedule`.
    log_p_min
        Logarithm of the survival at which the logistic curve ends, -15 in Blackout diffusion.

    Examples
    --------
    >>> from sccountsdiff.diffusion import Fisher
    >>> Fisher().survival(0.5).item()
    0.5
    """

    def __init__(self, n_grid: int | None = None, log_p_min: float = BLACKOUT_LOG_P_MIN):
        super().__init__(n_grid)
        self.log_p_min = log_p_min

    @property
    def _logit_max(self) -> float:
        """Logit of ``1 - p_min``."""
        return -self.log_p_min + math.log1p(-math.exp(self.log_p_min))

    def _curve(self, t: Tensor) -> Tensor:
        return torch.sigmoid(self._logit_max * (1 - 2 * t))

    def _slope(self, t: Tensor) -> Tensor:
        p = self._curve(t)
        return 2 * self._logit_max * p * (1 - p)

    def time_of(self, p: Tensor) -> Tensor:
        """The time at which the survival probability is ``p``."""
        return ((1 - torch.logit(_as_time(p)) / self._logit_max) / 2).clamp(0, 1)


@register_schedule("blackout")
class Blackout(Fisher):
    """The Fisher schedule on the grid of 1,000 time points that Blackout diffusion trains and samples on.

    Parameters
    ----------
    n_grid
        Number of time points.
    log_p_min
        Logarithm of the survival at which the logistic curve ends, -15 in Blackout diffusion.

    Examples
    --------
    >>> from sccountsdiff.diffusion import Blackout
    >>> Blackout(n_grid=5).snap(0.3).item()
    0.25
    """

    def __init__(self, n_grid: int = 1000, log_p_min: float = BLACKOUT_LOG_P_MIN):
        super().__init__(n_grid, log_p_min)
