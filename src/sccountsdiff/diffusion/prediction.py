"""What the diffusion needs to know about a network: a function from a noised state to the counts still to come."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol, Self

import torch
from scipy.special import betainc
from torch import Tensor

OBSERVED, NOISED, MISSING = 1.0, 0.0, -1.0
"""Status of an entry as the network sees it: given as it is, noised to level p(t), or not there at all."""


def indicators(status: Tensor) -> tuple[Tensor, Tensor]:
    """1 where entries are observed, and 1 where they are noised, else 0, in the type of the status.

    By arithmetic on the values of :data:`OBSERVED`, :data:`NOISED` and :data:`MISSING`, which takes less time than comparing.

    Parameters
    ----------
    status
        Status of each entry.

    Returns
    -------
    Two tensors in the shape of the status.

    Examples
    --------
    >>> import torch
    >>> from sccountsdiff.diffusion import MISSING, NOISED, OBSERVED, indicators
    >>> [flags.tolist() for flags in indicators(torch.tensor([OBSERVED, NOISED, MISSING]))]
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """
    return status.clamp_min(0), torch.addcmul(status.new_ones(()), status, status, value=-1)


def numbers(mask: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """1 where a boolean mask is True, else 0: as ``mask.to(dtype)``, in a fifth of the time on a CPU.

    Parameters
    ----------
    mask
        Boolean tensor.
    dtype
        Type of the numbers.

    Returns
    -------
    Tensor in the shape of the mask.

    Examples
    --------
    >>> import torch
    >>> from sccountsdiff.diffusion.prediction import numbers
    >>> numbers(torch.tensor([True, False])).tolist()
    [1.0, 0.0]
    """
    return mask.view(torch.uint8).to(dtype)


MOST_MOVED, N_HALVINGS = 8.0, 24
"""Furthest that the logarithm of a mean is moved, and halvings of that interval: to within 1e-6."""


@dataclass(frozen=True)
class Prediction:
    """The law of the remaining counts ``y = x_0 - x_t`` given the noised state, entry by entry.

    Attributes
    ----------
    log_mean
        Logarithm of ``y_hat``.
    log_dispersion
        Logarithm of the inverse dispersion theta of a negative binomial with that mean; ``None`` if unknown.

    Examples
    --------
    >>> import torch
    >>> from sccountsdiff.diffusion import Prediction
    >>> Prediction(torch.zeros(2)).mean.tolist()
    [1.0, 1.0]
    """

    log_mean: Tensor
    log_dispersion: Tensor | None = None

    @property
    def mean(self) -> Tensor:
        """``y_hat``."""
        return self.log_mean.exp()

    @property
    def variance(self) -> Tensor:
        """Variance of ``y``. Without a dispersion: Poisson."""
        mean = self.mean
        return mean if self.log_dispersion is None else mean + mean.square() * torch.exp(-self.log_dispersion)

    def above(self, k: Tensor) -> Tensor:
        """Probability of more than ``k`` counts, whole numbers from 0."""
        mean = self.mean.double()
        if self.log_dispersion is None:
            return torch.special.gammainc(k.double() + 1, mean)
        theta = self.log_dispersion.double().exp()
        return _incomplete_beta(k.double() + 1, theta, mean / (mean + theta))

    def any_of(self, share: Tensor | float) -> Tensor:
        """Probability that something is left of ``y`` if each count is kept with probability ``share``.

        As a function of it, this is ``1 - E[(1 - share)^y]``, which says all of the law. Without a dispersion: Poisson.
        """
        return -torch.expm1(self._log_none_of(share))

    @property
    def log_zero(self) -> Tensor:
        """Logarithm of the probability that there are none."""
        return self._log_none_of(1.0)

    def _log_none_of(self, share: Tensor | float) -> Tensor:
        kept = share * self.mean
        if self.log_dispersion is None:
            return -kept
        theta = self.log_dispersion.exp()
        return -theta * torch.log1p(kept / theta)

    def given_positive(self, u: Tensor) -> Prediction:
        """The law to draw from if it is known that there are any; a mixture picks one of its own, by a uniform number."""
        return self

    def map(self, function: Callable[[Tensor], Tensor]) -> Self:
        """The law with each of its parameters replaced by a function of it, such as a selection of entries."""
        return type(self)(**{field.name: _mapped(getattr(self, field.name), function) for field in fields(self)})

    def moved_to(self, log_mean: Tensor) -> Self:
        """The law with another mean, which guidance asks for; its shape stays."""
        return replace(self, log_mean=log_mean)


def _second_moment(law: Prediction) -> Tensor:
    return law.variance + law.mean.square()


def _incomplete_beta(a: Tensor, b: Tensor, x: Tensor) -> Tensor:
    """The regularised incomplete beta function, which torch does not have."""
    values = betainc(*(tensor.cpu().numpy() for tensor in torch.broadcast_tensors(a, b, x)))
    return torch.as_tensor(values, device=x.device)


def _mapped(value: Any, function: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(value, Prediction):
        return value.map(function)
    if isinstance(value, tuple):
        return tuple(_mapped(part, function) for part in value)
    return None if value is None else function(value)


@dataclass(frozen=True)
class MixturePrediction(Prediction):
    """The remaining counts follow one of several laws, it is not known which.

    Attributes
    ----------
    log_mean
        Logarithm of ``y_hat``.
    log_dispersion
        ``None``: each law has its own.
    log_weights
        Logarithm of the probability of each of them.
    components
        The laws.

    Examples
    --------
    A gene that is off in three of four cells:

    >>> import torch
    >>> from sccountsdiff.diffusion import MixturePrediction, Prediction
    >>> off, on = Prediction(torch.tensor([0.0]).log()), Prediction(torch.tensor([8.0]).log())
    >>> law = MixturePrediction.of([torch.tensor([0.75]).log(), torch.tensor([0.25]).log()], [off, on])
    >>> round(law.mean.item(), 3), round(law.any_of(1.0).item(), 3)
    (2.0, 0.25)
    """

    log_weights: tuple[Tensor, ...] = ()
    components: tuple[Prediction, ...] = ()

    @classmethod
    def of(cls, log_weights: Iterable[Tensor], components: Iterable[Prediction]) -> Self:
        """The mixture of these laws; weights of an entry sum to 1."""
        log_weights, components = tuple(log_weights), tuple(components)
        if len({law.log_dispersion is None for law in components}) > 1:
            raise ValueError("Either all laws of a mixture have a dispersion, or none has.")
        terms = [weight + law.log_mean for weight, law in zip(log_weights, components, strict=True)]
        return cls(torch.logsumexp(torch.stack(terms), dim=0), None, log_weights, components)

    @property
    def log_zero(self) -> Tensor:
        """See :attr:`Prediction.log_zero`."""
        terms = [w + law.log_zero for w, law in zip(self.log_weights, self.components, strict=True)]
        return torch.logsumexp(torch.stack(terms), dim=0)

    @property
    def variance(self) -> Tensor:
        """See :attr:`Prediction.variance`."""
        squares = [w.exp() * _second_moment(law) for w, law in zip(self.log_weights, self.components, strict=True)]
        return torch.stack(squares).sum(0) - self.mean.square()

    def above(self, k: Tensor) -> Tensor:
        """See :meth:`Prediction.above`."""
        terms = [w.exp() * law.above(k) for w, law in zip(self.log_weights, self.components, strict=True)]
        return torch.stack(terms).sum(0)

    def given_positive(self, u: Tensor) -> Prediction:
        """See :meth:`Prediction.given_positive`."""
        terms = [w + law.any_of(1.0).log() for w, law in zip(self.log_weights, self.components, strict=True)]
        return self.of(torch.stack(terms).log_softmax(0), self.components).pick(u)

    def any_of(self, share: Tensor | float) -> Tensor:
        """See :meth:`Prediction.any_of`."""
        terms = [w.exp() * law.any_of(share) for w, law in zip(self.log_weights, self.components, strict=True)]
        return torch.stack(terms).sum(0)

    def moved_to(self, log_mean: Tensor) -> Self:
        """See :meth:`Prediction.moved_to`: all components move alike."""
        shift = log_mean - self.log_mean
        return self.of(self.log_weights, [law.moved_to(law.log_mean + shift) for law in self.components])

    def pick(self, u: Tensor) -> Prediction:
        """One of the laws for each entry, by a uniform number."""
        below = torch.stack([weight.exp() for weight in self.log_weights]).cumsum(0)[:-1]
        number = (u >= below).sum(0, keepdim=True)

        def chosen(values: Iterable[Tensor | None]) -> Tensor | None:
            present = [value for value in values if value is not None]
            return torch.stack(present).gather(0, number)[0] if present else None

        log_mean = chosen(law.log_mean for law in self.components)
        assert log_mean is not None
        return Prediction(log_mean, chosen(law.log_dispersion for law in self.components))


@dataclass(frozen=True)
class HurdlePrediction(Prediction):
    """The remaining counts follow a law whose zeros are more or less likely than it says; positive counts are its own.

    Attributes
    ----------
    log_mean
        Logarithm of ``y_hat``.
    log_dispersion
        That of the law behind it.
    law
        The law behind it.
    log_zero_odds
        By how much the log-odds of a zero are above those of the law; minus infinity: it is truncated, there are none.

    Examples
    --------
    >>> import torch
    >>> from sccountsdiff.diffusion import HurdlePrediction, Prediction
    >>> poisson = Prediction(torch.tensor(1.0).log())
    >>> truncated = HurdlePrediction.of(poisson, torch.tensor(-50.0))
    >>> round(truncated.mean.item(), 3), round(truncated.any_of(1.0).item(), 3)  # 1 / (1 - 1 / e)
    (1.582, 1.0)
    """

    law: Prediction | None = None
    log_zero_odds: Tensor | None = None

    @classmethod
    def of(cls, law: Prediction, log_zero_odds: Tensor) -> Self:
        """The law with other odds of a zero."""
        made = cls(law.log_mean, law.log_dispersion, law, log_zero_odds)
        return replace(made, log_mean=law.log_mean + made.log_lift)

    @property
    def logit_zero(self) -> Tensor:
        """Log-odds of a zero."""
        assert self.law is not None and self.log_zero_odds is not None
        return self.log_zero_odds + self.law.log_zero - self.law.any_of(1.0).log()

    @property
    def log_zero(self) -> Tensor:
        """See :attr:`Prediction.log_zero`."""
        return -torch.nn.functional.softplus(-self.logit_zero)

    @property
    def log_lift(self) -> Tensor:
        """Logarithm of the probability of a positive count, over what it is under the law."""
        assert self.law is not None
        return -torch.nn.functional.softplus(self.logit_zero) - self.law.any_of(1.0).log()

    @property
    def variance(self) -> Tensor:
        """See :attr:`Prediction.variance`."""
        assert self.law is not None
        return self.log_lift.exp() * _second_moment(self.law) - self.mean.square()

    def above(self, k: Tensor) -> Tensor:
        """See :meth:`Prediction.above`."""
        assert self.law is not None
        return self.log_lift.exp() * self.law.above(k)

    def any_of(self, share: Tensor | float) -> Tensor:
        """See :meth:`Prediction.any_of`."""
        assert self.law is not None
        return self.log_lift.exp() * self.law.any_of(share)

    def moved_to(self, log_mean: Tensor) -> Self:
        """See :meth:`Prediction.moved_to`: the law behind it moves, and zeros keep their additional odds.

        Of the truncated law, the mean is at least 1, and it does not move below.
        """
        assert self.law is not None and self.log_zero_odds is not None
        # The mean grows with that of the law behind it, but more slowly; halving finds where it is what is asked for.
        low, high = self.law.log_mean - MOST_MOVED, self.law.log_mean + MOST_MOVED
        for _ in range(N_HALVINGS):
            middle = (low + high) / 2
            is_above = self.of(self.law.moved_to(middle), self.log_zero_odds).log_mean > log_mean
            low, high = torch.where(is_above, low, middle), torch.where(is_above, middle, high)
        return self.of(self.law.moved_to((low + high) / 2), self.log_zero_odds)


class Denoiser(Protocol):
    """A network with its covariates bound, as :func:`guide` takes it.

    Examples
    --------
    The exact denoiser of Poisson counts with mean 4 under the cosine schedule:

    >>> import torch
    >>> from sccountsdiff.diffusion import Cosine, Prediction
    >>> def denoise(x, status, t, null):
    ...     lost = 1 - Cosine().survival(t)
    ...     return Prediction((4 * lost).log()[:, None].expand_as(x))
    >>> denoise(torch.zeros(1, 2), torch.zeros(1, 2), torch.ones(1), torch.tensor([False])).mean.round().tolist()
    [[4.0, 4.0]]
    """

    def __call__(self, x: Tensor, status: Tensor, t: Tensor, null: Tensor) -> Prediction:
        """Predict the remaining counts.

        Parameters
        ----------
        x
            Counts, ``(cells, genes)``: as they are where observed, noised to level p(t) elsewhere, 0 where missing.
        status
            :data:`OBSERVED`, :data:`NOISED` or :data:`MISSING` for each entry.
        t
            Time of each cell, ``(cells,)``.
        null
            Cells whose covariates are left out (the unconditional prediction), ``(cells,)`` boolean.
        """
        ...
