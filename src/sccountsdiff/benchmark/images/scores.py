"""How good drawn images are: Frechet distance and inception score, by torchmetrics."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from sccountsdiff.benchmark.images.data import CountImages, first_images
from sccountsdiff.benchmark.optional import optional_import

LEAST_LOGIT = -60.0
"""Class scores this far below the best one count as this far: beyond, softmax underflows and the score is not a number."""

ALONE = {"sync_on_compute": False}
"""Where several processes train together, one of them scores: it must not wait for the others."""


def _metric(module: str, name: str, features: Tensor, **options):
    """A metric of torchmetrics that takes features as they are: they are computed once, for all metrics."""
    as_they_are = nn.Identity()
    as_they_are.num_features = features.shape[1]  # torchmetrics asks for it
    metric = getattr(optional_import(f"torchmetrics.image.{module}", "Scoring images", "images"), name)
    return metric(as_they_are, **options, **ALONE).to(features.device).set_dtype(torch.float64)


class ImageEvaluator:
    """Scores drawn images against real ones in the feature space of a network.

    Parameters
    ----------
    network
        Any module that maps uint8 images to features, such as :class:`~sccountsdiff.benchmark.images.Inception`. If it
        has a method ``logits(features)``, there is an inception score as well.
    real
        Real images.
    batch_size
        Images that go through the network at once.
    n_splits
        Parts over which the inception score is averaged.
    device
        Where the network runs.

    Examples
    --------
    >>> import numpy as np, torch
    >>> from sccountsdiff.benchmark.images import ArrayImages
    >>> pixels = np.random.default_rng(0).integers(0, 255, (50, 1, 2, 2)).astype("uint8")
    >>> evaluator = ImageEvaluator(torch.nn.Flatten(), ArrayImages(pixels, [0] * 50, ["noise"]))
    >>> evaluator.score(torch.from_numpy(pixels))["frechet"] < 0.01
    True
    """

    def __init__(
        self,
        network: nn.Module,
        real: CountImages,
        *,
        batch_size: int = 256,
        n_splits: int = 10,
        device: str | torch.device = "cpu",
    ):
        self.network, self.device = network.to(device).eval(), device
        self.batch_size, self.n_splits = batch_size, n_splits
        some = self._features(first_images(real, 1)[0])
        self.frechet = _metric("fid", "FrechetInceptionDistance", some, reset_real_features=False)
        for images, _ in DataLoader(real, batch_size):
            self.frechet.update(self._features(images).double(), real=True)

    @torch.inference_mode()
    def _features(self, images: Tensor) -> Tensor:
        return self.network(images.to(self.device)).float().flatten(1)

    def score(self, images: Tensor) -> dict[str, float]:
        """Scores of drawn images.

        Parameters
        ----------
        images
            uint8 images, ``(images, channels, height, width)``.

        Returns
        -------
        ``frechet`` and, if the network classifies, ``inception_score`` and its standard deviation over the splits.
        """
        features = torch.cat([self._features(part) for part in images.split(self.batch_size)])
        self.frechet.update(features.double(), real=False)
        scores = {"frechet": self.frechet.compute().item()}
        self.frechet.reset()
        if hasattr(self.network, "logits"):
            with torch.inference_mode():
                logits = self.network.logits(features)
            scores["inception_score"], scores["inception_score_sd"] = inception_score(logits, self.n_splits)
        return scores


def inception_score(logits: Tensor, n_splits: int = 10) -> tuple[float, float]:
    """Inception score and its standard deviation over ``n_splits`` parts.

    Parameters
    ----------
    logits
        Class scores of each image, ``(images, classes)``.
    n_splits
        Parts, each of which is scored by itself.

    Returns
    -------
    Mean and standard deviation over the parts.

    Examples
    --------
    Certain about every image, and all ten classes equally often:

    >>> import torch
    >>> score, sd = inception_score(1000 * torch.eye(10).repeat(20, 1), n_splits=1)
    >>> round(score, 2)
    10.0
    """
    if len(logits) < n_splits:
        raise ValueError(f"The inception score needs at least `n_splits` = {n_splits} images, found {len(logits)}.")
    logits = (logits - logits.amax(1, keepdim=True)).clamp_min(LEAST_LOGIT).double()
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        # torchmetrics warns that it keeps what it is given, and torch that one split has no standard deviation.
        warnings.simplefilter("ignore")
        metric = _metric("inception", "InceptionScore", logits, splits=n_splits)
        torch.manual_seed(0)  # the metric shuffles with the global generator
        metric.update(logits)
        mean, sd = metric.compute()
    return mean.item(), 0.0 if n_splits == 1 else sd.item()
