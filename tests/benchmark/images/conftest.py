"""Tiny images, settings and a tiny trained model."""

import pytest
import torch

pytest.importorskip("diffusers", reason="the images extra is not installed")
pytest.importorskip("PIL", reason="the images extra is not installed")
pytest.importorskip("torchmetrics", reason="the images extra is not installed")

from sccountsdiff.benchmark.images import ImageDiffusion, load_config, load_images, train
from sccountsdiff.diffusion import Prediction

TINY = {"channels": (8, 8), "n_steps": 6, "evaluate_every": 2, "n_warmup_steps": 2, "batch_size": 16}


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
