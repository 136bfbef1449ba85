"""Tiny images, settings and a tiny trained model."""

import pytest

pytest.importorskip("diffusers", reason="the images extra is not installed")
pytest.importorskip("PIL", reason="the images extra is not installed")
pytest.importorskip("torchmetrics", reason="the images extra is not installed")

from sccountsdiff.benchmark.images import load_config, load_images, train

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
