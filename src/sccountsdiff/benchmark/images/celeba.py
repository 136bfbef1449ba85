"""CelebA: 202,599 aligned faces with 40 attributes each, read from disk one by one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from sccountsdiff.benchmark.images.config import ImageConfig
from sccountsdiff.benchmark.images.data import CountImages, Splits, register_images
from sccountsdiff.benchmark.optional import optional_import

CROP, SIZE = 178, 64
FOLDER, ATTRIBUTES, PARTITION = "img_align_celeba", "list_attr_celeba.txt", "list_eval_partition.txt"
CELEBA_CONFIGS = {
    "celeba": ImageConfig("celeba", layers_per_block=4, batch_size=100, n_steps=1_300_000),
    "celeba_30m": ImageConfig("celeba", batch_size=100, n_steps=500_000),
}


class CelebA(CountImages):
    """Faces of one part of CelebA: the central square of 178 pixels, resized to 64; attributes as zeros and ones.

    Parameters
    ----------
    folder
        Folder of the images.
    attributes
        Zeros and ones, a row for the name of each image and a column for the name of each attribute.

    Examples
    --------
    >>> import pandas as pd
    >>> from pathlib import Path
    >>> from PIL import Image
    >>> Image.new("RGB", (178, 218), (255, 0, 0)).save("000001.png")
    >>> faces = CelebA(Path("."), pd.DataFrame({"Smiling": 1, "Bald": 0}, index=["000001.png"]))
    >>> faces[0][0].shape, faces[0][0].amax((1, 2)).tolist(), faces[0][1].tolist()
    (torch.Size([3, 64, 64]), [255, 0, 0], [1, 0])
    """

    shape, max_count, multi_label = (3, SIZE, SIZE), 255, True

    def __init__(self, folder: Path, attributes: pd.DataFrame):
        self.folder, self.files, self.names = folder, attributes.index, tuple(attributes.columns)
        self.attributes = torch.from_numpy(attributes.to_numpy(np.uint8, copy=True))

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        image_module = optional_import("PIL.Image", "Reading CelebA", "images")

        with image_module.open(self.folder / self.files[index]) as image:
            left, top = (image.width - CROP) // 2, (image.height - CROP) // 2
            square = image.convert("RGB").crop((left, top, left + CROP, top + CROP))
            pixels = np.array(square.resize((SIZE, SIZE), image_module.Resampling.BILINEAR))
        return torch.from_numpy(pixels).permute(2, 0, 1), self.attributes[index]


@register_images("celeba", CELEBA_CONFIGS)
def load_celeba(path: str | Path | None, download: bool = False) -> Splits:
    """CelebA's training part, and its test part as held-out images.

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
        return CelebA(path / FOLDER, chosen)

    return Splits(select("0"), select("2"))


def _read_attributes(path: Path) -> pd.DataFrame:
    """Attributes as zeros and ones, a row for each file name.

    The file has the number of images, the names of the attributes, then a line of -1 and 1 for each image.
    """
    _, header, *lines = path.read_text().splitlines()
    names, rows = header.split(), [line.split() for line in lines if line.strip()]
    if any(len(row) != len(names) + 1 for row in rows):
        raise ValueError(f"{path.name}: every line after the second must have a file name and {len(names)} values.")
    return pd.DataFrame(rows, columns=["file", *names]).set_index("file").astype(np.int8) > 0
