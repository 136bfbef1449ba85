"""Tiny images, settings and a tiny trained model."""

import numpy as np
import pytest
import torch

pytest.importorskip("diffusers", reason="the images extra is not installed")
pytest.importorskip("PIL", reason="the images extra is not installed")
pytest.importorskip("torchmetrics", reason="the images extra is not installed")

from sccountsdiff.benchmark.images import ImageDiffusion, load_config, load_images, train
from sccountsdiff.diffusion import Prediction

TINY = {"channels": (8, 8), "n_steps": 6, "evaluate_every": 2, "n_warmup_steps": 2, "batch_size": 16, "n_evaluated": 20}


@pytest.fixture(scope="session")
def digits():
    return load_images("digits")


@pytest.fixture(scope="session")
def tiny_config():
    """Dropout and mirrored images are there because they draw random numbers."""
    return load_config("digits", dropout=0.1, flip=True, n_sampling_steps=3, **TINY)


@pytest.fixture(scope="session")
def tiny_run(tiny_config, digits, tmp_path_factory):
    """Folder and model of a short training."""
    folder = tmp_path_factory.mktemp("tiny")
    return folder, train(tiny_config, digits, folder, n_heldout=32)


class Told(torch.nn.Module):
    """In place of a network: every pixel is its class in the end, or 9 without one, whatever the state."""

    def forward(self, x, t, conditions, null):
        value = torch.where(null, 9.0, conditions.float())[:, None, None, None]
        return Prediction((value - x).clamp_min(1e-6).log())


@pytest.fixture
def told(tiny_config):
    model = ImageDiffusion(tiny_config, torch.ones(1, 8, 8), torch.ones(1, 8, 8), 16, tuple("0123456789"))
    model.network = Told()
    return model


@pytest.fixture
def celeba(tmp_path):
    """Five faces in CelebA's own layout: grey, but for a white square of 178 pixels in the middle of 178 x 218."""
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "img_align_celeba").mkdir()
    names = [f"{k:06d}.jpg" for k in range(1, 6)]
    for number, name in enumerate(names):
        pixels = np.full((218, 178, 3), 90, np.uint8)
        pixels[20:198] = 40 * number
        image.fromarray(pixels).save(tmp_path / "img_align_celeba" / name, quality=100)
    attributes = ["5_o_Clock_Shadow", "Male", "Smiling"]
    lines = ["5", " ".join(attributes), *(f"{name}  1 {'1' if k % 2 else '-1'} -1" for k, name in enumerate(names))]
    (tmp_path / "list_attr_celeba.txt").write_text("\n".join(lines) + "\n")
    parts = ["0", "0", "1", "2", "0"]
    (tmp_path / "list_eval_partition.txt").write_text("".join(f"{n} {p}\n" for n, p in zip(names, parts, strict=True)))
    return tmp_path
