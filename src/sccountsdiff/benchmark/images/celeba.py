"""CelebA: 202,599 aligned faces with 40 attributes each, cropped and resized once into a memory map."""

from __future__ import annotations

import logging
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from sccountsdiff.benchmark.images.caching import fingerprint
from sccountsdiff.benchmark.images.config import ImageConfig
from sccountsdiff.benchmark.images.data import CountImages, Splits, register_images
from sccountsdiff.benchmark.optional import optional_import
from sccountsdiff.files import check_can_write, replacing, set_aside

logger = logging.getLogger("sccountsdiff")

CROP, SIZE = 178, 64
BLOCK = 1000
"""Images read before they are written."""

FOLDER, ATTRIBUTES, PARTITION = "img_align_celeba", "list_attr_celeba.txt", "list_eval_partition.txt"
LARGE = ImageConfig("celeba", batch_size=100, evaluate_every=100_000)
SMALLER = replace(LARGE, layers_per_block=2, batch_size=64, p_uncond=0.1, n_warmup_steps=2000, n_steps=500_000)
CELEBA_CONFIGS = {
    "celeba": LARGE,
    "celeba_30m": SMALLER,
    "celeba_30m_fisher": replace(SMALLER, schedule="fisher"),
}


class CelebA(CountImages):
    """Faces of one part of CelebA: the central square of 178 pixels, resized to 64; attributes as zeros and ones.

    The first use of a folder writes all images of the part, as they are trained on, into one file beside it; later ones map
    that file into memory. Where no file can be written there, every image is read whenever it is asked for.

    Parameters
    ----------
    folder
        Folder of the images.
    attributes
        Zeros and ones, a row for the name of each image and a column for the name of each attribute.
    progress
        Show a progress bar while images are read for the first time.

    Examples
    --------
    >>> import pandas as pd
    >>> from pathlib import Path
    >>> from PIL import Image
    >>> Path("faces").mkdir()
    >>> Image.new("RGB", (178, 218), (255, 0, 0)).save("faces/000001.png")
    >>> faces = CelebA(Path("faces"), pd.DataFrame({"Smiling": 1, "Bald": 0}, index=["000001.png"]))
    >>> faces[0][0].shape, faces[0][0].amax((1, 2)).tolist(), faces[0][1].tolist()
    (torch.Size([3, 64, 64]), [255, 0, 0], [1, 0])
    """

    shape, max_count, multi_label = (3, SIZE, SIZE), 255, True

    def __init__(self, folder: Path, attributes: pd.DataFrame, *, progress: bool = False):
        self.folder, self.files, self.names = folder, attributes.index, tuple(attributes.columns)
        self.attributes = torch.from_numpy(attributes.to_numpy(np.uint8, copy=True))
        # Another list of images, or other sizes of their files, have another cache.
        sizes = [(folder / name).stat().st_size for name in self.files]
        self.cache = folder.resolve().parent / f"{FOLDER}_{SIZE}_{fingerprint(list(self.files), sizes)}.npy"
        self.progress, self.pixels, self.is_prepared = progress, None, False

    def __getstate__(self) -> dict:
        """What other processes get: they map the file themselves."""
        return self.__dict__ | {"pixels": None, "is_prepared": False}

    def prepare(self) -> None:
        """Map all images, as they are trained on, from a file that is written if it is not there."""
        if not self.is_prepared:
            self.pixels, self.is_prepared = self._mapped(), True

    def _mapped(self) -> np.ndarray | None:
        from tqdm.auto import tqdm

        cache, shape = self.cache, (len(self), *self.shape)
        if not cache.is_file():
            try:
                check_can_write(cache, math.prod(shape))  # one byte each
            except OSError as error:
                logger.warning("CelebA is read image by image, which is slow: %s", error)
                return None
            with replacing(cache) as beside, ThreadPoolExecutor() as pool:
                pixels = np.lib.format.open_memmap(beside, mode="w+", dtype=np.uint8, shape=shape)
                starts = range(0, len(self), BLOCK)
                for start in tqdm(starts, "Reading CelebA", disable=not self.progress):
                    block = range(start, min(start + BLOCK, len(self)))
                    pixels[start : block.stop] = list(pool.map(self._read, block))
                pixels.flush()
                del pixels
        try:
            pixels = np.load(cache, mmap_mode="r", allow_pickle=False)
            if pixels.shape != shape or pixels.dtype != np.uint8:
                raise ValueError(f"it holds {pixels.dtype} of {pixels.shape} instead of uint8 of {shape}")
        except ValueError as error:
            set_aside(cache, error)
            return self._mapped()
        return pixels

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        self.prepare()
        pixels = self._read(index) if self.pixels is None else np.array(self.pixels[index])
        return torch.from_numpy(pixels), self.attributes[index]

    def _read(self, index: int) -> np.ndarray:
        image_module = optional_import("PIL.Image", "Reading CelebA", "images")

        with image_module.open(self.folder / self.files[index]) as image:
            left, top = (image.width - CROP) // 2, (image.height - CROP) // 2
            square = image.convert("RGB").crop((left, top, left + CROP, top + CROP))
            pixels = np.array(square.resize((SIZE, SIZE), image_module.Resampling.BILINEAR))
        return np.ascontiguousarray(pixels.transpose(2, 0, 1))


@register_images("celeba", CELEBA_CONFIGS)
def load_celeba(path: str | Path | None, download: bool = False) -> Splits:
    """CelebA's training part, and its validation part as held-out images, as in the paper's code.

    Parameters
    ----------
    path
        Folder with ``img_align_celeba/``, ``list_attr_celeba.txt`` and ``list_eval_partition.txt`` as they are
        distributed.
    download
        CelebA's licence has to be accepted on its page (https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html), so it cannot
        be fetched from here.

    Examples
    --------
    >>> load_celeba("celeba")  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    ...
    FileNotFoundError: No img_align_celeba in 'celeba'
    """
    if path is None or download:
        raise ValueError(
            "CelebA needs the path of a folder with its aligned images and lists. They cannot be downloaded from here: "
            "get them from https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html."
        )
    path = Path(path)
    for name in (FOLDER, ATTRIBUTES, PARTITION):
        if not (path / name).exists():
            raise FileNotFoundError(f"No {name} in {str(path)!r}: expected CelebA's own files and folder names.")
    table = _read_attributes(path / ATTRIBUTES)
    part_of = dict(line.split() for line in (path / PARTITION).read_text().splitlines() if line.strip())
    part = table.index.map(part_of.get)
    if part.isna().any():
        raise ValueError(f"{PARTITION} does not say to which part {table.index[part.isna()][0]} belongs.")

    def select(code: str) -> CelebA:
        chosen = table[part == code]
        if chosen.empty:
            raise ValueError(f"{PARTITION} assigns no image to part {code}.")
        return CelebA(path / FOLDER, chosen, progress=True)

    return Splits(select("0"), select("1"))


def _read_attributes(path: Path) -> pd.DataFrame:
    """Attributes as zeros and ones, a row for each file name.

    The file has the number of images, the names of the attributes, then a line of -1 and 1 for each image.
    """
    _, header, *lines = path.read_text().splitlines()
    names, rows = header.split(), [line.split() for line in lines if line.strip()]
    if any(len(row) != len(names) + 1 for row in rows):
        raise ValueError(f"{path.name}: every line after the second must have a file name and {len(names)} values.")
    return pd.DataFrame(rows, columns=["file", *names]).set_index("file").astype(np.int8) > 0
