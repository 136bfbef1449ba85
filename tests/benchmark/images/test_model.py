"""A checkpoint holds the averaged weights, no condition reaches an unconditional model, and a short training learns."""

import dataclasses
import os

import pandas as pd
import pytest
import torch

from sccountsdiff.benchmark.images import ImageDiffusion, first_images, heldout_losses, load_config, load_model, train


def assert_same_weights(one, other):
    other = other.state_dict()
    for name, value in one.state_dict().items():
        assert torch.equal(value, other[name]), name


def test_checkpoint_holds_the_averaged_weights_and_the_model(tiny_run, tiny_config):
    folder, model = tiny_run
    loaded = load_model(folder / "last.ckpt")
    assert_same_weights(model, loaded)
    assert loaded.config == tiny_config and loaded.max_count == 16 and loaded.names == tuple("0123456789")
    current = torch.load(folder / "last.ckpt", weights_only=True)["current_model_state"]
    assert any(not torch.equal(current[name], value) for name, value in loaded.state_dict().items())


class Touch:
    """What makes a pickle dangerous: it says what is to be called when it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_a_hostile_checkpoint_is_not_run(tiny_config, digits, tmp_path):
    file = tmp_path / "last.ckpt"
    torch.save({"image_model": Touch(tmp_path / "touched"), "global_step": 1, "state_dict": {}}, file)
    with pytest.raises(ValueError, match=r"last\.ckpt is damaged, or no checkpoint of an image model"):
        load_model(file)
    train(dataclasses.replace(tiny_config, n_steps=1), digits, tmp_path, n_heldout=8, resume=True)
    assert not (tmp_path / "touched").exists() and (tmp_path / "last.ckpt.damaged").exists()
    with pytest.raises(Exception):  # noqa: B017 - it has run, and is no checkpoint
        torch.load(tmp_path / "last.ckpt.damaged", weights_only=False)["image_model"]["config"]
    assert (tmp_path / "touched").exists(), "otherwise the proof proves nothing"


@pytest.mark.parametrize(
    "content",
    [
        torch.ones(2),
        {},
        {"image_model": {}, "state_dict": {}},
        {"image_model": 3, "state_dict": 3},
        {"image_model": {"config": {"nothing": 1}}, "state_dict": {}},
    ],
    ids=str,
)
def test_what_is_no_checkpoint_is_named(tmp_path, content):
    torch.save(content, tmp_path / "last.ckpt")
    with pytest.raises(ValueError, match=r"last\.ckpt is damaged, or no checkpoint of an image model"):
        load_model(tmp_path / "last.ckpt")


def test_unconditional_settings_see_no_condition(digits, tiny_config, tmp_path):
    config = dataclasses.replace(tiny_config, conditional=False, schedule="blackout", n_steps=1)
    model = train(config, digits, tmp_path, n_heldout=8)
    assert model.network.condition is None
    x0 = first_images(digits.heldout, 4)[0].float()
    losses = [model.loss(x0, torch.full((4,), digit), 0.0, torch.Generator().manual_seed(0)).item() for digit in (0, 7)]
    assert losses[0] == losses[1]


def test_a_short_training_beats_predictions_from_single_pixels(digits, tmp_path):
    config = load_config("digits", channels=(16, 16), n_steps=40, batch_size=24, lr=3e-3, n_warmup_steps=5)
    untrained = heldout_losses(ImageDiffusion.for_images(config, digits.train), digits.heldout)
    losses = heldout_losses(train(config, digits, tmp_path), digits.heldout)
    assert losses["network"] < min(untrained["network"], losses["linear_guess"]) < losses["pixel_mean"]
    history = pd.read_csv(tmp_path / "history.csv")
    assert history["step"].tolist() == [0, 40]
    expected = [untrained["network"], losses["network"]]
    assert history["heldout_loss"].tolist() == pytest.approx(expected, rel=1e-4)
