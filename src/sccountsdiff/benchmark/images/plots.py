"""Grids of images and curves of trainings, as files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor

from sccountsdiff.benchmark.optional import optional_import
from sccountsdiff.files import replacing


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
    scale = scale or max(1, 64 // images.shape[2])
    gap, margin, n_rows = 4, 8 * max(map(len, titles), default=0), -(-len(images) // n_columns)
    # Grey images have one channel, the page has three.
    tiles = (images.cpu().double() * 255 / max_count).round().to(torch.uint8).expand(-1, 3, -1, -1)
    tiles = tiles.repeat_interleave(scale, 2).repeat_interleave(scale, 3).permute(0, 2, 3, 1)
    cell_height, cell_width = tiles.shape[1] + gap, tiles.shape[2] + gap
    page = image_module.new("RGB", (margin + n_columns * cell_width + gap, n_rows * cell_height + gap), "white")
    for number, tile in enumerate(tiles):
        row, column = divmod(number, n_columns)
        place = (margin + gap + column * cell_width, gap + row * cell_height)
        page.paste(image_module.fromarray(tile.contiguous().numpy()), place)
    draw = optional_import("PIL.ImageDraw", "Drawing grids", "images").Draw(page)
    for row, title in enumerate(titles):
        draw.text((3, gap + (row + 0.5) * cell_height - 6), title, fill="black")
    with replacing(path) as beside:
        page.save(beside)


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
    with replacing(path) as beside:
        figure.savefig(beside, dpi=100)
