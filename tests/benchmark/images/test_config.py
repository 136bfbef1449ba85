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


@pytest.mark.parametrize(
    "content",
    [b"base: [", b"\xff\xfe\x00", b"a: !!python/object/apply:os.mkdir [touched]", b"a: !own 3", b"a: " + b"[" * 3000],
    ids=["half", "no text", "code", "own tag", "deep"],
)
def test_what_is_no_settings_is_named_and_nothing_in_it_runs(tmp_path, monkeypatch, content):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.yaml").write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.yaml cannot be read as settings: ") as error:
        load_config(tmp_path / "a.yaml")
    assert "\n" not in str(error.value) and not (tmp_path / "touched").exists()


def test_mistakes_in_settings_are_named(tmp_path):
    (tmp_path / "a.yaml").write_text("1: 2")
    with pytest.raises(ValueError, match="must hold one setting a line"):
        load_config(tmp_path / "a.yaml")
    (tmp_path / "a.yaml").write_text("base: digits\nlearning_rate: 1\n")
    with pytest.raises(ValueError, match="unknown settings: learning_rate"):
        load_config(tmp_path / "a.yaml")
    with pytest.raises(KeyError, match="known: .*digits"):
        load_config("digit")
    with pytest.raises(KeyError, match="schedule"):
        load_config("digits", schedule="linear")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_steps", 0), ("batch_size", -1), ("n_evaluated", 9), ("n_warmup_steps", -1), ("seed", -1), ("lr", 0.0),
        ("clip", float("nan")), ("p_uncond", 1.5), ("dropout", -0.1), ("channels", ()), ("channels", (8, 0)),
        ("inputs", "raw"), ("layers_per_block", 1.5),
    ],
)  # fmt: skip
def test_values_that_cannot_be_are_named(name, value):
    with pytest.raises(ValueError, match=f"`{name}` must"):
        load_config("digits", **{name: value})


def test_unconditional_settings_differ_in_nothing_but_condition_and_length():
    for name, other in ("cifar10_unconditional", "cifar10_cosine"), ("cifar10_fisher_unconditional", "cifar10_fisher"):
        alone = CONFIGS[name]
        assert not alone.conditional and alone.n_steps == 300_000
        assert dataclasses.replace(alone, conditional=True, n_steps=1_000_000) == CONFIGS[other]
