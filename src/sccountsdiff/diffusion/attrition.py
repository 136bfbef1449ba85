"""Attrition schedules sigma(t, s): how many counts may die again on the way back (Section 3.3)."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from numbers import Real

import torch
from torch import Tensor

from sccountsdiff.checks import check_share


def max_attrition(p_t: Tensor, p_s: Tensor) -> Tensor:
    """``sigma_max = min(1, (1 - p(s)) / p(t))``: beyond it no birth probability keeps the marginals (Prop. 3.2).

    Parameters
    ----------
    p_t, p_s
        Survival at the time of the step and at the earlier one that it leads to.

    Returns
    -------
    ``sigma_max``, within [0, 1].

    Examples
    --------
    >>> import torch
    >>> from sccountsdiff.diffusion import max_attrition
    >>> max_attrition(torch.tensor(0.8), torch.tensor(1.0)).item()
    0.0
    """
    return ((1 - p_s) / p_t.clamp_min(torch.finfo(p_t.dtype).tiny)).clamp(0, 1)


class Attrition(ABC):
    """Gives the attrition rate of each reverse step, always within ``[0, sigma_max]``.

    Examples
    --------
    One of your own, that fades out over the first ten steps:

    >>> import torch
    >>> from sccountsdiff.diffusion import Attrition
    >>> class Fading(Attrition):
    ...     def _sigma(self, sigma_max, step):
    ...         return sigma_max * max(0.0, 1 - step / 10)
    >>> Fading().sigma(torch.tensor(0.5), torch.tensor(0.75), step=5).item()
    0.25
    """

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({settings})"

    @abstractmethod
    def _sigma(self, sigma_max: Tensor, step: int) -> Tensor: ...

    def sigma(self, p_t: Tensor, p_s: Tensor, step: int = 0) -> Tensor:
        """Attrition of reverse move number ``step``, from survival ``p_t`` up to ``p_s``."""
        sigma_max = max_attrition(p_t, p_s)
        return torch.minimum(self._sigma(sigma_max, step).clamp_min(0), sigma_max)

    def check(self, n_moves: int, n_cells: int | None = None, n_genes: int | None = None) -> None:
        """Refuse a walk of so many reverse moves, or so many cells and genes, if the rates are not made for it."""
        return  # those of a formula are made for any

    def of_cells(self, rows) -> Attrition:
        """The schedule for some of the cells; ``rows`` are a slice or positions."""
        return self


@dataclass(frozen=True)
class Rescale(Attrition):
    """``sigma = eta * sigma_max``, the paper's choice.

    Parameters
    ----------
    eta
        Share of the largest attrition, within [0, 1].

    Examples
    --------
    >>> import torch
    >>> from sccountsdiff.diffusion import Rescale
    >>> Rescale(0.5).sigma(torch.tensor(0.5), torch.tensor(0.75)).item()
    0.25
    """

    eta: float

    def __post_init__(self):
        check_share("eta", self.eta)

    def _sigma(self, sigma_max: Tensor, step: int) -> Tensor:
        return self.eta * sigma_max


@dataclass(frozen=True)
class Cap(Attrition):
    """``sigma = min(eta, sigma_max)``.

    Parameters
    ----------
    eta
        Largest attrition of a step, within [0, 1].

    Examples
    --------
    >>> import torch
    >>> from sccountsdiff.diffusion import Cap
    >>> Cap(0.25).sigma(torch.tensor(0.5), torch.tensor(0.75)).item()
    0.25
    """

    eta: float

    def __post_init__(self):
        check_share("eta", self.eta)

    def _sigma(self, sigma_max: Tensor, step: int) -> Tensor:
        return torch.full_like(sigma_max, self.eta)


@dataclass(frozen=True)
class Max(Attrition):
    """``sigma = sigma_max``: every step draws the whole state anew where it can.

    Examples
    --------
    >>> import torch
    >>> from sccountsdiff.diffusion import Max
    >>> Max().sigma(torch.tensor(0.5), torch.tensor(0.75)).item()
    0.5
    """

    def _sigma(self, sigma_max: Tensor, step: int) -> Tensor:
        return sigma_max


@dataclass(frozen=True, eq=False)
class PerStep(Attrition):
    """The user's own rates: one for each reverse move, the first one at t = 1.

    Parameters
    ----------
    rates
        A rate within [0, 1] for each reverse move, ``(moves,)``; or for each of them one for each gene,
        ``(moves, genes)``, or for each entry, ``(moves, cells, genes)``. An axis of length 1 stands for all.

    Examples
    --------
    >>> import torch
    >>> from sccountsdiff.diffusion import PerStep
    >>> rates = PerStep(torch.tensor([0.0, 0.25]))
    >>> rates.sigma(torch.tensor(0.5), torch.tensor(0.75), step=1).item()
    0.25
    """

    rates: Tensor

    def __post_init__(self):
        rates = torch.as_tensor(self.rates)
        if rates.ndim not in (1, 2, 3) or not bool(((rates >= 0) & (rates <= 1)).all()):
            raise ValueError(
                "`attrition` as a tensor needs one rate in [0, 1] for each reverse move, or one for each gene or entry."
            )
        object.__setattr__(self, "rates", rates)

    def __repr__(self) -> str:
        """With a checksum: rates that differ by little, or among many, are told apart."""
        digest = hashlib.sha256(self.rates.detach().cpu().contiguous().numpy().tobytes()).hexdigest()
        return f"PerStep(rates of shape {tuple(self.rates.shape)}, {digest[:16]})"

    def check(self, n_moves: int, n_cells: int | None = None, n_genes: int | None = None) -> None:
        """Refuse rates for another number of reverse moves, or of cells or genes where these are known."""
        moves, *rest = self.rates.shape
        if moves != n_moves:
            raise ValueError(
                f"`attrition` has {moves} rates, but the walk has {n_moves} reverse moves (`n_steps` times "
                "`n_resamples`)."
            )
        expected = {"genes": n_genes, "cells": n_cells}
        for found, (what, number) in zip(reversed(rest), expected.items(), strict=False):
            if number is not None and found not in (1, number):
                raise ValueError(f"`attrition` has rates for {found} {what}, but there are {number}.")

    def of_cells(self, rows) -> PerStep:
        """The rates of some of the cells, if each has its own."""
        return PerStep(self.rates[:, rows]) if self.rates.ndim == 3 and self.rates.shape[1] > 1 else self

    def _sigma(self, sigma_max: Tensor, step: int) -> Tensor:
        if step >= len(self.rates):
            raise ValueError(f"`attrition` has {len(self.rates)} rates, but the walk has more reverse moves.")
        return self.rates[step].to(sigma_max)


def get_attrition(attrition: float | Tensor | Attrition) -> Attrition:
    """An attrition schedule from what users pass: a number is eta of :class:`Rescale`, a tensor rates per step.

    Parameters
    ----------
    attrition
        A number within [0, 1], a tensor of rates, or an attrition schedule.

    Returns
    -------
    The attrition schedule.

    Examples
    --------
    >>> from sccountsdiff.diffusion import get_attrition
    >>> get_attrition(0.005)
    Rescale(eta=0.005)
    """
    if isinstance(attrition, Attrition):
        return attrition
    if isinstance(attrition, Real):  # NumPy's numbers too
        check_share("attrition", attrition)
        return Rescale(float(attrition))
    try:
        rates = torch.as_tensor(attrition)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(
            f"`attrition` must be a number, a tensor of rates or an attrition schedule, not {attrition!r}."
        ) from None
    return PerStep(rates)
