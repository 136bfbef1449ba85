"""CelebA in the layout of its own files, made here pixel by pixel."""

import pickle

import numpy as np
import pytest
import torch
from PIL import Image

from sccountsdiff.benchmark.images import celeba as celeba_module
from sccountsdiff.benchmark.images import first_images, load_images
from sccountsdiff.benchmark.images.celeba import CelebA


def test_celeba_is_cropped_resized_and_split_as_its_own_files_say(celeba):
    splits = load_images("celeba", celeba)
    assert (len(splits.train), len(splits.heldout)) == (3, 1)
    images, attributes = first_images(splits.train, 3)
    assert images.shape == (3, 3, 64, 64) and images.dtype == torch.uint8
    # Nothing of the grey bars above and below is left.
    for image, shade in zip(images.float(), (0, 40, 160), strict=True):
        assert (image - shade).abs().max() <= 3
    assert attributes.tolist() == [[1, 0, 0], [1, 1, 0], [1, 0, 0]]
    assert splits.heldout[0][1].tolist() == [1, 0, 0], "the validation part, which the paper compares with"
    assert splits.train.names == ("5_o_Clock_Shadow", "Male", "Smiling") and splits.train.multi_label


def caches(celeba):
    return sorted(celeba.glob("img_align_celeba_64_*.npy"))


def test_images_are_decoded_once(celeba, monkeypatch):
    splits = load_images("celeba", celeba)
    assert not caches(celeba)  # before an image is asked for
    before = first_images(splits.train, 3)
    splits.heldout.prepare()
    assert len(caches(celeba)) == 2  # one for each part
    elsewhere = pickle.loads(pickle.dumps(splits.train))  # as a process that reads images gets it
    assert elsewhere.pixels is None and torch.equal(elsewhere[1][0], splits.train[1][0])
    monkeypatch.setattr(CelebA, "_read", lambda *args: pytest.fail("an image was decoded again"))
    splits = load_images("celeba", celeba)
    splits.train.prepare()
    assert isinstance(splits.train.pixels, np.memmap)
    assert all(torch.equal(a, b) for a, b in zip(first_images(splits.train, 3), before, strict=True))


def test_other_images_have_another_cache(celeba):
    load_images("celeba", celeba).train.prepare()
    Image.fromarray(np.full((218, 178, 3), 7, np.uint8)).save(celeba / "img_align_celeba" / "000001.jpg", quality=50)
    assert abs(int(load_images("celeba", celeba).train[0][0].float().mean()) - 7) <= 1
    assert len(caches(celeba)) == 2


def test_a_damaged_cache_is_set_aside_and_made_anew(celeba, caplog):
    expected = first_images(load_images("celeba", celeba).train, 3)[0]
    for cache in caches(celeba):
        cache.write_bytes(cache.read_bytes()[:500])
    assert torch.equal(first_images(load_images("celeba", celeba).train, 3)[0], expected)
    assert len(list(celeba.glob("*.npy.damaged"))) == 1 and "set aside" in caplog.text


def test_a_folder_that_takes_no_files_is_read_image_by_image(celeba, monkeypatch, caplog):
    expected = first_images(load_images("celeba", celeba).train, 3)[0]
    for cache in caches(celeba):
        cache.unlink()

    def refuse(path, n_bytes):
        raise OSError("read-only file system")

    monkeypatch.setattr(celeba_module, "check_can_write", refuse)
    splits = load_images("celeba", celeba)
    assert torch.equal(first_images(splits.train, 3)[0], expected) and splits.train.pixels is None
    assert "image by image" in caplog.text


def test_an_image_that_is_not_there_is_named(celeba):
    (celeba / "img_align_celeba" / "000003.jpg").unlink()
    with pytest.raises(FileNotFoundError, match="000003.jpg"):
        load_images("celeba", celeba)


def test_celeba_says_what_is_missing(celeba):
    (celeba / "list_eval_partition.txt").write_text("000001.jpg 0\n")
    with pytest.raises(ValueError, match="000002.jpg"):
        load_images("celeba", celeba)
    (celeba / "list_attr_celeba.txt").unlink()
    with pytest.raises(FileNotFoundError, match="list_attr_celeba.txt"):
        load_images("celeba", celeba)
    with pytest.raises(ValueError, match="cannot be downloaded"):
        load_images("celeba", celeba, download=True)
