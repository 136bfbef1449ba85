"""Image heads: how the output of the U-Net becomes a prediction of the counts still to come."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor
from torch.nn import functional as F

from sccountsdiff.diffusion import Prediction
from sccountsdiff.registry import Registry

IMAGE_HEADS: Registry[type[ImageHead]] = Registry("image head")


class ImageHead(ABC):
    """A prediction from the output of a network.

    Attributes
    ----------
    zero_output
        Whether the last layer of the network starts at zero, so that the untrained network is what the head makes of 0.

    Examples
    --------
    >>> IMAGE_HEADS.names()
    ['share', 'softplus']
    """

    zero_output: bool = False

    @abstractmethod
    def __call__(self, output: Tensor, x: Tensor, p: Tensor, linear: Tensor, max_count: int) -> Prediction:
        """Law of the remaining counts.

        Parameters
        ----------
        output
            Output of the network, in the shape of ``x``.
        x
            Noised images, ``(images, channels, height, width)``.
        p
            Survival of each image, ``(images, 1, 1, 1)``.
        linear
            Best linear prediction of the remaining counts (:func:`linear_guess`).
        max_count
            Largest value of a pixel.
        """


@IMAGE_HEADS.register("share")
class ShareHead(ImageHead):
    """A share of what still fits below ``max_count``: the output is added to the logit of the linear prediction's share.

    Examples
    --------
    An output of 0 leaves the linear prediction as it is:

    >>> import torch
    >>> zero = torch.zeros(1)
    >>> ShareHead()(zero, zero, zero, torch.tensor([4.0]), 16).mean.round(decimals=3).item()
    4.0
    """

    zero_output = True

    def __call__(self, output: Tensor, x: Tensor, p: Tensor, linear: Tensor, max_count: int) -> Prediction:
        """Never above ``max_count - x``."""
        room = (max_count - x).clamp_min(1e-3)  # none at the brightest pixels, and a logarithm needs some
        share = (linear / room).maximum(1e-3 * (1 - p)).clamp(1e-20, 0.98)
        return Prediction(room.log() + F.logsigmoid(share.logit() + output))


@IMAGE_HEADS.register("softplus")
class SoftplusHead(ImageHead):
    """The paper's head, ``y_hat = softplus(output)``.

    Examples
    --------
    >>> import torch
    >>> zero = torch.zeros(1)
    >>> round(SoftplusHead()(zero, zero, zero, zero, 16).mean.item(), 4)  # log 2
    0.6931
    """

    def __call__(self, output: Tensor, x: Tensor, p: Tensor, linear: Tensor, max_count: int) -> Prediction:
        """The softplus of the output alone."""
        return Prediction(F.softplus(output).clamp_min(1e-12).log())


def linear_guess(x: Tensor, p: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """Best linear prediction of the remaining counts from the same pixel alone.

    ``Cov(x_0, x_t) = p v`` and ``Var(x_t) = p (1 - p) m + p^2 v`` give
    ``E[x_0 | x_t] = m + v (x_t - p m) / ((1 - p) m + p v)``. May be below 0.

    Examples
    --------
    At p = 0 nothing is left of the image, and the prediction is its mean:

    >>> import torch
    >>> linear_guess(torch.zeros(1), torch.zeros(1), torch.tensor([5.0]), torch.tensor([2.0])).item()
    5.0
    """
    slope = variance / ((1 - p) * mean + p * variance).clamp_min(1e-6)
    return mean + slope * (x - p * mean) - x
