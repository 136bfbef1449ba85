"""Grids show every image, and curves every training."""

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image

from sccountsdiff.benchmark.images import plot_histories, save_grid


def test_grid_puts_every_image_in_its_place(tmp_path):
    images = torch.arange(6, dtype=torch.uint8)[:, None, None, None].expand(6, 1, 2, 3) * 3
    save_grid(images, tmp_path / "grid.png", 3, max_count=15, scale=4)
    pixels = np.asarray(Image.open(tmp_path / "grid.png"))
    assert pixels.shape == (2 * (8 + 4) + 4, 3 * (12 + 4) + 4, 3)
    for number in range(6):
        row, column = divmod(number, 3)
        tile = pixels[4 + row * 12 : 12 + row * 12, 4 + column * 16 : 16 + column * 16]
        assert (tile == number * 51).all()
    assert (pixels[:4] == 255).all()


def test_a_grid_that_cannot_be_written_leaves_the_one_before(tmp_path, monkeypatch):
    (tmp_path / "grid.png").write_text("before")

    def fail(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match=r"grid\.png cannot be written: No space left on device"):
        save_grid(torch.zeros(2, 1, 8, 8), tmp_path / "grid.png", 2)
    assert (tmp_path / "grid.png").read_text() == "before" and len(list(tmp_path.iterdir())) == 1


def test_curves_are_drawn_of_columns_that_all_trainings_have(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(
        Figure, "savefig", lambda self, path, **kwargs: path.touch() or drawn.append([a.get_title() for a in self.axes])
    )
    table = pd.DataFrame({"step": [0, 5], "train_loss": [2.0, 1.0], "train_loss_sd": 0.1, "heldout_loss": [2.0, 1.5]})
    plot_histories({"cosine": table, "fisher": table.assign(frechet=1.0)}, tmp_path / "curves.png")
    plot_histories({"fisher": table.assign(frechet=1.0)}, tmp_path / "curves.png")
    assert drawn == [
        ["training loss", "held-out loss"],
        ["training loss", "held-out loss", "Fréchet distance"],
    ]
