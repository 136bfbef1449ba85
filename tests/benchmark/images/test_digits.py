"""The digits of scikit-learn are all there."""

import pytest
import torch

from sccountsdiff.benchmark.images import first_images, load_images


def test_digits_are_all_there_with_every_class_in_both_parts(digits):
    assert len(digits.train) + len(digits.heldout) == 1797
    for part in (digits.train, digits.heldout):
        images, labels = first_images(part, len(part))
        assert images.dtype == torch.uint8 and images.max() == 16 and set(labels.tolist()) == set(range(10))
    pixels = [first_images(part, len(part))[0].flatten(1).tolist() for part in (digits.train, digits.heldout)]
    assert not {tuple(row) for row in pixels[0]} & {tuple(row) for row in pixels[1]}


def test_digits_come_from_no_file():
    with pytest.raises(ValueError, match="no file"):
        load_images("digits", "somewhere")
