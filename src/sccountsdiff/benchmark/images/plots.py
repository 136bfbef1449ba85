"""Grids of images and curves of trainings, as files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from torch import Tensor

from sccountsdiff.benchmark.optional import optional_import


def save_grid(
    images: Tensor,
    path: str | Path,
    n_columns: int,
    *,
    max_count: int = 255,
    titles: Sequence[str] = (),
    scale: int | None = None,
) -> None:
    """Write images row by row into one PNG.

    Parameters
    ----------
    images
        uint8 images, ``(images, channels, height, width)``.
    path
        File to write.
    n_columns
        Images in a row.
    max_count
        Value that is shown white.
    titles
        One for each row, written at its left.
    scale
        Pixels of the file for one of an image; by default small images are shown at 64 pixels or so.

    Examples
    --------
    >>> import torch
    >>> save_grid(torch.zeros(4, 1, 8, 8, dtype=torch.uint8), "grid.png", 2, scale=1)
    >>> from PIL import Image
    >>> Image.open("grid.png").size
    (28, 28)
    """
    image_module = optional_import("PIL.Image", "Drawing grids", "images")
    n, channels, height, width = images.shape
    scale = scale or max(1, 64 // height)
    gap, margin = 4, 8 * max(map(len, titles)) if titles else 0
    n_rows = -(-n // n_columns)
    cell_height, cell_width = height * scale + gap, width * scale + gap
    page = image_module.new("RGB", (margin + n_columns * cell_width + gap, n_rows * cell_height + gap), "white")
    pixels = np.asarray(images.cpu().permute(0, 2, 3, 1).double() * 255 / max_count).round().astype(np.uint8)
    pixels = np.broadcast_to(pixels, (n, height, width, 3)) if channels == 1 else pixels
    for number, one in enumerate(pixels):
        row, column = divmod(number, n_columns)
        tile = image_module.fromarray(np.ascontiguousarray(one))
        tile = tile.resize((width * scale, height * scale), image_module.Resampling.NEAREST)
        page.paste(tile, (margin + gap + column * cell_width, gap + row * cell_height))
    draw = optional_import("PIL.ImageDraw", "Drawing grids", "images").Draw(page)
    for row, title in enumerate(titles):
        draw.text((3, gap + (row + 0.5) * cell_height - 6), title, fill="black")
    page.save(path)


def plot_histories(histories: dict[str, pd.DataFrame], path: str | Path) -> None:
    """Curves of several trainings beside each other: training loss, held-out loss, Frechet distance.

    Parameters
    ----------
    histories
        Tables of :func:`~sccountsdiff.benchmark.images.train` (``history.csv``) by name.
    path
        File to write.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"step": [1, 2], "train_loss": [2.0, 1.0], "train_loss_sd": [0.1, 0.1]})
    >>> plot_histories({"cosine": table}, "curves.png")
    """
    from matplotlib.figure import Figure

    titles = {"train_loss": "training loss", "heldout_loss": "held-out loss", "frechet": "Fréchet distance"}
    columns = [c for c in titles if all(c in table for table in histories.values())]
    figure = Figure(figsize=(4 * len(columns), 3), layout="constrained")
    for axes, column in zip(figure.subplots(1, len(columns), squeeze=False)[0], columns, strict=True):
        for name, table in histories.items():
            (line,) = axes.plot(table["step"], table[column], marker="o", markersize=3, label=name)
            if column == "train_loss":
                low, high = table[column] - table["train_loss_sd"], table[column] + table["train_loss_sd"]
                axes.fill_between(table["step"], low, high, color=line.get_color(), alpha=0.2)
        axes.set(xlabel="step", title=titles[column])
        axes.legend()
    figure.savefig(path, dpi=100)
