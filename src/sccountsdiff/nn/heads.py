"""Heads: what the numbers that a backbone puts out say about the counts still to come."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from sccountsdiff.diffusion import Prediction, count_loss, nb_loss
from sccountsdiff.diffusion.host import host_sees
from sccountsdiff.diffusion.losses import in_pieces
from sccountsdiff.nn.posterior_loss import Entries, posterior_nb_loss
from sccountsdiff.registry import Registry

HEADS: Registry[type[Head]] = Registry("head")

INITIAL_LOG_DISPERSION = 1.0

TAIL = 4.0
"""The tail of a law falls by a factor e at least so often on the way to the largest count that a gene has in training.

The largest of a hundred to a thousand numbers with an exponential tail is at five to seven such lengths, so that this binds
only where a law does not fit: a gamma that has to be a gene's on and off at once has a tail far beyond all counts. It is the spread
around a mean that is bound; means themselves, of a law or of a component, are what the network says they are.
"""


@dataclass(frozen=True)
class HeadInput:
    """What a head knows of a batch of cells beside the outputs of the backbone.

    Attributes
    ----------
    log_mean
        Logarithm of the mean of each gene at the depth of the cell, ``(cells, genes)``.
    xt
        Noised counts, 0 where an entry is not noised, ``(cells, genes)``.
    p
        Survival p(t) of the noised entries, 0 for others, ``(cells, genes)``.
    log_lost
        ``log(1 - p(t))``, ``(cells, 1)``.
    largest
        Largest count of each gene in training, ``(genes,)``; infinite if unknown.
    log_dispersion
        What is added to log dispersions, ``(cells, genes)`` or a number.
    log_zero_odds
        What is added to the log-odds of a zero, by heads that have some of their own; a number.

    Examples
    --------
    At t = 1 nothing is left of a gene, and the backbone has nothing to add to its mean:

    >>> import torch
    >>> from sccountsdiff.nn import HeadInput, Poisson
    >>> nothing = torch.zeros(1, 1)
    >>> given = HeadInput(log_mean=torch.tensor([[2.0]]).log(), xt=nothing, p=nothing, log_lost=nothing)
    >>> Poisson().predict(torch.zeros(1, 1, 1), given).mean.tolist()
    [[2.0]]
    """

    log_mean: Tensor
    xt: Tensor
    p: Tensor
    log_lost: Tensor
    largest: Tensor | float = math.inf
    log_dispersion: Tensor | float = 0.0
    log_zero_odds: Tensor | float = 0.0

    @property
    def is_without_noised(self) -> bool:
        """Whether the host sees that nothing is left of any gene, as at t = 1, so that a law is what it was before."""
        if not host_sees(self.p):
            return False
        # At t = 1, what is lost of each cell says as much as all of its entries.
        return not self.log_lost.detach().numpy().any() or not self.p.detach().numpy().any()


class Head(ABC):
    """Turns the outputs of a backbone into the law of the remaining counts, and says how that is trained.

    Attributes
    ----------
    n_outputs
        Numbers that are asked of the backbone for each gene. The first should be what moves the mean: a backbone may make the
        others of less (:class:`~sccountsdiff.nn.MLP` does).
    rounding
        How births are drawn unless the user says otherwise (:func:`~sccountsdiff.diffusion.draw_births`).
    scales_by_depth
        Whether counts are scaled by the depth of the cell before the network sees them.
    thins_cells
        Whether to train on cells that were thinned as a whole too: they must follow the same law, at a lower depth.
    is_calibrated
        Whether what is added to log dispersions and to the log-odds of zeros is measured on validation cells once the network is
        trained: laws of which much is said are learnt by heart, and too sharp for other cells.

    Examples
    --------
    A head of your own, available as ``CountsDiffImputer(adata, head="identity")``:

    >>> import torch
    >>> from sccountsdiff.diffusion import Prediction
    >>> from sccountsdiff.nn import Head, get_head, register_head
    >>> @register_head("identity")
    ... class Identity(Head):
    ...     def predict(self, outputs, given):
    ...         return Prediction(given.log_lost + outputs[0])
    >>> get_head("identity").n_outputs
    1
    """

    n_outputs: int = 1
    rounding: ClassVar[str] = "random"
    scales_by_depth: ClassVar[bool] = True
    thins_cells: ClassVar[bool] = True
    is_calibrated: ClassVar[bool] = False

    @abstractmethod
    def predict(self, outputs: Tensor, given: HeadInput) -> Prediction:
        """The law of the remaining counts, from outputs of shape ``(n_outputs, cells, genes)``."""

    def loss(self, y: Tensor, prediction: Prediction) -> Tensor:
        """Loss of each entry without the weight of its time: Eq. 6."""
        return count_loss(y, prediction.log_mean)

    def law(self, outputs: Tensor, given: HeadInput) -> Prediction:
        """What :meth:`predict` gives, once it is seen to be a law."""
        prediction = self.predict(outputs, given)
        if not isinstance(prediction, Prediction):
            raise TypeError(f"The head {type(self).__name__} must return a Prediction, not {prediction!r}.")
        return prediction

    def expect(self, outputs: Tensor, given: HeadInput) -> Prediction:
        """The mean of the law, for those who ask for no more; where it is the first output, others need not be there."""
        if self.mean_is_first(given):
            return Prediction(given.log_lost + (given.log_mean + outputs[0]))
        return Prediction(self.law(outputs, given).log_mean)

    def mean_is_first(self, given: HeadInput) -> bool:
        """Whether the log mean is the first output, added to that of the gene at the depth of the cell."""
        return False

    def total_loss(self, y: Tensor, outputs: Tensor, given: HeadInput, weight: Tensor) -> Tensor:
        """Sum of the weighted losses of all entries, which is trained; a head may know a faster way to it.

        The weight of an entry is 0, or the number that all others of its cell have.
        """
        return (weight * self.loss(y, self.law(outputs, given))).sum()


def register_head(name: str):
    """Class decorator that makes a :class:`Head` available as ``head=name``; see there for an example.

    Parameters
    ----------
    name
        Name for ``head=``.

    Returns
    -------
    A decorator that returns the class as it is.

    Examples
    --------
    >>> from sccountsdiff.nn import Poisson, get_head, register_head
    >>> @register_head("rounded_poisson")
    ... class RoundedPoisson(Poisson):
    ...     rounding = "nearest"
    >>> get_head("rounded_poisson").rounding
    'nearest'
    """
    return HEADS.register(name)


def get_head(head: str | type[Head] | Head) -> Head:
    """The head of that name, or of that class.

    Parameters
    ----------
    head
        A registered name, a subclass of :class:`Head`, or a head.

    Returns
    -------
    The head.

    Examples
    --------
    >>> from sccountsdiff.nn import get_head
    >>> get_head("nb").n_outputs
    2
    """
    if isinstance(head, Head):
        return head
    if isinstance(head, type) and issubclass(head, Head):
        return head()
    if not isinstance(head, str):
        raise TypeError(f"`head` must be a name or a Head, not {head!r}.")
    return HEADS[head]()


def bounded_dispersion(log_theta: Tensor, mu: Tensor, largest: Tensor | float) -> Tensor:
    """``theta + 4 mu / largest``: the tail of the gamma, ``mu / theta`` long, stays within the gene's counts."""
    return log_theta.exp() + mu.detach() * (TAIL / largest)  # the dispersion does not move the mean


def entries_of(y: Tensor, given: HeadInput, weight: Tensor) -> Entries:
    """What losses with derivatives by hand have to know of entries, from what heads are given."""
    log_dispersion = y.new_full((1, 1), INITIAL_LOG_DISPERSION) + given.log_dispersion
    tail = TAIL / (y.new_ones(1, 1) * given.largest)
    return Entries(y, weight, given.log_mean, log_dispersion, given.xt, given.p, given.log_lost, tail)


@register_head("nb")
class NegativeBinomial(Head):
    """Counts of a gene given the rest of the cell are negative binomial.

    The mean ``mu = exp(log_mean + f)`` and a dispersion theta say what is known of a gene before its own noised count is
    looked at: a rate from ``Gamma(theta, theta / mu)``. That count is then taken in exactly, by conjugacy: what remains is
    negative binomial with mean ``(1 - p) (theta + x_t) / (theta / mu + p)`` and dispersion ``theta + x_t``. A backbone
    that sees all genes through a few hundred hidden units could not do this for each gene. At t = 1, where nothing of the
    gene is left, it is ``mu`` and ``theta``. Exact for negative-binomial counts.

    The backbone's theta is raised by ``4 mu / largest``. A gene that is either off or high would otherwise get a theta near
    0, and with it, now and then, counts many times above all that were seen.

    Examples
    --------
    >>> from sccountsdiff.nn import NegativeBinomial
    >>> NegativeBinomial().rounding
    'nb'
    """

    n_outputs = 2
    rounding = "nb"

    def predict(self, outputs: Tensor, given: HeadInput) -> Prediction:
        """The posterior of the gene's rate, thinned."""
        shift, log_theta = outputs.unbind()

        def law(shift, log_theta, log_mean, xt, p, log_lost, log_dispersion) -> tuple[Tensor, Tensor]:
            mu = torch.exp(log_mean + shift)
            theta = bounded_dispersion(log_dispersion + log_theta, mu, given.largest)
            log_shape = torch.log(theta + xt)
            return log_lost + log_shape - torch.log(theta / mu + p), log_shape

        log_dispersion = given.log_lost.new_full((len(given.log_lost), 1), INITIAL_LOG_DISPERSION)
        log_dispersion = log_dispersion + given.log_dispersion
        return Prediction(
            *in_pieces(law, shift, log_theta, given.log_mean, given.xt, given.p, given.log_lost, log_dispersion)
        )

    def loss(self, y: Tensor, prediction: Prediction) -> Tensor:
        """Eq. 6 for the mean; the dispersion has a likelihood of its own, around the same mean."""
        loss = super().loss(y, prediction)
        if prediction.log_dispersion is None:
            return loss
        return loss + nb_loss(y, prediction.log_mean.detach(), prediction.log_dispersion)

    def total_loss(self, y: Tensor, outputs: Tensor, given: HeadInput, weight: Tensor) -> Tensor:
        """As :meth:`Head.total_loss`; where a subclass has no other law or loss, with derivatives by hand."""
        if type(self) is not NegativeBinomial:
            return super().total_loss(y, outputs, given, weight)
        return posterior_nb_loss(outputs, entries_of(y, given, weight))

    def mean_is_first(self, given: HeadInput) -> bool:
        """Until a noised count is taken in; not where a subclass has another law."""
        return type(self) is NegativeBinomial and given.is_without_noised


@register_head("poisson")
class Poisson(Head):
    """``y_hat = (1 - p(t)) exp(log_mean + f)``. Exact for Poisson counts.

    The backbone starts from 0, so the untrained network is the depth-scaled gene mean.

    Examples
    --------
    >>> from sccountsdiff.nn import Poisson
    >>> Poisson().n_outputs
    1
    """

    def predict(self, outputs: Tensor, given: HeadInput) -> Prediction:
        """The expected counts, with no law around them."""
        return Prediction(given.log_lost + (given.log_mean + outputs[0]))


@register_head("softplus")
class Softplus(Head):
    """The paper's: ``y_hat = softplus(f)``, not scaled by depth; the conditioning still tells the backbone of it.

    Examples
    --------
    >>> from sccountsdiff.nn import Softplus
    >>> Softplus().scales_by_depth
    False
    """

    scales_by_depth = False
    thins_cells = False

    def predict(self, outputs: Tensor, given: HeadInput) -> Prediction:
        """The expected counts, with no law around them."""
        return Prediction(F.softplus(outputs[0]).clamp_min(1e-8).log())
