"""A short training beats predictions that look at no other pixel."""

import pandas as pd
import pytest

from sccountsdiff.benchmark.images import (
    ImageDiffusion,
    heldout_losses,
    load_config,
    train,
)


def test_a_short_training_beats_predictions_from_single_pixels(digits, tmp_path):
    config = load_config("digits", channels=(16, 16), n_steps=40, batch_size=24, lr=3e-3, n_warmup_steps=5)
    untrained = heldout_losses(ImageDiffusion.for_images(config, digits.train), digits.heldout)
    losses = heldout_losses(train(config, digits, tmp_path), digits.heldout)
    assert losses["network"] < min(untrained["network"], losses["linear_guess"]) < losses["pixel_mean"]
    history = pd.read_csv(tmp_path / "history.csv")
    assert history["step"].tolist() == [0, 40]
    expected = [untrained["network"], losses["network"]]
    assert history["heldout_loss"].tolist() == pytest.approx(expected, rel=1e-4)
