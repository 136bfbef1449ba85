"""A training that was stopped goes on as if it had not been, and a checkpoint runs nothing."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import Callback

from sccountsdiff import CountsDiffImputer, checkpoints
from sccountsdiff.checkpoints import check_settings, random_state, read_checkpoint, set_random_state

SCRIPT = """
import sys
import torch
from anndata import read_h5ad
from sccountsdiff import checkpoints
from tests.test_checkpoints import train

torch.set_num_threads(1)
checkpoints.SECONDS_BETWEEN = 0.0
train(read_h5ad(sys.argv[1]), checkpoint=sys.argv[2])
"""


class StopAt(Callback):
    """A signal after a step."""

    def __init__(self, step, number=signal.SIGINT):
        self.step, self.number = step, number

    def on_train_batch_end(self, trainer, *args):
        if trainer.global_step == self.step:
            os.kill(os.getpid(), self.number)


SETTINGS = {
    "max_epochs": 8,
    "batch_size": 20,
    "accelerator": "cpu",
    "enable_progress_bar": False,
    "train_size": 0.8,
}


def train(adata, seed=0, **kwargs):
    import scvi

    scvi.settings.seed = seed
    model = CountsDiffImputer(adata, n_hidden=8, n_layers=1)
    model.train(**(SETTINGS | kwargs))
    return model


def assert_same(model, other):
    ours, theirs = model.module.state_dict(), other.module.state_dict()
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    for name, table in model.history.items():
        np.testing.assert_array_equal(table.to_numpy(float), other.history[name].to_numpy(float))
        assert list(table.index) == list(other.history[name].index)


@pytest.fixture(autouse=True)
def every_epoch(monkeypatch, seeded):
    monkeypatch.setattr(checkpoints, "SECONDS_BETWEEN", 0.0)
    with seeded(0):
        yield


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """The number of threads decides the last bits, and tests that ran before, or the environment, may have changed it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def whole(simulate, seeded, one_thread):
    """A training that was never stopped, without checkpoints."""
    with seeded(0):
        return train(simulate(100).adata)


@pytest.mark.parametrize(("step", "number"), [(5, signal.SIGINT), (31, signal.SIGTERM)])
def test_it_goes_on_bit_for_bit(simulate, whole, tmp_path, step, number):
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        train(simulate(100).adata, checkpoint=tmp_path, callbacks=[StopAt(step, number)])
    # Another seed and other weights to begin with: all that counts is in the checkpoint.
    torch.manual_seed(99)
    assert_same(train(simulate(100).adata, checkpoint=tmp_path), whole)


def test_checkpoints_change_nothing_and_a_finished_training_is_not_repeated(simulate, whole, tmp_path):
    model = train(simulate(100).adata, checkpoint=tmp_path / "new" / "folder")
    assert_same(model, whole)
    file = tmp_path / "new" / "folder" / "last.ckpt"
    before = file.stat().st_mtime_ns
    again = train(simulate(100).adata, checkpoint=tmp_path / "new" / "folder")
    assert_same(again, whole)
    assert again.is_trained and file.stat().st_mtime_ns == before
    np.testing.assert_array_equal(again.train_indices, whole.train_indices)


def test_the_same_call_on_the_same_model_goes_on(simulate, whole, tmp_path):
    """An interrupted model is trained, but not for as long as was asked for; once it is, there is nothing left to do."""
    import scvi

    scvi.settings.seed = 0
    model = CountsDiffImputer(simulate(100).adata, n_hidden=8, n_layers=1)
    with pytest.raises(KeyboardInterrupt):
        model.train(**SETTINGS, checkpoint=tmp_path, callbacks=[StopAt(31)])
    for _ in range(2):
        model.train(**SETTINGS, checkpoint=tmp_path)
        assert_same(model, whole)


def test_a_training_that_started_elsewhere_is_another_one(simulate, tmp_path):
    adata = simulate(60).adata
    models = [train(adata, max_epochs=1), train(adata, seed=1, max_epochs=1)]
    models[0].train(**SETTINGS, checkpoint=tmp_path)
    with pytest.raises(ValueError, match="was made with other settings.*weights"):
        models[1].train(**SETTINGS, checkpoint=tmp_path)


def test_a_model_that_was_stopped_and_saved_goes_on(simulate, whole, tmp_path):
    import scvi

    scvi.settings.seed = 0
    adata = simulate(100).adata
    model = CountsDiffImputer(adata, n_hidden=8, n_layers=1)
    with pytest.raises(KeyboardInterrupt):
        model.train(**SETTINGS, checkpoint=tmp_path, callbacks=[StopAt(31)])
    model.save(tmp_path / "model")
    again = CountsDiffImputer.load(tmp_path / "model", adata=adata, accelerator="cpu")
    again.train(**SETTINGS, checkpoint=tmp_path)
    assert_same(again, whole)


def test_where_a_training_started_is_not_remembered_beyond_others(simulate, tmp_path):
    """A checkpoint of weights that were trained before is none of a model that starts with random ones."""
    adata = simulate(60).adata
    model = train(adata, max_epochs=1, checkpoint=tmp_path)
    (tmp_path / "last.ckpt").unlink()
    model.train(**(SETTINGS | {"max_epochs": 1}))
    model.train(**SETTINGS, checkpoint=tmp_path)
    with pytest.raises(ValueError, match="was made with other settings.*weights"):
        train(adata, checkpoint=tmp_path)


def test_trainings_with_a_checkpoint_each_may_follow_each_other(simulate, tmp_path):
    """A script of two, run again, finds both finished."""
    adata, models = simulate(60).adata, []
    for _ in range(2):
        model = train(adata, max_epochs=2, checkpoint=tmp_path / "first")
        model.train(**(SETTINGS | {"max_epochs": 3}), checkpoint=tmp_path / "second")
        models.append(model)
    first, second = (model.module.state_dict() for model in models)
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_a_training_that_learns_nothing_leaves_the_history_alone(simulate):
    model = train(simulate(60).adata, max_epochs=2)
    with pytest.raises(KeyboardInterrupt):  # in the second epoch; the first was no better than what was there
        model.train(**(SETTINGS | {"max_epochs": 4}), plan_kwargs={"lr": 0.0}, callbacks=[StopAt(4)])
    assert len(model.history["train_loss"]) == 2


def test_a_training_that_does_not_begin_changes_nothing(simulate, monkeypatch):
    """Not even which cells were trained on, nor what was measured afterwards."""
    model = train(simulate(60).adata, max_epochs=2)
    before = {key: value.clone() for key, value in model.module.state_dict().items()}
    indices, n_epochs = model.train_indices.copy(), len(model.history["train_loss"])
    monkeypatch.setattr(model, "_train_runner_cls", None)
    with pytest.raises(TypeError):
        model.train(1, train_size=0.5, enable_progress_bar=False, accelerator="cpu")
    assert all(torch.equal(value, before[key]) for key, value in model.module.state_dict().items())
    np.testing.assert_array_equal(model.train_indices, indices)
    assert len(model.history["train_loss"]) == n_epochs and not model.module.training


def test_early_stopping_goes_on_too(simulate, tmp_path):
    kwargs = {"max_epochs": 40, "early_stopping_patience": 2, "plan_kwargs": {"lr": 0.05}}
    whole = train(simulate(60).adata, **kwargs)
    assert len(whole.history["train_loss"]) < 40, "chosen so that it stops early"
    with pytest.raises(KeyboardInterrupt):
        train(simulate(60).adata, checkpoint=tmp_path, callbacks=[StopAt(8)], **kwargs)
    assert_same(train(simulate(60).adata, checkpoint=tmp_path, **kwargs), whole)


@pytest.mark.slow
def test_after_a_kill(simulate, whole, tmp_path):
    """SIGKILL leaves no time for anything."""
    simulate(100).adata.write_h5ad(tmp_path / "cells.h5ad")
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "cells.h5ad"), str(tmp_path / "run")]
    checkpoint = tmp_path / "run" / "last.ckpt"
    with subprocess.Popen(command, cwd=Path(__file__).parents[1], stderr=subprocess.PIPE) as process:
        while process.poll() is None and not checkpoint.exists():
            time.sleep(0.001)
        process.kill()
        heard = process.stderr.read().decode()
    assert checkpoint.exists(), heard
    assert_same(train(simulate(100).adata, checkpoint=tmp_path / "run"), whole)


def test_other_settings_or_data_do_not_go_on(simulate, tmp_path):
    train(simulate(60).adata, max_epochs=2, checkpoint=tmp_path)
    with pytest.raises(ValueError, match=r"last\.ckpt was made with other settings.*max_epochs \(2 instead of 3\)"):
        train(simulate(60).adata, max_epochs=3, checkpoint=tmp_path)
    with pytest.raises(ValueError, match=r"other settings.*: data \("):
        train(simulate(60, seed=1).adata, max_epochs=2, checkpoint=tmp_path)
    with pytest.raises(ValueError, match=r"other settings.*: lr \(None instead of 0\.1\)"):
        train(simulate(60).adata, max_epochs=2, checkpoint=tmp_path, plan_kwargs={"lr": 0.1})


def test_other_covariates_or_fewer_settings_do_not_go_on(simulate, tmp_path):
    def of(key, **kwargs):
        adata = simulate(60).adata
        adata.obs["other_type"] = adata.obs["cell_type"].to_numpy()[::-1]
        CountsDiffImputer.setup_anndata(adata, labels_key=key)
        return train(adata, max_epochs=1, checkpoint=tmp_path, **kwargs)

    of("cell_type", plan_kwargs={"lr": 0.1})
    with pytest.raises(ValueError, match=r"other settings.*: lr \(0\.1 instead of None\)"):
        of("cell_type")
    with pytest.raises(ValueError, match=r"other settings.*: data \("):
        of("other_type", plan_kwargs={"lr": 0.1})


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 not all of it", b"no checkpoint"])
def test_a_damaged_one_is_named_and_put_aside(simulate, tmp_path, caplog, content):
    (tmp_path / "last.ckpt").write_bytes(content)
    model = train(simulate(60).adata, max_epochs=1, checkpoint=tmp_path)
    assert model.is_trained and (tmp_path / "last.ckpt.damaged").read_bytes() == content
    assert "last.ckpt is damaged" in caplog.text and "last.ckpt.damaged" in caplog.text


@pytest.mark.parametrize(
    "content", [torch.ones(2), [1, 2], {"state_dict": {}}, None], ids=["tensor", "list", "dict", "none"]
)
def test_what_is_none_is_put_aside(tmp_path, content):
    torch.save(content, tmp_path / "last.ckpt")
    assert read_checkpoint(tmp_path / "last.ckpt") is None and (tmp_path / "last.ckpt.damaged").exists()


def test_a_hostile_one_is_not_run(simulate, tmp_path):
    class Touch:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "touched"),)

    torch.save({"global_step": 1, "state_dict": Touch()}, tmp_path / "last.ckpt")
    train(simulate(60).adata, max_epochs=1, checkpoint=tmp_path)
    assert not (tmp_path / "touched").exists()


def test_that_of_something_else_is_refused(simulate, tmp_path):
    torch.save({"global_step": 1, "state_dict": {}}, tmp_path / "last.ckpt")
    with pytest.raises(ValueError, match="is a checkpoint, but not of such a training"):
        train(simulate(60).adata, max_epochs=1, checkpoint=tmp_path)


def test_what_cannot_be_written_is_found_before(simulate, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match="file cannot be written to: it is no folder"):
        train(simulate(60).adata, checkpoint=tmp_path / "file")


def test_all_streams_of_random_numbers_come_back():
    state = random_state()
    draw = lambda: (torch.rand(2).tolist(), np.random.normal(size=3).tolist(), random.random())
    first = draw()
    set_random_state(state)
    assert draw() == first


def test_only_what_is_asked_for_is_compared():
    check_settings("x", {"a": 1, "b": 2}, {"a": 1})


def test_there_may_be_none(tmp_path):
    assert read_checkpoint(tmp_path / "last.ckpt") is None


def test_processes_that_go_on_have_random_numbers_of_their_own(tmp_path):
    """The state is that of the first one."""
    found = []
    for rank in (0, 1, 1):
        writer = checkpoints.Checkpoints(tmp_path / "last.ckpt", {})
        writer._to_restore = random_state()
        loop = SimpleNamespace(restarting=True, _data_fetcher=[])
        with torch.random.fork_rng():
            trainer = SimpleNamespace(world_size=2, global_rank=rank, fit_loop=loop)
            writer.on_train_epoch_start(trainer, None)
            found.append(float(torch.rand(())))
    assert found[0] != found[1] == found[2]
