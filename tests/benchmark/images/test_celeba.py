"""CelebA in the layout of its own files, made here pixel by pixel."""

import numpy as np
import pytest
import torch
from PIL import Image

from sccountsdiff.benchmark.images import first_images, load_images


@pytest.fixture
def celeba(tmp_path):
    """Five faces in CelebA's own layout: grey, but for a white square of 178 pixels in the middle of 178 x 218."""
    (tmp_path / "img_align_celeba").mkdir()
    names = [f"{k:06d}.jpg" for k in range(1, 6)]
    for number, name in enumerate(names):
        pixels = np.full((218, 178, 3), 90, np.uint8)
        pixels[20:198] = 40 * number
        Image.fromarray(pixels).save(tmp_path / "img_align_celeba" / name, quality=100)
    attributes = ["5_o_Clock_Shadow", "Male", "Smiling"]
    lines = ["5", " ".join(attributes), *(f"{name}  1 {'1' if k % 2 else '-1'} -1" for k, name in enumerate(names))]
    (tmp_path / "list_attr_celeba.txt").write_text("\n".join(lines) + "\n")
    parts = ["0", "0", "1", "2", "0"]
    (tmp_path / "list_eval_partition.txt").write_text("".join(f"{n} {p}\n" for n, p in zip(names, parts, strict=True)))
    return tmp_path


def test_celeba_is_cropped_resized_and_split_as_its_own_files_say(celeba):
    splits = load_images("celeba", celeba)
    assert (len(splits.train), len(splits.heldout)) == (3, 1)
    images, attributes = first_images(splits.train, 3)
    assert images.shape == (3, 3, 64, 64) and images.dtype == torch.uint8
    # Nothing of the grey bars above and below is left.
    for image, shade in zip(images.float(), (0, 40, 160), strict=True):
        assert (image - shade).abs().max() <= 3
    assert attributes.tolist() == [[1, 0, 0], [1, 1, 0], [1, 0, 0]]
    assert splits.heldout[0][1].tolist() == [1, 1, 0]
    assert splits.train.names == ("5_o_Clock_Shadow", "Male", "Smiling") and splits.train.multi_label


def test_celeba_reads_no_image_before_it_is_asked_for(celeba):
    for file in (celeba / "img_align_celeba").iterdir():
        file.unlink()
    splits = load_images("celeba", celeba)
    with pytest.raises(FileNotFoundError):
        splits.train[0]


def test_celeba_says_what_is_missing(celeba):
    (celeba / "list_eval_partition.txt").write_text("000001.jpg 0\n")
    with pytest.raises(ValueError, match="000002.jpg"):
        load_images("celeba", celeba)
    (celeba / "list_attr_celeba.txt").unlink()
    with pytest.raises(FileNotFoundError, match="list_attr_celeba.txt"):
        load_images("celeba", celeba)
    with pytest.raises(ValueError, match="cannot be downloaded"):
        load_images("celeba", celeba, download=True)
