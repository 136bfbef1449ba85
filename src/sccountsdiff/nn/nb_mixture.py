"""The default head: counts with one of several dispersions, each around a mean of its own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from sccountsdiff.checks import whole_number
from sccountsdiff.diffusion import MixturePrediction, Prediction
from sccountsdiff.diffusion.host import host_sees, positions
from sccountsdiff.diffusion.losses import count_loss, in_pieces, law_loss, log_gamma_ratio
from sccountsdiff.nn.heads import INITIAL_LOG_DISPERSION, Head, HeadInput, bounded_dispersion, entries_of, register_head
from sccountsdiff.nn.mixture_loss import posterior_mixture_loss

SPREAD = 2.0
"""Log dispersions of neighbouring components differ by this much in the untrained network."""


@register_head("nb_mixture")
class NegativeBinomialMixture(Head):
    """Counts of a gene given the rest of the cell are negative binomial, with one of several dispersions.

    A gene is near its expectation in most cells and far from it in a few: one dispersion has to be a compromise, too wide for
    most cells and too narrow for the others. Here each of several has a probability of its own, and a mean relative to that of
    all, ``mu``, which is trained by Eq. 6 and by the likelihood. In the untrained network all means are the same. The gene's own
    noised count is taken in exactly: each gamma becomes its posterior, and its probability is multiplied by how likely it made
    the count. With one component it is :class:`NegativeBinomial`.

    Parameters
    ----------
    n_components
        Dispersions.

    Examples
    --------
    >>> from sccountsdiff.nn import NegativeBinomialMixture
    >>> NegativeBinomialMixture().n_outputs
    5
    """

    rounding = "mixture"

    def __init__(self, n_components: int = 2):
        self.n_components = whole_number("n_components", n_components)
        self.n_outputs = 3 * self.n_components - 1
        middle = (self.n_components - 1) / 2
        self.starts = tuple(SPREAD * (middle - k) for k in range(self.n_components))  # from narrow to wide

    def predict(self, outputs: Tensor, given: HeadInput) -> Prediction:
        """The posterior of the gene's rate, thinned."""
        if given.is_without_noised:
            return self._prior(outputs, given)
        n = self.n_components
        log_dispersion = INITIAL_LOG_DISPERSION + given.log_dispersion + torch.zeros_like(given.log_lost)
        known = (given.log_mean, given.xt, given.p, given.log_lost, log_dispersion)
        found = in_pieces(partial(_laws, self.starts, given.largest), *outputs.unbind(), *known)
        laws = [
            Prediction(log_mean, log_shape)
            for log_mean, log_shape in zip(found[n : 2 * n], found[2 * n :], strict=True)
        ]
        return MixturePrediction.of(found[:n], laws)

    def mean_is_first(self, given: HeadInput) -> bool:
        """It is that of all components, until a noised count tells for one of them; not where a subclass has another law."""
        return type(self) is NegativeBinomialMixture and given.is_without_noised

    def _prior(self, outputs: Tensor, given: HeadInput) -> MixturePrediction:
        """The law where no noised count has anything to say."""
        log_dispersion = INITIAL_LOG_DISPERSION + given.log_dispersion
        log_mean, parts = _components(outputs.unbind(), self.starts, given.log_mean, log_dispersion, given.largest)
        laws = [Prediction(given.log_lost + own, theta.log()) for _, own, theta in parts]
        log_weights = torch.stack([logit for logit, _, _ in parts]).log_softmax(0)
        return MixturePrediction(given.log_lost + log_mean, None, tuple(log_weights.unbind()), tuple(laws))

    def loss(self, y: Tensor, prediction: Prediction) -> Tensor:
        """Eq. 6 for the mean, and the likelihood of the mixture."""
        return count_loss(y, prediction.log_mean) + law_loss(y, prediction)

    def total_loss(self, y: Tensor, outputs: Tensor, given: HeadInput, weight: Tensor) -> Tensor:
        """As :meth:`Head.total_loss`; where a subclass has no other law or loss, with derivatives by hand."""
        if type(self) is not NegativeBinomialMixture:
            return super().total_loss(y, outputs, given, weight)
        return posterior_mixture_loss(outputs, self.starts, entries_of(y, given, weight))


def _components(
    outputs: Sequence[Tensor],
    starts: Sequence[float],
    log_mean: Tensor,
    log_dispersion: Tensor | float,
    largest: Tensor | float,
) -> tuple[Tensor, list[tuple[Tensor, Tensor, Tensor]]]:
    """The log mean of all, and the logit, log mean and dispersion of each component, before the gene's own count is looked at.

    The first has a logit of 0, and log means are relative to its own; then all are moved so that they have the mean of all.
    """
    n = len(starts)
    first = torch.zeros_like(outputs[0])
    logits, log_ratios = torch.stack([first, *outputs[1:n]]), torch.stack([first, *outputs[n : 2 * n - 1]])
    log_mean = log_mean + outputs[0]
    own = log_mean + (log_ratios - (logits.log_softmax(0) + log_ratios).logsumexp(0))
    log_thetas = (log_dispersion + start + output for start, output in zip(starts, outputs[2 * n - 1 :], strict=True))
    thetas = (bounded_dispersion(*one, largest) for one in zip(log_thetas, own.exp(), strict=True))
    return log_mean, list(zip(logits, own, thetas, strict=True))


def _laws(starts: Sequence[float], largest: Tensor | float, *rows: Tensor) -> tuple[Tensor, ...]:
    """Log probabilities, log means and log dispersions of all components, of some cells."""
    *outputs, log_mean, xt, p, log_lost, log_dispersion = rows
    log_weights, log_means, log_shapes = [], [], []
    for logit, own, theta in _components(outputs, starts, log_mean, log_dispersion, largest)[1]:
        beta = theta / own.exp()
        log_shape, log_rate = torch.log(theta + xt), torch.log(beta + p)
        # The probability of the noised count, but for factors that all components share.
        seen = _of_counts(theta, xt, log_rate) - theta * torch.log1p(p / beta)
        log_weights.append(logit + seen)
        log_means.append(log_lost + log_shape - log_rate)
        log_shapes.append(log_shape)
    return *torch.stack(log_weights).log_softmax(0).unbind(), *log_means, *log_shapes


def _of_counts(theta: Tensor, xt: Tensor, log_rate: Tensor) -> Tensor:
    """What noised counts add to the log probability; it is 0 for 0, and most are, so that few are looked at if the host sees which."""
    if torch.is_grad_enabled() or not host_sees(xt):
        return log_gamma_ratio(theta, xt) - torch.where(xt > 0, xt * log_rate, 0.0)
    found, at = torch.zeros_like(theta), positions(xt)
    some, counts, rates = (values.reshape(-1).index_select(0, at) for values in (theta, xt, log_rate))
    found.view(-1).scatter_(0, at, log_gamma_ratio(some, counts) - counts * rates)
    return found
