"""CIFAR-10: 60,000 colour images of 32 x 32 pixels in ten classes."""

from __future__ import annotations

import hashlib
import io
import pickle
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from sccountsdiff.benchmark.images.config import SMALL, ImageConfig
from sccountsdiff.benchmark.images.data import ArrayImages, Splits, register_images

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
ARCHIVE = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
MD5 = "c58f30108f718f92721af3b95e74349a"
SHAPE = (3, 32, 32)
PICKLED = ("numpy.ndarray", "numpy.dtype", "numpy._reconstruct", "_codecs.encode")
"""All that a pickled batch may call."""

PAPER = ImageConfig("cifar10")
FISHER = replace(PAPER, schedule="fisher", layers_per_block=2, n_warmup_steps=0)
WITHOUT_CONDITION = {"conditional": False, "n_steps": 300_000}
CIFAR10_CONFIGS = {
    "cifar10_cosine": PAPER,
    "cifar10_unconditional": replace(PAPER, **WITHOUT_CONDITION),
    "cifar10_fisher": FISHER,
    "cifar10_fisher_unconditional": replace(FISHER, **WITHOUT_CONDITION),
    "cifar10_blackout": replace(FISHER, schedule="blackout", dropout=0.0, n_warmup_steps=2000, **WITHOUT_CONDITION),
    "cifar10_small": replace(
        PAPER, channels=(16, 32, 32), batch_size=16, lr=1e-3, n_steps=300, evaluate_every=100, **SMALL
    ),
}


@register_images("cifar10", CIFAR10_CONFIGS, downloads=True)
def load_cifar10(path: str | Path | None, download: bool = False) -> Splits:
    """CIFAR-10 from any of the file formats in which it is distributed.

    Parameters
    ----------
    path
        An ``.npz`` file with ``x_train, y_train, x_test, y_test`` (images as ``(n, 32, 32, 3)`` or ``(n, 3, 32, 32)``);
        or a folder with the files of the Python version (``data_batch_1`` ... ``test_batch``) or of the binary version
        (``data_batch_1.bin`` ... ``test_batch.bin``), itself or in a folder below it.
    download
        If the folder has neither, fetch the official archive into it (163 MB) and check its MD5 sum.

    Examples
    --------
    >>> import numpy as np
    >>> x, y = np.zeros((4, 32, 32, 3), "uint8"), np.arange(4)
    >>> np.savez("few.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    >>> load_cifar10("few.npz").train.shape
    (3, 32, 32)
    """
    if path is None:
        raise ValueError("CIFAR-10 needs a path: an .npz file, or a folder with its batches (or to download it to).")
    path = Path(path)
    if path.suffix == ".npz":
        return _read_npz(path)
    folder = _find(path)
    if folder is None and download:
        shutil.unpack_archive(fetch(ARCHIVE, path / ARCHIVE.rpartition("/")[2], MD5), path, filter="data")
        folder = _find(path)
    if folder is None:
        raise FileNotFoundError(
            f"No CIFAR-10 at {str(path)!r}: expected data_batch_1 (Python version) or data_batch_1.bin (binary version) "
            "there or one folder below; `download` fetches it."
        )
    read, suffix = (_read_binary, ".bin") if (folder / "data_batch_1.bin").is_file() else (_read_pickle, "")
    train = [read(folder / f"data_batch_{k}{suffix}") for k in range(1, 6)]
    return Splits(
        ArrayImages(*(np.concatenate(part) for part in zip(*train, strict=True)), CLASSES),
        ArrayImages(*read(folder / f"test_batch{suffix}"), CLASSES),
    )


def _find(path: Path) -> Path | None:
    """The folder with the batches: ``path`` itself, or a folder in it."""
    folders = [path, *sorted(path.glob("*"))]
    return next((f for f in folders for s in ("", ".bin") if (f / f"data_batch_1{s}").is_file()), None)


def _read_npz(path: Path) -> Splits:
    with np.load(path, allow_pickle=False) as arrays:
        missing = {"x_train", "y_train", "x_test", "y_test"} - set(arrays)
        if missing:
            raise ValueError(f"{path} lacks {', '.join(sorted(missing))}; it has {', '.join(arrays)}.")
        names = [str(name) for name in arrays["classes"]] if "classes" in arrays else CLASSES
        parts = []
        for part in ("train", "test"):
            images = arrays[f"x_{part}"]
            if images.shape[1:] == (*SHAPE[1:], SHAPE[0]):
                images = images.transpose(0, 3, 1, 2)
            if images.shape[1:] != SHAPE:
                raise ValueError(f"x_{part} of {path} must hold images of 32 x 32 x 3, found {images.shape}.")
            parts.append(ArrayImages(images, arrays[f"y_{part}"].reshape(-1), names))
    return Splits(*parts)


def _read_binary(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Records of one byte of label and 3,072 bytes of pixels."""
    size = 1 + int(np.prod(SHAPE))
    content = np.fromfile(path, dtype=np.uint8)
    if content.size == 0 or content.size % size:
        raise ValueError(f"{path} is no CIFAR-10 batch: its {content.size} bytes are not records of {size}.")
    records = content.reshape(-1, size)
    return records[:, 1:].reshape(-1, *SHAPE), records[:, 0]


class _ArraysOnly(pickle.Unpickler):
    """Reads pickled arrays, and refuses to call anything else: a pickle can hold any code."""

    def find_class(self, module: str, name: str):
        if f"{module.partition('.')[0]}.{name}" in PICKLED:
            return super().find_class(module.replace("numpy.core", "numpy._core"), name)
        raise pickle.UnpicklingError(f"a CIFAR-10 batch does not contain {module}.{name}")


def _read_pickle(path: Path) -> tuple[np.ndarray, np.ndarray]:
    try:
        batch = _ArraysOnly(io.BytesIO(path.read_bytes()), encoding="bytes").load()
        return np.asarray(batch[b"data"], dtype=np.uint8).reshape(-1, *SHAPE), np.asarray(batch[b"labels"])
    except (pickle.UnpicklingError, EOFError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is no batch of the Python version of CIFAR-10: {error}.") from error


def fetch(url: str, target: Path, md5: str) -> Path:
    """Download a file with a progress bar, unless it is there; in both cases check its MD5 sum.

    Parameters
    ----------
    url
        Address.
    target
        Where to put it. Its folder is made.
    md5
        Expected sum; on a mismatch the file is not kept.

    Examples
    --------
    >>> from pathlib import Path
    >>> source = Path("source.txt")
    >>> _ = source.write_text("abc")
    >>> fetch(source.resolve().as_uri(), Path("copy.txt"), "900150983cd24fb0d6963f7d28e17f72").read_text()
    'abc'
    """
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        torch.hub.download_url_to_file(url, str(target))
    with target.open("rb") as file:
        found = hashlib.file_digest(file, "md5").hexdigest()
    if found != md5:
        target.unlink()
        raise ValueError(f"{url} gave a file with MD5 sum {found} instead of {md5}; it was removed, try again.")
    return target
