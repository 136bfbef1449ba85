"""The handwritten digits that come with scikit-learn: 1,797 images of 8 x 8 pixels with values 0 to 16."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sccountsdiff.benchmark.images.config import SMALL, ImageConfig
from sccountsdiff.benchmark.images.data import ArrayImages, Splits, register_images
from sccountsdiff.benchmark.optional import optional_import

N_TRAIN = 1500

DIGITS_CONFIG = ImageConfig(
    "digits", channels=(24, 48), batch_size=64, flip=False, lr=2e-3, n_steps=1200, evaluate_every=300, **SMALL
)


@register_images("digits", {"digits": DIGITS_CONFIG}, trains_classifier=True)
def load_digits(path: str | Path | None = None, download: bool = False) -> Splits:
    """The digits, 1,500 to train on and 297 held out; the same ones each time.

    Parameters
    ----------
    path, download
        Not needed, the digits are part of scikit-learn; a path is an error.

    Examples
    --------
    >>> splits = load_digits()
    >>> len(splits.train), len(splits.heldout), splits.train.max_count
    (1500, 297, 16)
    """
    datasets = optional_import("sklearn.datasets", "Loading the digits", "images")

    if path is not None:
        raise ValueError(f"The digits come with scikit-learn and are read from no file; leave out {str(path)!r}.")
    images, labels = datasets.load_digits(return_X_y=True)
    images = images.astype(np.uint8).reshape(-1, 1, 8, 8)
    # The last ones were written by other people than the first: shuffled, both parts have digits of all writers.
    order = np.random.default_rng(0).permutation(len(images))
    parts = (order[:N_TRAIN], order[N_TRAIN:])
    return Splits(*(ArrayImages(images[part], labels[part], "0123456789", max_count=16) for part in parts))
