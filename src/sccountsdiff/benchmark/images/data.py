"""Images as counts: what every set of images offers, and the registry of sets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from sccountsdiff.benchmark.images.config import CONFIGS, ImageConfig
from sccountsdiff.registry import Registry


class CountImages(Dataset):
    """Images with whole-number pixels, and what each of them shows.

    Attributes
    ----------
    shape
        Channels, height and width.
    max_count
        Largest value of a pixel.
    names
        Names of the classes, or of the attributes if ``multi_label``.
    multi_label
        Whether an image has any number of attributes (a row of zeros and ones) instead of one class.

    Examples
    --------
    A set of your own says what it is, and how many images it has:

    >>> import torch
    >>> class Black(CountImages):
    ...     shape, max_count, names = (1, 8, 8), 255, ("black",)
    ...
    ...     def __len__(self):
    ...         return 10
    ...
    ...     def __getitem__(self, index):
    ...         return torch.zeros(self.shape, dtype=torch.uint8), torch.tensor(0)
    >>> first_images(Black(), 3)[0].shape
    torch.Size([3, 1, 8, 8])
    """

    shape: tuple[int, int, int]
    max_count: int
    names: tuple[str, ...]
    multi_label: bool = False

    def __len__(self) -> int:
        raise NotImplementedError

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """One image ``(channels, height, width)`` as uint8, and its class or attributes."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Do once what all processes that read images profit from; nothing by default."""
        return


class ArrayImages(CountImages):
    """Images held in memory.

    Parameters
    ----------
    images
        uint8 array, ``(images, channels, height, width)``.
    labels
        Class of each image, as a position in ``names``.
    names
        Names of the classes.
    max_count
        Largest value that a pixel can have.

    Examples
    --------
    >>> import numpy as np
    >>> few = ArrayImages(np.zeros((2, 1, 8, 8), "uint8"), [0, 1], ["dark", "black"])
    >>> len(few), few.shape, int(few[1][1])
    (2, (1, 8, 8), 1)
    """

    def __init__(self, images: np.ndarray, labels, names, max_count: int = 255):
        images, labels = np.asarray(images), np.asarray(labels, dtype=np.int64)
        if images.dtype != np.uint8 or images.ndim != 4:
            found = f"{images.dtype} with shape {images.shape}"
            raise ValueError(f"`images` must be a uint8 array (images, channels, height, width), found {found}.")
        if labels.shape != (len(images),):
            raise ValueError(f"`labels` must have one class for each of {len(images)} images, found {labels.shape}.")
        if len(labels) and not (0 <= labels.min() and labels.max() < len(names)):
            found = f"{labels.min()} to {labels.max()}"
            raise ValueError(f"`labels` must lie within 0 and {len(names) - 1}, found {found}.")
        if images.size and images.max() > max_count:
            raise ValueError(f"`images` has a pixel of {images.max()}, above `max_count` = {max_count}.")
        self.images, self.labels = torch.from_numpy(np.ascontiguousarray(images)), torch.from_numpy(labels)
        self.shape, self.names, self.max_count = tuple(images.shape[1:]), tuple(map(str, names)), max_count

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.images[index], self.labels[index]


@dataclass(frozen=True)
class Splits:
    """Images to train on, and images that are never trained on.

    Parameters
    ----------
    train
        Images to train on.
    heldout
        Images that are never trained on.

    Examples
    --------
    >>> import numpy as np
    >>> few = ArrayImages(np.zeros((2, 1, 8, 8), "uint8"), [0, 0], ["dark"])
    >>> len(Splits(few, few).heldout)
    2
    """

    train: CountImages
    heldout: CountImages


Load = Callable[[str | Path | None, bool], Splits]
"""Reads a set of images: from a path, or downloaded to it first if the second argument says so."""


@dataclass(frozen=True)
class ImageSet:
    """A set of images and all that the study needs to know about it.

    Attributes
    ----------
    load
        Reads the images.
    configs
        Settings by name; the first are the default ones.
    trains_classifier
        Whether images are compared in the features of a classifier that is trained on this set, which also says how often
        the class asked for is found. Otherwise they are compared in those of Inception.
    downloads
        Whether ``load`` can fetch the images.
    """

    load: Load
    configs: dict[str, ImageConfig]
    trains_classifier: bool = False
    downloads: bool = False

    @property
    def default_config(self) -> str:
        """Name of the default settings."""
        return next(iter(self.configs))


IMAGE_SETS: Registry[ImageSet] = Registry("image set")


def register_images(
    name: str, configs: dict[str, ImageConfig], *, trains_classifier: bool = False, downloads: bool = False
) -> Callable[[Load], Load]:
    """Decorator of a function that reads images: makes the set and its settings known under their names.

    Parameters
    ----------
    name
        Name of the set.
    configs, trains_classifier, downloads
        As in :class:`ImageSet`.

    Returns
    -------
    A decorator that returns the function as it is.

    Examples
    --------
    >>> import numpy as np
    >>> @register_images("dark", {"dark_small": ImageConfig("dark", channels=(8, 8))})
    ... def load_dark(path, download):
    ...     images = ArrayImages(np.zeros((2, 1, 8, 8), "uint8"), [0, 0], ["dark"])
    ...     return Splits(images, images)
    >>> len(load_images("dark").train), CONFIGS["dark_small"].channels
    (2, (8, 8))
    """

    def decorate(load: Load) -> Load:
        IMAGE_SETS.register(name)(ImageSet(load, configs, trains_classifier, downloads))
        CONFIGS.update(configs)
        return load

    return decorate


def load_images(name: str, path: str | Path | None = None, *, download: bool = False) -> Splits:
    """A set of images by name.

    Parameters
    ----------
    name
        Name of a registered set: ``"digits"`` (bundled with scikit-learn), ``"cifar10"``, ``"celeba"``.
    path
        File or folder with the images, for sets that are read from one.
    download
        Fetch the images into the folder ``path`` if they are not there, for sets that can be fetched (``"cifar10"``).

    Returns
    -------
    Training and held-out images.

    Examples
    --------
    >>> load_images("digits").train.shape  # doctest: +SKIP
    (1, 8, 8)
    """
    return IMAGE_SETS.get(name).load(path, download)


def first_images(data: CountImages, n: int, start: int = 0) -> tuple[Tensor, Tensor]:
    """Images ``start`` to ``start + n`` (fewer if there are not as many) and their conditions, as two tensors.

    Parameters
    ----------
    data
        The set of images.
    n
        How many.
    start
        Position of the first.

    Returns
    -------
    Images ``(images, channels, height, width)``, and their classes or attributes.

    Examples
    --------
    >>> import numpy as np
    >>> few = ArrayImages(np.zeros((3, 1, 8, 8), "uint8"), [0, 0, 0], ["dark"])
    >>> first_images(few, 2)[0].shape
    torch.Size([2, 1, 8, 8])
    """
    images, conditions = zip(*(data[i] for i in range(start, min(start + n, len(data)))), strict=True)
    return torch.stack(images), torch.stack(conditions)


def pixel_moments(data: CountImages, n: int = 10_000) -> tuple[Tensor, Tensor]:
    """Mean and variance of each pixel, over ``n`` images spread evenly through the set.

    Parameters
    ----------
    data
        The set of images.
    n
        Largest number of images to use.

    Returns
    -------
    Mean and variance, each ``(channels, height, width)``.

    Examples
    --------
    >>> import numpy as np
    >>> pixels = np.array([1, 3], "uint8").reshape(2, 1, 1, 1)
    >>> [moment.item() for moment in pixel_moments(ArrayImages(pixels, [0, 0], ["dark"]))]
    [2.0, 1.0]
    """
    chosen = np.linspace(0, len(data) - 1, min(n, len(data))).astype(int).tolist()
    total, squares = torch.zeros(data.shape, dtype=torch.float64), torch.zeros(data.shape, dtype=torch.float64)
    for images, _ in DataLoader(data, batch_size=256, sampler=chosen):
        total += images.double().sum(0)
        squares += images.double().square().sum(0)
    mean = total / len(chosen)
    return mean.float(), (squares / len(chosen) - mean.square()).clamp_min(0).float()
