"""The denoiser of images: diffusers' U-Net, and heads that make a prediction of its output."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional as F

from sccountsdiff.benchmark.optional import optional_import
from sccountsdiff.checks import one_of
from sccountsdiff.diffusion import Prediction, Schedule
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


IMAGE_INPUTS = ("range", "moments")
"""How noised images are shown to the network: scaled by the range of a pixel, as the paper's, or by their moments."""


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


class ConditionEmbedding(nn.Module):
    """A class by a table, attributes by a small MLP; zeros where the condition is left out (Section 3.4).

    Examples
    --------
    >>> import torch
    >>> embed = ConditionEmbedding(10, 4, multi_label=False)
    >>> embed(torch.tensor([3, 3]), torch.tensor([False, True]))[1].tolist()
    [0.0, 0.0, 0.0, 0.0]
    """

    def __init__(self, n_conditions: int, width: int, *, multi_label: bool):
        super().__init__()
        self.multi_label = multi_label
        mlp = lambda: nn.Sequential(nn.Linear(n_conditions, width), nn.SiLU(), nn.Linear(width, width))
        self.embed = mlp() if multi_label else nn.Embedding(n_conditions, width)

    def forward(self, conditions: Tensor, null: Tensor) -> Tensor:
        """Embedding of each image's condition, ``(images, width)``."""
        conditions = conditions.float() if self.multi_label else conditions.long()
        return self.embed(conditions).masked_fill(null[:, None], 0)


class ImageDenoiser(nn.Module):
    """U-Net that predicts the counts still to come at each pixel.

    The paper's network has ``inputs="range"``, ``(x_t - p M / 2) / M`` with M the largest count, and ``head="softplus"``,
    ``y_hat = softplus(output)``. With ``inputs="moments"``, ``x_t`` is standardised with its mean ``p m`` and variance
    ``p (1 - p) m + p^2 v`` for a channel with mean m and variance v. With ``head="share"`` the output moves the best
    linear prediction of each pixel from itself, as a share of what still fits below ``max_count``: the untrained network
    *is* that prediction.

    Parameters
    ----------
    mean, variance
        Moments of each pixel in the training images, ``(channels, height, width)``.
    max_count
        Largest value of a pixel.
    schedule
        Survival schedule.
    n_conditions
        Number of classes or attributes; 0 for an unconditional network.
    multi_label
        Whether conditions are attributes.
    channels
        Width of each level, the resolution halving from one to the next.
    layers_per_block
        Residual blocks of each level.
    attention_at
        Resolution with self-attention (there is always some at the lowest one, in the middle block).
    dropout
        Dropout of the residual blocks.
    head
        ``"share"`` or ``"softplus"`` (``sccountsdiff.benchmark.images.network``).
    inputs
        ``"moments"`` or ``"range"``.

    Examples
    --------
    >>> import torch
    >>> from sccountsdiff.diffusion import Cosine
    >>> net = ImageDenoiser(torch.ones(1, 8, 8), torch.ones(1, 8, 8), 16, Cosine(), n_conditions=10, channels=(8, 8))
    >>> x, t = torch.zeros(2, 1, 8, 8), torch.ones(2)
    >>> net(x, t, torch.tensor([0, 1]), torch.tensor([False, True])).mean.mean().round(decimals=2).item()
    1.0
    """

    def __init__(
        self,
        mean: Tensor,
        variance: Tensor,
        max_count: int,
        schedule: Schedule,
        *,
        n_conditions: int = 0,
        multi_label: bool = False,
        channels: Sequence[int] = (128, 256, 256, 256),
        layers_per_block: int = 2,
        attention_at: int = 16,
        dropout: float = 0.1,
        head: str = "share",
        inputs: str = "moments",
    ):
        super().__init__()
        n_channels, height, width = mean.shape
        factor = 2 ** (len(channels) - 1)
        if height % factor or width % factor:
            raise ValueError(f"Images of {height} x {width} cannot be halved {len(channels) - 1} times.")
        one_of("inputs", inputs, IMAGE_INPUTS)
        self.max_count, self.schedule, self.head, self.inputs = max_count, schedule, IMAGE_HEADS[head](), inputs
        self.register_buffer("mean", mean)
        self.register_buffer("variance", variance)
        # Moments of a whole channel: variance within pixels and between them.
        self.register_buffer("channel_mean", mean.mean((1, 2), keepdim=True))
        spread = variance.mean((1, 2), keepdim=True) + mean.var((1, 2), keepdim=True, correction=0)
        self.register_buffer("channel_variance", spread)
        attends = [height // 2**level == attention_at for level in range(len(channels))]
        self.unet = optional_import("diffusers", "An image network", "images").UNet2DModel(
            sample_size=height,
            in_channels=n_channels,
            out_channels=n_channels,
            block_out_channels=tuple(channels),
            down_block_types=tuple("AttnDownBlock2D" if attend else "DownBlock2D" for attend in attends),
            up_block_types=tuple("AttnUpBlock2D" if attend else "UpBlock2D" for attend in reversed(attends)),
            layers_per_block=layers_per_block,
            dropout=dropout,
            norm_num_groups=min(32, *(width // 4 for width in channels)),
            class_embed_type="identity" if n_conditions else None,
        )
        self.condition = None
        if n_conditions:
            self.condition = ConditionEmbedding(n_conditions, 4 * channels[0], multi_label=multi_label)
        if self.head.zero_output:
            nn.init.zeros_(self.unet.conv_out.weight)
            nn.init.zeros_(self.unet.conv_out.bias)

    def forward(self, x: Tensor, t: Tensor, conditions: Tensor | None, null: Tensor) -> Prediction:
        """Law of the remaining counts.

        Parameters
        ----------
        x
            Noised images, ``(images, channels, height, width)``.
        t
            Time of each image.
        conditions
            Class of each image, or its attributes, ``(images, attributes)``.
        null
            Images whose condition is left out.
        """
        p = self.schedule.survival(t).to(x)[:, None, None, None]
        if self.inputs == "range":
            shown = (x - p * self.max_count / 2) / self.max_count
        else:
            # One count more of variance: where p is near 0, a single count must not become a huge input.
            scale = (p * (1 - p) * self.channel_mean + p**2 * self.channel_variance + 1).sqrt()
            shown = (x - p * self.channel_mean) / scale
        embedding = None if self.condition is None else self.condition(conditions, null)
        # diffusers expects times between 0 and 1,000.
        output = self.unet(shown, 1000 * t, class_labels=embedding).sample.float()
        return self.head(output, x, p, linear_guess(x, p, self.mean, self.variance), self.max_count)
