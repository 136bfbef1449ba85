"""Training goes on after a stop as if there had been none, learns, and depends on its seed alone."""

import dataclasses

import pandas as pd
import pytest
import torch

from sccountsdiff.benchmark.images import (
    train,
)


def assert_same_weights(one, other):
    other = other.state_dict()
    for name, value in one.state_dict().items():
        assert torch.equal(value, other[name]), name


@pytest.mark.parametrize("stop_at", [3, 4])  # within and at an evaluation
def test_resuming_gives_the_same_model_bit_for_bit(tiny_config, digits, tiny_run, tmp_path, stop_at):
    folder, whole = tiny_run
    stopped = train(tiny_config, digits, tmp_path, n_heldout=32, stop_at=stop_at)
    resumed = train(tiny_config, digits, tmp_path, n_heldout=32, resume=True)
    assert_same_weights(whole, resumed)
    assert any(not torch.equal(a, b) for a, b in zip(stopped.parameters(), resumed.parameters(), strict=True))
    pd.testing.assert_frame_equal(pd.read_csv(folder / "history.csv"), pd.read_csv(tmp_path / "history.csv"))
    ends = [torch.load(place / "last.ckpt", weights_only=True) for place in (folder, tmp_path)]
    for key in ("current_model_state", "state_dict"):
        assert all(torch.equal(ends[0][key][name], ends[1][key][name]) for name in ends[0][key])
    moments = [end["optimizer_states"][0]["state"] for end in ends]
    assert all(torch.equal(moments[0][k]["exp_avg_sq"], moments[1][k]["exp_avg_sq"]) for k in moments[0])


def test_a_finished_training_is_not_repeated_and_other_settings_do_not_continue_it(tiny_config, digits, tiny_run):
    folder, model = tiny_run
    before = (folder / "last.ckpt").stat().st_mtime_ns
    assert_same_weights(model, train(tiny_config, digits, folder, resume=True))
    assert (folder / "last.ckpt").stat().st_mtime_ns == before
    with pytest.raises(ValueError, match=r"lr \(0.002 instead of 0.1\)"):
        train(dataclasses.replace(tiny_config, lr=0.1), digits, folder, resume=True)


def test_seed_decides(tiny_config, digits, tiny_run, tmp_path):
    short = dataclasses.replace(tiny_config, n_steps=2)
    first = train(short, digits, tmp_path / "a", n_heldout=8)
    torch.rand(5)  # the global stream has nothing to say
    assert_same_weights(first, train(short, digits, tmp_path / "b", n_heldout=8))
    other = train(dataclasses.replace(short, seed=1), digits, tmp_path / "c", n_heldout=8)
    assert any(not torch.equal(a, b) for a, b in zip(first.parameters(), other.parameters(), strict=True))


def test_training_does_not_touch_the_global_stream(tiny_config, digits, tmp_path):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    train(dataclasses.replace(tiny_config, n_steps=1), digits, tmp_path, n_heldout=8)
    assert torch.equal(torch.rand(3), expected)
