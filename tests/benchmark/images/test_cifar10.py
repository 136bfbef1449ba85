"""CIFAR-10 in the forms in which it is distributed, made here pixel by pixel."""

import pickle
import tarfile

import numpy as np
import pytest

from sccountsdiff.benchmark.images import first_images, load_images
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
    monkeypatch.setattr(cifar10, "ARCHIVE", archive.as_uri())
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
