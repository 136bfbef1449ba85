"""The classifier recognises digits that it was not trained on."""

import numpy as np
import pytest
import torch

from sccountsdiff.benchmark.images import (
    ArrayImages,
    Classifier,
    first_images,
    train_classifier,
)


@pytest.fixture(scope="module")
def classifier(digits):
    return train_classifier(digits.train, n_epochs=5)


def test_classifier_knows_digits_it_has_not_seen(digits, classifier):
    assert classifier.agreement(*first_images(digits.heldout, 297)) > 0.93
    images, classes = first_images(digits.heldout, 297)
    assert classifier.agreement(images, (classes + 1) % 10) < 0.05


def test_same_seed_same_classifier(digits):
    few = ArrayImages(digits.train.images[:40].numpy(), digits.train.labels[:40], "0123456789", 16)
    first, second = (train_classifier(few, n_epochs=1, seed=3).state_dict() for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_attributes_are_no_classes():
    class Faces(ArrayImages):
        multi_label = True

    with pytest.raises(ValueError, match="one class each"):
        train_classifier(Faces(np.zeros((2, 1, 8, 8), np.uint8), [0, 0], ["Smiling"]))
    assert Classifier((3, 32, 32), 255, 10)(torch.zeros(2, 3, 32, 32)).shape == (2, 64)
