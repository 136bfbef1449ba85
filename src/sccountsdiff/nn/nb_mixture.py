"""The default head: counts around one mean, with one of several dispersions."""

from __future__ import annotations

import torch
from torch import Tensor

from sccountsdiff.checks import whole_number
from sccountsdiff.diffusion import MixturePrediction, Prediction
from sccountsdiff.diffusion.losses import count_loss, law_loss, log_gamma_ratio
from sccountsdiff.nn.heads import INITIAL_LOG_DISPERSION, Head, HeadInput, bounded_dispersion, entries_of, register_head
from sccountsdiff.nn.mixture_loss import posterior_mixture_loss

SPREAD = 2.0
"""Log dispersions of neighbouring components differ by this much in the untrained network."""


@register_head("nb_mixture")
class NegativeBinomialMixture(Head):
    """Counts of a gene given the rest of the cell are negative binomial, with one of several dispersions.

    A gene is near its expectation in most cells and far from it in a few: one dispersion has to be a compromise, too wide for
    most cells and too narrow for the others. Here each of several has a probability of its own. All components have the same
    mean ``mu``, trained by Eq. 6 and by the likelihood. The gene's own noised count is taken in exactly: each gamma becomes its posterior, and
    its probability is multiplied by how likely it made the count. With one component it is :class:`NegativeBinomial`.

    Parameters
    ----------
    n_components
        Dispersions.

    Examples
    --------
    >>> from sccountsdiff.nn import NegativeBinomialMixture
    >>> NegativeBinomialMixture().n_outputs
    4
    """

    rounding = "mixture"

    def __init__(self, n_components: int = 2):
        self.n_components = whole_number("n_components", n_components)
        self.n_outputs = 2 * self.n_components
        middle = (self.n_components - 1) / 2
        self.starts = tuple(SPREAD * (middle - k) for k in range(self.n_components))  # from narrow to wide

    def predict(self, outputs: Tensor, given: HeadInput) -> Prediction:
        """The posterior of the gene's rate, thinned."""
        shift, logits, log_thetas = outputs.tensor_split([1, self.n_components])
        mu = torch.exp(given.log_mean + shift[0])
        # Probabilities are relative to that of the first component.
        log_weights = torch.cat([torch.zeros_like(shift), logits])
        seen, laws = [], []
        for log_weight, log_theta, start in zip(log_weights, log_thetas, self.starts, strict=True):
            log_theta = INITIAL_LOG_DISPERSION + start + given.log_dispersion + log_theta
            theta = bounded_dispersion(log_theta, mu, given.largest)
            beta = theta / mu
            log_shape, log_rate = torch.log(theta + given.xt), torch.log(beta + given.p)
            # The probability of the noised count, but for factors that all components share.
            found = log_gamma_ratio(theta, given.xt) - theta * torch.log1p(given.p / beta) - given.xt * log_rate
            seen.append(log_weight + found)
            laws.append(Prediction(given.log_lost + log_shape - log_rate, log_shape))
        return MixturePrediction.of(torch.stack(seen).log_softmax(0), laws)

    def loss(self, y: Tensor, prediction: Prediction) -> Tensor:
        """Eq. 6 for the mean, and the likelihood of the mixture."""
        return count_loss(y, prediction.log_mean) + law_loss(y, prediction)

    def total_loss(self, y: Tensor, outputs: Tensor, given: HeadInput, weight: Tensor) -> Tensor:
        """As :meth:`Head.total_loss`; where a subclass has no other law or loss, with derivatives by hand."""
        if type(self) is not NegativeBinomialMixture:
            return super().total_loss(y, outputs, given, weight)
        return posterior_mixture_loss(outputs, self.starts, entries_of(y, given, weight))
