"""Losses of predictions from single pixels, with which that of the network is compared."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Subset

from sccountsdiff.benchmark.images.data import CountImages
from sccountsdiff.benchmark.images.heads import linear_guess
from sccountsdiff.benchmark.images.model import ImageDiffusion
from sccountsdiff.diffusion import Prediction


@torch.inference_mode()
def heldout_losses(model: ImageDiffusion, data: CountImages, n: int = 1000) -> dict[str, float]:
    """Loss of the network, of the mean of each pixel, and of the best linear guess from the pixel itself.

    All three see the same images, times and noise.

    Parameters
    ----------
    model
        The model, whose settings and pixel moments are used.
    data
        Images that were not trained on.
    n
        At most this many of them.

    Returns
    -------
    The losses ``network``, ``pixel_mean`` and ``linear_guess``.

    Examples
    --------
    >>> from sccountsdiff.benchmark.images import load_config, load_images
    >>> splits = load_images("digits")
    >>> model = ImageDiffusion.for_images(load_config("digits"), splits.train)
    >>> losses = heldout_losses(model, splits.heldout, n=64)
    >>> losses["pixel_mean"] > losses["linear_guess"]
    True
    """
    network = model.network

    def survival(t: Tensor, x: Tensor) -> Tensor:
        return model.schedule.survival(t).to(x)[:, None, None, None]

    def pixel_mean(x: Tensor, t: Tensor, conditions: Tensor | None, null: Tensor) -> Prediction:
        return Prediction(((1 - survival(t, x)) * network.mean).clamp_min(1e-8).log().expand_as(x))

    def linear(x: Tensor, t: Tensor, conditions: Tensor | None, null: Tensor) -> Prediction:
        p = survival(t, x)
        guess = linear_guess(x, p, network.mean, network.variance)
        return Prediction(guess.maximum(1e-2 * (1 - p)).clamp_min(1e-8).log())

    predictors = {"network": None, "pixel_mean": pixel_mean, "linear_guess": linear}
    totals = dict.fromkeys(predictors, 0.0)
    was_training = model.training
    model.eval()
    some = Subset(data, range(min(n, len(data))))
    for number, batch in enumerate(DataLoader(some, model.config.batch_size)):
        batch = [part.to(model.device) for part in batch]
        for name, predict in predictors.items():
            totals[name] += model.heldout_loss(batch, number, predict).item() * len(batch[0]) / len(some)
    model.train(was_training)
    return totals
