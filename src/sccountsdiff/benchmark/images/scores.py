"""How good drawn images are: Frechet distance and inception score, by torchmetrics."""

from __future__ import annotations

import warnings
import zipfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from sccountsdiff.benchmark.images.caching import fingerprint
from sccountsdiff.benchmark.images.data import CountImages
from sccountsdiff.benchmark.optional import optional_import
from sccountsdiff.files import replacing, set_aside

LEAST_LOGIT = -60.0
"""Class scores this far below the best one count as this far: beyond, softmax underflows and the score is not a number."""

REFERENCE = ("real_features_sum", "real_features_cov_sum", "real_features_num_samples")
"""What torchmetrics keeps of the features of real images."""

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
    cache
        Folder in which the moments of the real images' features are kept, named by the content of network and images: they
        are computed once for all runs that share it.

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
        cache: str | Path | None = None,
    ):
        self.network, self.device = network.to(device).eval(), device
        self.batch_size, self.n_splits, self.real = batch_size, n_splits, real
        self.cache = None if cache is None else Path(cache)
        self._frechet = None

    @property
    def frechet(self):
        """The metric that knows the real images; they are looked at when the first score is asked for.

        Of several processes that train together only one scores, so that only one looks at them.
        """
        if self._frechet is None:
            some = self._features(self.real[0][0][None])
            self._frechet = _metric("fid", "FrechetInceptionDistance", some, reset_real_features=False)
            self._look_at_real_images()
        return self._frechet

    def _look_at_real_images(self) -> None:
        file = None
        if self.cache is not None:
            pictures = [fingerprint(images) for images, _ in DataLoader(self.real, self.batch_size)]
            file = self.cache / f"reference_{fingerprint(self.network.state_dict(), str(self.network), pictures)}.npz"
            if (kept := _read_reference(file)) is not None:
                for name, value in kept.items():
                    getattr(self._frechet, name).copy_(torch.from_numpy(value))
                return
        for images, _ in DataLoader(self.real, self.batch_size):
            self._frechet.update(self._features(images).double(), real=True)
        if file is not None:
            self.cache.mkdir(parents=True, exist_ok=True)
            with replacing(file) as beside:
                np.savez(beside, **{name: getattr(self._frechet, name).cpu().numpy() for name in REFERENCE})

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
        frechet = self.frechet
        frechet.update(features.double(), real=False)
        scores = {"frechet": frechet.compute().item()}
        frechet.reset()
        if hasattr(self.network, "logits"):
            with torch.inference_mode():
                logits = self.network.logits(features)
            scores["inception_score"], scores["inception_score_sd"] = inception_score(logits, self.n_splits)
        return scores


def _read_reference(file: Path) -> dict[str, np.ndarray] | None:
    """Moments that were kept by an earlier run; a damaged file is set aside."""
    if not file.is_file():
        return None
    try:
        with np.load(file, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in REFERENCE}
    except (ValueError, OSError, KeyError, zipfile.BadZipFile) as error:
        set_aside(file, error)
        return None


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
