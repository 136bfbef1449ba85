"""A head for genes that are on in some cells and off in others."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sccountsdiff.checks import whole_number
from sccountsdiff.diffusion import MixturePrediction, Prediction, count_loss, law_loss
from sccountsdiff.diffusion.losses import log_gamma_ratio
from sccountsdiff.nn.heads import INITIAL_LOG_DISPERSION, Head, HeadInput, bounded_dispersion, register_head


@register_head("gamma_mixture")
class GammaMixture(Head):
    """The rate of a gene given the rest of the cell is from a mixture of gammas, so that counts may have several modes.

    Zero inflation and genes that are on or off are special cases. The gene's own noised count is taken in exactly: each
    gamma becomes its posterior, as in :class:`NegativeBinomial`, and its weight is multiplied by how likely it made the
    count. The untrained network predicts the depth-scaled gene mean, spread over components that differ.

    Parameters
    ----------
    n_components
        Gammas.

    Examples
    --------
    >>> from sccountsdiff.nn import GammaMixture
    >>> GammaMixture(n_components=2).n_outputs
    6
    """

    rounding = "mixture"

    def __init__(self, n_components: int = 3):
        self.n_components = whole_number("n_components", n_components)
        self.n_outputs = 3 * self.n_components

    def predict(self, outputs: Tensor, given: HeadInput) -> Prediction:
        """The posterior of the gene's rate, thinned."""
        (shift, *logits), shifts, log_thetas = (part.unbind() for part in outputs.chunk(3))
        priors = torch.stack([torch.zeros_like(shift), *logits]).log_softmax(0)  # others are compared with the first
        log_weights, laws = [], []
        for k, (log_weight, own, log_theta) in enumerate(zip(priors, shifts, log_thetas, strict=True)):
            start = math.log((2 * k + 1) / self.n_components)  # of equal weights, the mean is 1
            mu = torch.exp(given.log_mean + shift + (start + own))
            theta = bounded_dispersion(INITIAL_LOG_DISPERSION + given.log_dispersion + log_theta, mu, given.largest)
            inverse_scale = theta / mu
            log_shape, log_rate = torch.log(theta + given.xt), torch.log(inverse_scale + given.p)
            # The probability of the noised count, but for factors that all components share.
            seen = log_gamma_ratio(theta, given.xt) - theta * torch.log1p(given.p / inverse_scale) - given.xt * log_rate
            log_weights.append(log_weight + seen)
            laws.append(Prediction(given.log_lost + log_shape - log_rate, log_shape))
        return MixturePrediction.of(torch.stack(log_weights).log_softmax(0), laws)

    def loss(self, y: Tensor, prediction: Prediction) -> Tensor:
        """Eq. 6 for the mean, and the likelihood of the mixture."""
        return count_loss(y, prediction.log_mean) + law_loss(y, prediction)
