"""Settings survive a file, and mistakes in them are named."""

import dataclasses

import pytest

from sccountsdiff.benchmark.images import (
    CONFIGS,
    load_config,
    save_config,
)


def test_settings_survive_a_file(tmp_path):
    for name, config in CONFIGS.items():
        save_config(config, tmp_path / f"{name}.yaml")
        assert load_config(tmp_path / f"{name}.yaml") == config


def test_mistakes_in_settings_are_named(tmp_path):
    (tmp_path / "a.yaml").write_text("base: digits\nlearning_rate: 1\n")
    with pytest.raises(ValueError, match="unknown settings: learning_rate"):
        load_config(tmp_path / "a.yaml")
    with pytest.raises(KeyError, match="known: .*digits"):
        load_config("digit")
    with pytest.raises(KeyError, match="schedule"):
        load_config("digits", schedule="linear")
    with pytest.raises(ValueError, match="`n_steps` must be at least 1"):
        load_config("digits", n_steps=0)
    with pytest.raises(ValueError, match="p_uncond"):
        load_config("digits", p_uncond=1.5)


def test_paper_s_settings():
    cosine, fisher, blackout = (CONFIGS[f"cifar10_{name}"] for name in ("cosine", "fisher", "blackout"))
    assert dataclasses.replace(cosine, schedule="fisher") == fisher
    assert not blackout.conditional and blackout.schedule == "blackout"
    assert CONFIGS["celeba"].batch_size == 100 and CONFIGS["celeba"].n_steps == 1_300_000
