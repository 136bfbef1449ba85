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


def make_celeba(folder, parts):
    """Faces in CelebA's own layout: grey, but for a square of 178 pixels in the middle of 178 x 218."""
    image = pytest.importorskip("PIL.Image")
    (folder / "img_align_celeba").mkdir()
    names = [f"{k:06d}.jpg" for k in range(1, len(parts) + 1)]
    for number, name in enumerate(names):
        pixels = np.full((218, 178, 3), 90, np.uint8)
        pixels[20:198] = 40 * number % 256
        image.fromarray(pixels).save(folder / "img_align_celeba" / name, quality=100)
    attributes = ["5_o_Clock_Shadow", "Male", "Smiling"]
    lines = ["5", " ".join(attributes), *(f"{name}  1 {'1' if k % 2 else '-1'} -1" for k, name in enumerate(names))]
    (folder / "list_attr_celeba.txt").write_text("\n".join(lines) + "\n")
    (folder / "list_eval_partition.txt").write_text("".join(f"{n} {p}\n" for n, p in zip(names, parts, strict=True)))
    return folder


@pytest.fixture
def celeba(tmp_path):
    """Three faces to train on, one to validate, one to test."""
    return make_celeba(tmp_path, "00120")


@pytest.fixture(scope="session")
def small_files(tmp_path_factory):
    """Files of each image set that has recipes, with a few images each."""
    folder = tmp_path_factory.mktemp("files")
    pixels = np.random.default_rng(0).integers(0, 256, (24, 32, 32, 3), dtype=np.uint8)
    labels = np.arange(24) % 10
    np.savez(folder / "few.npz", x_train=pixels, y_train=labels, x_test=pixels[:12], y_test=labels[:12])
    return {"cifar10": folder / "few.npz", "celeba": make_celeba(folder, "0" * 12 + "1" * 12)}


class Pooled(torch.nn.Module):
    """Four means of each channel as features: few, so that distances are quick."""

    def forward(self, images):
        return torch.nn.functional.adaptive_avg_pool2d(images.float(), 2).flatten(1)


@pytest.fixture
def pooled():
    return Pooled()


@pytest.fixture(scope="session")
def scaled_down():
    """Changes that make any recipe one of seconds."""
    return {
        "channels": (8, 8, 8), "layers_per_block": 1, "n_steps": 2, "evaluate_every": 2, "batch_size": 4,
        "n_evaluated": 10, "n_sampling_steps": 2, "n_warmup_steps": 1,
    }  # fmt: skip
