"""Evaluations see the averaged weights, and their numbers become part of the history."""

import dataclasses
from types import SimpleNamespace

import pandas as pd
import torch

from sccountsdiff.benchmark.images import (
    train,
)
from sccountsdiff.benchmark.images.callbacks import Saver


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
        global_step=0, max_steps=7, save_checkpoint=lambda path: saved.append(trainer.global_step)
    )
    saver = Saver(tmp_path / "last.ckpt", every=3)
    for trainer.global_step in range(1, 8):
        saver.on_train_batch_end(trainer, None, None, None, 0)
    assert saved == [3, 6, 7]
