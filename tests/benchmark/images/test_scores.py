"""Distances and scores have their closed forms."""

import numpy as np
import pytest
import torch

from sccountsdiff.benchmark.images import (
    ArrayImages,
    ImageEvaluator,
    first_images,
    inception_score,
    train_classifier,
)
from sccountsdiff.benchmark.metrics import scfid


@pytest.fixture(scope="module")
def classifier(digits):
    return train_classifier(digits.train, n_epochs=5)


def noise(seed, n=300):
    pixels = np.random.default_rng(seed).integers(0, 256, (n, 1, 2, 2), dtype=np.uint8)
    return ArrayImages(pixels, [0] * n, ["noise"])


def test_frechet_distance_is_that_of_the_two_normal_laws():
    real, drawn = noise(0), first_images(noise(1), 300)[0]
    drawn = (drawn // 2).to(torch.uint8)
    evaluator = ImageEvaluator(torch.nn.Flatten(), real, batch_size=70)
    expected = scfid(real.images.numpy().reshape(300, 4), drawn.numpy().reshape(300, 4))
    assert evaluator.score(drawn) == {"frechet": pytest.approx(expected, rel=1e-4)}
    assert evaluator.score(drawn)["frechet"] == pytest.approx(expected, rel=1e-4)  # nothing is left from before


def test_frechet_distance_of_a_shift_is_its_square():
    real = noise(0)
    real.images //= 2
    evaluator = ImageEvaluator(torch.nn.Flatten(), real)
    assert evaluator.score(real.images + 3)["frechet"] == pytest.approx(4 * 3**2, rel=1e-3)


def test_inception_score_is_the_number_of_classes_found_with_certainty():
    certain = 30 * torch.eye(5).repeat(40, 1)
    assert inception_score(certain, 1)[0] == pytest.approx(5, rel=1e-6)
    assert inception_score(torch.zeros(50, 5), 5) == (pytest.approx(1), pytest.approx(0))


def test_inception_score_survives_probabilities_below_what_floats_hold():
    impossible = torch.zeros(200, 4)
    impossible[:, 0], impossible[:, 3] = 1e5, -1e5  # one class for all, in all eternity
    score, sd = inception_score(impossible)
    assert score == pytest.approx(1) and sd == pytest.approx(0)


def test_inception_score_does_not_depend_on_the_global_stream():
    logits = torch.randn(100, 5)
    assert inception_score(logits) == inception_score(logits)
    before = torch.random.get_rng_state()
    inception_score(logits)
    assert torch.equal(before, torch.random.get_rng_state())


def test_inception_score_needs_an_image_for_each_split():
    with pytest.raises(ValueError, match="at least `n_splits` = 10"):
        inception_score(torch.zeros(4, 5))


def test_real_digits_are_closer_than_noise_and_score_higher(digits, classifier):
    evaluator = ImageEvaluator(classifier, digits.train)
    real = evaluator.score(first_images(digits.heldout, 297)[0])
    shuffled = first_images(digits.heldout, 297)[0].flatten(1)[:, torch.randperm(64)].reshape(-1, 1, 8, 8)
    noisy = evaluator.score(shuffled)
    assert real["frechet"] < 0.1 * noisy["frechet"] and real["inception_score"] > noisy["inception_score"]


class Counting(torch.nn.Module):
    """Pixels as features; remembers how many images went through."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(1))
        self.seen = 0

    def forward(self, images):
        self.seen += len(images)
        return images.flatten(1).float() * self.scale


def test_real_images_are_looked_at_when_the_first_score_is_asked_for():
    network = Counting()
    evaluator = ImageEvaluator(network, noise(0))
    assert network.seen == 0  # processes that only help to train never ask
    evaluator.score(noise(1).images)
    after = network.seen
    evaluator.score(noise(1).images)
    assert after == 1 + 300 + 300 and network.seen == after + 300


def test_moments_of_real_images_are_kept_by_content(tmp_path, caplog):
    drawn = noise(1).images
    network = Counting()
    expected = ImageEvaluator(network, noise(0), cache=tmp_path).score(drawn)
    (file,) = tmp_path.iterdir()
    network.seen = 0
    assert ImageEvaluator(network, noise(0), cache=tmp_path).score(drawn) == expected
    assert network.seen == 1 + 300  # drawn ones alone
    # Other images, and other weights, have other moments.
    assert ImageEvaluator(network, noise(2), cache=tmp_path).score(drawn) != expected
    torch.nn.init.constant_(network.scale, 2.0)
    assert ImageEvaluator(network, noise(0), cache=tmp_path).score(drawn)["frechet"] == pytest.approx(
        4 * expected["frechet"]
    )
    assert len(list(tmp_path.iterdir())) == 3
    torch.nn.init.constant_(network.scale, 1.0)
    file.write_bytes(file.read_bytes()[:100])
    assert ImageEvaluator(network, noise(0), cache=tmp_path).score(drawn) == pytest.approx(expected)
    assert "set aside" in caplog.text and file.is_file()
