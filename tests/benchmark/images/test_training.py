"""Training goes on after a stop as if there had been none, learns, and depends on its seed alone."""

import dataclasses
import math
import os
import signal
from pathlib import Path
from types import SimpleNamespace

import lightning.pytorch as pl
import numpy as np
import pandas as pd
import pytest
import torch

from sccountsdiff.benchmark.images import ImageDiffusion, train
from sccountsdiff.benchmark.images.training import Saver, StepBatches, local_devices, own_device, read_history
from sccountsdiff.training import TrainingDiverged, divergence


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

    def save(path):
        saved.append(trainer.global_step)
        path.write_text(str(trainer.global_step))

    trainer = SimpleNamespace(
        global_step=0, max_steps=7, save_checkpoint=save, is_global_zero=True, sanity_checking=False
    )
    saver = Saver(tmp_path / "last.ckpt", every=3, evaluate_every=2)
    for trainer.global_step in range(1, 8):
        before = len(saved)
        saver.on_train_batch_end(trainer, torch.nn.Linear(1, 1), None, None, 0)
        if trainer.global_step % 2 == 0:
            assert len(saved) == before, "a checkpoint before the line of its step"
            saver.on_validation_end(trainer, torch.nn.Linear(1, 1))
    assert saved == [3, 6, 7]
    assert (tmp_path / "last.ckpt").read_text() == "7" and (tmp_path / "previous.ckpt").read_text() == "6"


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


def break_loss_at(monkeypatch, step, value=float("nan")):
    whole = ImageDiffusion.training_step

    def training_step(self, batch, batch_idx):
        loss = whole(self, batch, batch_idx)
        return loss * value if self.global_step + 1 == step else loss

    monkeypatch.setattr(ImageDiffusion, "training_step", training_step)


def test_a_loss_that_is_no_number_stops_training_and_leaves_the_last_checkpoint(
    tiny_config, digits, tiny_run, tmp_path, monkeypatch
):
    with monkeypatch.context() as patch:
        break_loss_at(patch, step=5)
        with pytest.raises(TrainingDiverged, match="diverged in step 5 of epoch 0: the loss is nan"):
            train(tiny_config, digits, tmp_path, n_heldout=32)
    kept = torch.load(tmp_path / "last.ckpt", weights_only=True)
    assert kept["global_step"] == 4
    assert all(value.isfinite().all() for value in kept["current_model_state"].values())
    assert_same_weights(tiny_run[1], train(tiny_config, digits, tmp_path, n_heldout=32, resume=True))


def test_losses_of_a_device_are_looked_at_before_a_checkpoint(tiny_config, digits, tmp_path, monkeypatch):
    """There they are not looked at in every step: the loss of the step before the checkpoint must not slip through."""
    monkeypatch.setattr(divergence, "host_sees", lambda values: False)
    whole = ImageDiffusion.loss

    def loss(self, *args):
        return whole(self, *args) * (math.nan if self.training and self.global_step == 3 else 1)

    monkeypatch.setattr(ImageDiffusion, "loss", loss)
    with pytest.raises(TrainingDiverged, match="in step 3 of"):
        train(tiny_config, digits, tmp_path, n_heldout=32)
    assert torch.load(tmp_path / "last.ckpt", weights_only=True)["global_step"] == 2


def test_weights_that_are_not_finite_are_not_saved(tmp_path):
    trainer = SimpleNamespace(global_step=3, max_steps=3, save_checkpoint=lambda path: pytest.fail("saved"))
    layer = torch.nn.Linear(2, 2)
    torch.nn.init.constant_(layer.weight, float("inf"))
    with pytest.raises(ValueError, match="not finite after step 3"):
        Saver(tmp_path / "last.ckpt", 3, evaluate_every=2).on_train_batch_end(trainer, layer, None, None, 0)


@pytest.mark.parametrize("size", [0, 100, 20_000])
def test_a_truncated_checkpoint_is_set_aside_and_training_goes_on_from_the_one_before(
    tiny_config, digits, tiny_run, tmp_path, caplog, size
):
    train(tiny_config, digits, tmp_path, n_heldout=32, stop_at=4)
    last = tmp_path / "last.ckpt"
    last.write_bytes(last.read_bytes()[:size])
    resumed = train(tiny_config, digits, tmp_path, n_heldout=32, resume=True)
    assert "last.ckpt is damaged" in caplog.text and "previous.ckpt, at step 2" in caplog.text
    assert (tmp_path / "last.ckpt.damaged").stat().st_size == size
    assert_same_weights(tiny_run[1], resumed)
    history = [pd.read_csv(folder / "history.csv") for folder in (tiny_run[0], tmp_path)]
    pd.testing.assert_frame_equal(*history)


def test_without_a_whole_checkpoint_training_begins_anew(tiny_config, digits, tiny_run, tmp_path, caplog):
    train(tiny_config, digits, tmp_path, n_heldout=32, stop_at=4)
    for name in ("last.ckpt", "previous.ckpt"):
        (tmp_path / name).write_bytes(b"half")
    assert_same_weights(tiny_run[1], train(tiny_config, digits, tmp_path, n_heldout=32, resume=True))
    assert caplog.text.count("set aside") == 2
    assert pd.read_csv(tmp_path / "history.csv")["step"].tolist() == [0, 2, 4, 6]


def test_a_run_killed_between_two_checkpoints_goes_on(tiny_config, digits, tiny_run, tmp_path):
    """The earlier checkpoint has been renamed, the later one not yet."""
    train(tiny_config, digits, tmp_path, n_heldout=32, stop_at=4)
    (tmp_path / "last.ckpt").replace(tmp_path / "previous.ckpt")
    assert_same_weights(tiny_run[1], train(tiny_config, digits, tmp_path, n_heldout=32, resume=True))


class Killed(BaseException):
    """As if there were no process any more."""


@pytest.mark.slow
@pytest.mark.parametrize("is_done", [False, True])
def test_a_run_killed_at_any_rename_ends_as_if_it_had_not_been(tiny_config, digits, tiny_run, tmp_path, is_done):
    """All that a run leaves is renamed into place, so what a kill leaves is what is there before or after a rename."""
    folder, whole = tiny_run
    rename, count = Path.replace, 0

    def replace(self, target):
        nonlocal count
        count += 1
        if count == number and not is_done:
            raise Killed
        result = rename(self, target)
        if count == number:
            raise Killed
        return result

    expected = pd.read_csv(folder / "history.csv")
    for number in range(1, 100):
        output, count = tmp_path / str(number), 0
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Path, "replace", replace)
            try:
                train(tiny_config, digits, output, n_heldout=32)
                break  # there are no more
            except Killed:
                pass
        assert_same_weights(whole, train(tiny_config, digits, output, n_heldout=32, resume=True))
        pd.testing.assert_frame_equal(pd.read_csv(output / "history.csv"), expected)
    assert number > 8


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("step,train_loss\n0,\n2,1.5\n", [0, 2]),
        ("step,train_loss\n0,\n2,1.5", [0]),  # the end of the last number may be missing
        ("step,train_loss\n0,\n2,1.5,7\n4,1.0\n", [0, 4]),
        ("step,train_loss\n0,\nx,1.5\n4,?\n", [0]),
        ("\x00\x01", []),
        ("", []),
    ],
)
def test_whole_lines_of_a_broken_history_are_kept(text, steps, tmp_path):
    path = tmp_path / "history.csv"
    path.write_text(text)
    assert read_history(path)["step"].tolist() == steps == read_history(path)["step"].tolist()
    broken = tmp_path / "history.csv.damaged"
    assert broken.is_file() == (text != "step,train_loss\n0,\n2,1.5\n")
    assert not broken.is_file() or broken.read_text() == text


def test_training_goes_on_with_a_broken_history(tiny_config, digits, tiny_run, tmp_path, caplog):
    train(tiny_config, digits, tmp_path, n_heldout=32, stop_at=4)
    path = tmp_path / "history.csv"
    path.write_text(path.read_text()[:-3])
    assert_same_weights(tiny_run[1], train(tiny_config, digits, tmp_path, n_heldout=32, resume=True))
    assert pd.read_csv(path)["step"].tolist() == [0, 2, 6] and "history.csv is damaged" in caplog.text


def test_devices_are_those_that_were_asked_for(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    numbers = lambda *args: [device.index for device in local_devices(*args)]
    assert numbers() == numbers("cuda", -1) == numbers("gpu", "auto") == [0, 1, 2, 3]
    assert numbers("cuda", 2) == numbers("cuda", "2") == [0, 1]
    assert numbers("cuda", [3]) == numbers("cuda", "3,") == [3]
    assert numbers("cuda", "1,3") == [1, 3]
    assert local_devices("cpu", 2) == [torch.device("cpu")]
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert own_device(local_devices("cuda", [1, 3])).index == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("cuda", 5), "has 4 GPU"), (("cuda", [4]), "has 4 GPU"), (("cuda", 0), "`devices` must"),
        (("cpu", -2), "`devices` must"), (("cuda", "first"), "`devices` must be 'auto'"), (("mps", 1), "`accelerator` must"),
    ],
)  # fmt: skip
def test_devices_that_there_are_not_are_named(monkeypatch, arguments, message):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    with pytest.raises(ValueError, match=message):
        local_devices(*arguments)


@pytest.mark.parametrize("options", [{"n_workers": -1}, {"n_heldout": 0}, {"checkpoint_every": 0}, {"stop_at": 0}])
def test_numbers_that_cannot_be_are_named_before_anything_is_written(tiny_config, digits, tmp_path, options):
    with pytest.raises(ValueError, match=f"`{next(iter(options))}` must"):
        train(tiny_config, digits, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_compiled_training_has_the_same_losses(tiny_config, digits, tmp_path, monkeypatch):
    compiled, compile = [], torch.compile
    monkeypatch.setattr(torch, "compile", lambda f, **kw: compiled.append(f) or compile(f, backend="eager", **kw))
    short = dataclasses.replace(tiny_config, n_steps=2, dropout=0.0)
    for name, flag in ("plain", False), ("compiled", True):
        train(short, digits, tmp_path / name, n_heldout=8, compile=flag)
    assert len(compiled) == 1
    losses = [pd.read_csv(tmp_path / name / "history.csv")["heldout_loss"] for name in ("plain", "compiled")]
    assert losses[0].tolist() == pytest.approx(losses[1].tolist(), rel=1e-4)


@pytest.mark.parametrize(
    ("number", "error", "code"), [(signal.SIGINT, KeyboardInterrupt, None), (signal.SIGTERM, SystemExit, 143)]
)
def test_a_signal_ends_it_as_a_signal_does(tiny_config, digits, tmp_path, number, error, code):
    class Stop(pl.Callback):
        def on_train_batch_end(self, trainer, *args):
            os.kill(os.getpid(), number)

    with pytest.raises(error) as found:
        train(tiny_config, digits, tmp_path, n_heldout=8, callbacks=[Stop()])
    assert getattr(found.value, "code", None) == code
