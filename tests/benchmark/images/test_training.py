"""Training goes on after a stop as if there had been none, learns, and depends on its seed alone."""

import dataclasses
import os
import signal
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from lightning.pytorch.callbacks import Callback

from sccountsdiff.benchmark.images import train
from sccountsdiff.benchmark.images.training import Saver, StepBatches
from sccountsdiff.training import TrainingDiverged


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


def test_evaluation_sees_the_averaged_weights(tiny_config, digits, tmp_path):
    seen = {}

    def evaluate(model, step):
        seen[step] = {name: value.clone() for name, value in model.state_dict().items()}
        return {"twice": 2.0 * step}

    config = dataclasses.replace(tiny_config, n_steps=4)
    model = train(config, digits, tmp_path, evaluate=evaluate, n_heldout=8)
    assert list(seen) == [0, 2, 4] and pd.read_csv(tmp_path / "history.csv")["twice"].tolist() == [0.0, 4.0, 8.0]
    assert all(torch.equal(value, seen[4][name]) for name, value in model.state_dict().items())


def test_checkpoints_are_written_at_the_steps_asked_for_and_at_the_end(tmp_path):
    saved = []
    trainer = SimpleNamespace(
        global_step=0, max_steps=7, is_global_zero=False, save_checkpoint=lambda path: saved.append(trainer.global_step)
    )
    saver = Saver(tmp_path / "last.ckpt", every=3)
    for trainer.global_step in range(1, 8):
        saver.on_train_batch_end(trainer, None, None, None, 0)
    assert saved == [3, 6, 7]


def test_each_pass_shows_every_image_once_in_another_order():
    seen = np.concatenate(list(StepBatches(10, 4, 10, seed=1)))
    passes = seen.reshape(4, 10)
    assert all(sorted(one) == list(range(10)) for one in passes)
    assert len({tuple(one) for one in passes}) == 4


@pytest.mark.parametrize("first", [0, 3, 7])
def test_order_does_not_depend_on_where_it_began(first):
    assert list(StepBatches(10, 4, 8, 1, lambda: first)) == list(StepBatches(10, 4, 8, 1))[first:]


def test_processes_share_each_batch():
    parts = [list(StepBatches(10, 4, 5, 1, rank=rank, world_size=2)) for rank in range(2)]
    whole = list(StepBatches(10, 4, 5, 1))
    assert [sorted(a + b) for a, b in zip(*parts, strict=True)] == [sorted(batch) for batch in whole]
    with pytest.raises(ValueError, match="shared evenly"):
        StepBatches(10, 4, 5, 1, world_size=3)


def test_a_loss_that_is_none_stops_training(tiny_config, digits, tmp_path):
    with pytest.raises(TrainingDiverged, match="learning rate of 1e.*is the likely cause"):
        train(dataclasses.replace(tiny_config, lr=1e6, n_steps=50, n_warmup_steps=1), digits, tmp_path, n_heldout=8)


def test_damaged_files_are_named_and_put_aside(tiny_config, digits, tiny_run, tmp_path, caplog):
    (tmp_path / "last.ckpt").write_bytes((tiny_run[0] / "last.ckpt").read_bytes()[:1000])
    assert_same_weights(tiny_run[1], train(tiny_config, digits, tmp_path, n_heldout=32, resume=True))
    assert (tmp_path / "last.ckpt.damaged").stat().st_size == 1000 and "last.ckpt is damaged" in caplog.text
    train(tiny_config, digits, tmp_path / "b", n_heldout=32, stop_at=2)
    (tmp_path / "b" / "history.csv").write_text('"step\n1,2')
    assert_same_weights(tiny_run[1], train(tiny_config, digits, tmp_path / "b", n_heldout=32, resume=True))
    assert (tmp_path / "b" / "history.csv.damaged").exists() and "history.csv is damaged" in caplog.text


def test_a_request_to_end_is_no_success(tiny_config, digits, tmp_path):
    class End(Callback):
        def on_train_batch_end(self, *args):
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(SystemExit) as caught:
        train(tiny_config, digits, tmp_path, n_heldout=8, callbacks=[End()])
    assert caught.value.code == 143
