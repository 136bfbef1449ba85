"""Images in memory are checked, and their moments are those of numpy."""

import numpy as np
import pytest

from sccountsdiff.benchmark.images import (
    CONFIGS,
    ArrayImages,
    ImageConfig,
    Splits,
    first_images,
    load_config,
    load_images,
    pixel_moments,
)
from sccountsdiff.benchmark.images.data import IMAGE_SETS, register_images


def test_pixel_moments_are_those_of_numpy(digits):
    mean, variance = pixel_moments(digits.train)
    images = first_images(digits.train, 1500)[0].numpy().astype(float)
    np.testing.assert_allclose(mean, images.mean(0), rtol=1e-5)
    np.testing.assert_allclose(variance, images.var(0), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (np.zeros((2, 1, 2, 2)), [0, 0], "uint8"),
        (np.zeros((2, 2, 2), np.uint8), [0, 0], "uint8 array"),
        (np.zeros((2, 1, 2, 2), np.uint8), [0], "one class for each of 2"),
        (np.zeros((2, 1, 2, 2), np.uint8), [0, 1], "within 0 and 0"),
        (np.full((1, 1, 2, 2), 17, np.uint8), [0], "pixel of 17"),
    ],
)
def test_arrays_are_checked(images, labels, message):
    with pytest.raises(ValueError, match=message):
        ArrayImages(images, labels, ["only"], max_count=16)


def test_unknown_sets_are_named():
    with pytest.raises(KeyError, match="did you mean 'cifar10'"):
        load_images("cifar-10")


def test_a_set_is_registered_with_its_settings_in_one_place(digits, tmp_path):
    """What one file declares is what the loader, the settings and the study go by."""
    config = ImageConfig("halved", channels=(8, 8))
    try:

        @register_images("halved", {"halved_small": config}, downloads=True)
        def load_halved(path, download):
            return digits if download else Splits(digits.heldout, digits.heldout)

        assert load_images("halved", download=True) is digits
        assert len(load_images("halved").train) == len(digits.heldout)
        assert load_config("halved_small") == config
        assert IMAGE_SETS["halved"].default_config == "halved_small" and IMAGE_SETS["halved"].downloads
    finally:
        IMAGE_SETS._entries.pop("halved"), CONFIGS.pop("halved_small")


def test_settings_of_every_set_are_for_that_set():
    for name in IMAGE_SETS:
        assert IMAGE_SETS[name].configs and {config.dataset for config in IMAGE_SETS[name].configs.values()} == {name}
        assert IMAGE_SETS[name].configs.items() <= CONFIGS.items()
