"""Inception has the published layout and reads weights in it; the classifier recognises digits it was not trained on."""

import numpy as np
import pytest
import torch

from sccountsdiff.benchmark.images import (
    ArrayImages,
    Classifier,
    Inception,
    first_images,
    load_inception,
    train_classifier,
)
from sccountsdiff.benchmark.images.features import WEIGHTS, WEIGHTS_URL


@pytest.fixture(scope="module")
def inception():
    torch.manual_seed(0)
    return Inception().eval()


def test_inception_has_the_published_layout(inception):
    weights = inception.state_dict()
    assert sum(p.numel() for p in inception.parameters()) == 23_834_568 + 8 * 2049  # 1,008 classes instead of 1,000
    for name, shape in {
        "Conv2d_1a_3x3.conv.weight": (32, 3, 3, 3),
        "Mixed_5b.branch_pool.conv.weight": (32, 192, 1, 1),
        "Mixed_6a.branch3x3.bn.running_mean": (384,),
        "Mixed_6c.branch7x7dbl_4.conv.weight": (160, 160, 7, 1),
        "Mixed_7a.branch7x7x3_4.conv.weight": (192, 192, 3, 3),
        "Mixed_7b.branch3x3_2a.conv.weight": (384, 384, 1, 3),
        "Mixed_7c.branch3x3dbl_3b.conv.weight": (384, 384, 3, 1),
        "fc.weight": (1008, 2048),
    }.items():
        assert weights[name].shape == shape


def test_weights_in_that_layout_are_loaded(inception, tmp_path):
    weights = {k: v for k, v in inception.state_dict().items() if not k.endswith("num_batches_tracked")}
    torch.save(weights, tmp_path / "weights.pth")
    loaded = load_inception(tmp_path / "weights.pth")
    images = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8)
    with torch.inference_mode():
        features = loaded(images)
        assert torch.equal(features, inception(images))
        assert loaded.logits(features).shape == (2, 1008)
    assert not loaded.training and not any(p.requires_grad for p in loaded.parameters())


def test_weights_are_found_in_torch_hub_s_cache_or_fetched_into_it(inception, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    with pytest.raises(FileNotFoundError, match="another feature network"):
        load_inception()
    (tmp_path / "checkpoints").mkdir()
    fetched = []

    def fetch(url, **kwargs):
        fetched.append(url)
        torch.save(inception.state_dict(), tmp_path / "checkpoints" / WEIGHTS)

    monkeypatch.setattr(torch.hub, "load_state_dict_from_url", fetch)
    for options in ({"download": True}, {"download": True}, {}):
        assert torch.equal(load_inception(**options).fc.weight, inception.fc.weight)
    assert fetched == [WEIGHTS_URL], "once is enough"


def test_other_layouts_and_pickled_code_are_refused(tmp_path):
    torch.save({"layer.weight": torch.zeros(1)}, tmp_path / "other.pth")
    with pytest.raises(ValueError, match="does not have the layout"):
        load_inception(tmp_path / "other.pth")
    torch.save(Classifier((1, 8, 8), 16, 10), tmp_path / "module.pth")
    with pytest.raises(Exception, match="[Ww]eights.only"):
        load_inception(tmp_path / "module.pth")


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
