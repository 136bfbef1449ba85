"""Image sets in the forms in which they are distributed, made here pixel by pixel."""

import pickle
import tarfile

import numpy as np
import pytest
import torch
from PIL import Image

from sccountsdiff.benchmark.images import ArrayImages, first_images, load_images, pixel_moments
from sccountsdiff.benchmark.images.cifar10 import fetch

RNG = np.random.default_rng(0)
BATCHES = [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]
PIXELS = RNG.integers(0, 256, (6, 2, 3, 32, 32), dtype=np.uint8)  # two images for each batch
LABELS = RNG.integers(0, 10, (6, 2))


def write_python(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name, pixels, labels in zip(BATCHES, PIXELS, LABELS, strict=True):
        batch = {b"data": pixels.reshape(2, -1), b"labels": labels.tolist(), b"batch_label": name.encode()}
        (folder / name).write_bytes(pickle.dumps(batch, protocol=2))


def write_binary(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name, pixels, labels in zip(BATCHES, PIXELS, LABELS, strict=True):
        records = np.concatenate([labels[:, None].astype(np.uint8), pixels.reshape(2, -1)], axis=1)
        (folder / f"{name}.bin").write_bytes(records.tobytes())


def write_npz(path, channels_last):
    images = PIXELS.transpose(0, 1, 3, 4, 2) if channels_last else PIXELS
    np.savez(
        path, x_train=images[:5].reshape(10, *images.shape[2:]), y_train=LABELS[:5].ravel(), x_test=images[5],
        y_test=LABELS[5],
    )  # fmt: skip


# Any set ------------------------------------------------------------------------------------------------------------


def test_digits_are_all_there_with_every_class_in_both_parts(digits):
    assert len(digits.train) + len(digits.heldout) == 1797
    for part in (digits.train, digits.heldout):
        images, labels = first_images(part, len(part))
        assert images.dtype == torch.uint8 and images.max() == 16 and set(labels.tolist()) == set(range(10))
    pixels = [first_images(part, len(part))[0].flatten(1).tolist() for part in (digits.train, digits.heldout)]
    assert not {tuple(row) for row in pixels[0]} & {tuple(row) for row in pixels[1]}


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


def test_digits_come_from_no_file():
    with pytest.raises(ValueError, match="no file"):
        load_images("digits", "somewhere")


# CIFAR-10 -----------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["python", "python in a folder below", "binary", "npz", "npz, channels first"])
def cifar10(request, tmp_path):
    if request.param.startswith("npz"):
        write_npz(tmp_path / "few.npz", channels_last=request.param == "npz")
        return tmp_path / "few.npz"
    if request.param == "binary":
        write_binary(tmp_path)
    else:
        write_python(tmp_path / "cifar-10-batches-py" if "below" in request.param else tmp_path)
    return tmp_path


def test_every_form_of_cifar10_gives_the_same_images(cifar10):
    splits = load_images("cifar10", cifar10)
    images, labels = first_images(splits.train, 10)
    assert (
        np.array_equal(images.numpy(), PIXELS[:5].reshape(10, 3, 32, 32))
        and labels.tolist() == LABELS[:5].ravel().tolist()
    )
    images, labels = first_images(splits.heldout, 10)
    assert np.array_equal(images.numpy(), PIXELS[5]) and labels.tolist() == LABELS[5].tolist()
    assert splits.train.max_count == 255 and splits.train.names[3] == "cat"


def test_a_batch_that_would_run_code_is_refused(tmp_path):
    write_python(tmp_path)

    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "sprung"), "w"))

    (tmp_path / "data_batch_3").write_bytes(pickle.dumps({b"data": Trap(), b"labels": [0]}))
    with pytest.raises(ValueError, match="data_batch_3 is no batch"):
        load_images("cifar10", tmp_path)
    assert not (tmp_path / "sprung").exists()


def test_missing_and_damaged_cifar10_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="data_batch_1"):
        load_images("cifar10", tmp_path)
    with pytest.raises(ValueError, match="needs a path"):
        load_images("cifar10")
    write_binary(tmp_path)
    (tmp_path / "data_batch_2.bin").write_bytes(b"short")
    with pytest.raises(ValueError, match="not records of 3073"):
        load_images("cifar10", tmp_path)


def test_download_is_checked_unpacked_and_not_repeated(tmp_path, monkeypatch):
    import hashlib

    from sccountsdiff.benchmark.images import cifar10

    write_python(tmp_path / "cifar-10-batches-py")
    archive = tmp_path / "cifar-10-python.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(tmp_path / "cifar-10-batches-py", "cifar-10-batches-py")
    monkeypatch.setattr(cifar10, "URL", archive.as_uri())
    monkeypatch.setattr(cifar10, "MD5", hashlib.md5(archive.read_bytes()).hexdigest())
    assert len(load_images("cifar10", tmp_path / "new", download=True).train) == 10
    archive.unlink()
    assert len(load_images("cifar10", tmp_path / "new", download=True).train) == 10


def test_a_file_with_the_wrong_sum_is_not_kept(tmp_path):
    source = tmp_path / "source"
    source.write_text("tampered")
    with pytest.raises(ValueError, match="MD5 sum"):
        fetch(source.as_uri(), tmp_path / "copy", "0" * 32)
    assert not (tmp_path / "copy").exists()


# CelebA -------------------------------------------------------------------------------------------------------------


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
