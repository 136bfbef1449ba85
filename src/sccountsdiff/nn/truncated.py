"""Heads for data in which hardly any entry that is believed is a zero."""

from __future__ import annotations

from torch import Tensor

from sccountsdiff.diffusion import HurdlePrediction, Prediction, count_loss, law_loss
from sccountsdiff.nn.gamma_mixture import GammaMixture
from sccountsdiff.nn.heads import Head, HeadInput, NegativeBinomial, register_head


@register_head("truncated_nb")
class TruncatedNegativeBinomial(Head):
    """Counts of a gene given the rest of the cell are negative binomial, but zeros have odds of their own (a hurdle).

    Meant for ``zeros="missing"``: what is trained on then has hardly any zeros, which no negative binomial says. The third
    output is what is added to the log-odds of a zero. At 0, where the network starts, it is :class:`NegativeBinomial`;
    far below, the law is truncated at zero. The gene's own noised count is taken in exactly: once one count is seen the
    entry is no zero, and the law is the negative binomial's; if none is seen, the additional odds of a zero stay
    what they are, since they act on the zero alone and thinning on each count by itself.

    Examples
    --------
    >>> from sccountsdiff.nn import TruncatedNegativeBinomial
    >>> TruncatedNegativeBinomial().rounding
    'hurdle'
    """

    n_outputs = 3
    rounding = "hurdle"
    thins_cells = False  # which makes zeros
    is_calibrated = True

    def predict(self, outputs: Tensor, given: HeadInput) -> HurdlePrediction:
        """The negative binomial's posterior, with other odds of a zero where no count is seen."""
        return _with_zero_odds(NegativeBinomial().predict(outputs[:-1], given), outputs[-1], given)

    def loss(self, y: Tensor, prediction: Prediction) -> Tensor:
        """Eq. 6 for the mean, and the likelihood of the hurdle."""
        return count_loss(y, prediction.log_mean) + law_loss(y, prediction)


@register_head("truncated_mixture")
class TruncatedGammaMixture(GammaMixture):
    """:class:`GammaMixture` with odds of their own for zeros, as in :class:`TruncatedNegativeBinomial`.

    Parameters
    ----------
    n_components
        Gammas.

    Examples
    --------
    >>> from sccountsdiff.nn import TruncatedGammaMixture
    >>> TruncatedGammaMixture().n_outputs
    10
    """

    rounding = "hurdle"
    thins_cells = False
    is_calibrated = True

    def __init__(self, n_components: int = 3):
        super().__init__(n_components)
        self.n_outputs += 1

    def predict(self, outputs: Tensor, given: HeadInput) -> Prediction:
        """The mixture's posterior, with other odds of a zero where no count is seen."""
        return _with_zero_odds(super().predict(outputs[:-1], given), outputs[-1], given)


def _with_zero_odds(law: Prediction, log_zero_odds: Tensor, given: HeadInput) -> HurdlePrediction:
    return HurdlePrediction.of(law, (log_zero_odds + given.log_zero_odds).masked_fill(given.xt > 0, 0.0))
