"""A head for data in which hardly any entry that is believed is a zero."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from sccountsdiff.diffusion import HurdlePrediction, Prediction, count_loss, nb_loss
from sccountsdiff.nn.heads import Head, HeadInput, NegativeBinomial, register_head


@register_head("truncated_nb")
class TruncatedNegativeBinomial(Head):
    """Counts of a gene given the rest of the cell are negative binomial, but zeros have odds of their own (a hurdle).

    Meant for ``zeros="missing"``: what is trained on then has hardly any zeros, which no negative binomial says. The third
    output is what is added to the log-odds of a zero. At 0, where the network starts, it is :class:`NegativeBinomial`;
    far below, the law is truncated at zero. The gene's own noised count is taken in exactly: once one count is seen the
    entry is no zero, and the law is the negative binomial's; if none is seen, the additional odds of a zero stay
    what they are, since thinning changes the odds of zero against each positive count by the same factors.

    Examples
    --------
    >>> from sccountsdiff.nn import TruncatedNegativeBinomial
    >>> TruncatedNegativeBinomial().rounding
    'hurdle'
    """

    n_outputs = 3
    rounding = "hurdle"

    def predict(self, outputs: Tensor, given: HeadInput) -> HurdlePrediction:
        """The negative binomial's posterior, with other odds of a zero where no count is seen."""
        law = NegativeBinomial().predict(outputs[:2], given)
        return HurdlePrediction.of(law, outputs[2].masked_fill(given.xt > 0, 0.0))

    def loss(self, y: Tensor, prediction: Prediction) -> Tensor:
        """Eq. 6 for the mean, and the likelihood of the hurdle."""
        loss = count_loss(y, prediction.log_mean)
        if not isinstance(prediction, HurdlePrediction) or prediction.law is None:
            return loss
        law = prediction.law
        assert law.log_dispersion is not None
        positive = nb_loss(y, law.log_mean, law.log_dispersion) - prediction.log_lift
        return loss + torch.where(y > 0, positive, F.softplus(-prediction.logit_zero))
