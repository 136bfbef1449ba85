"""A training whose loss has gone is stopped."""

from __future__ import annotations

import math
import re
from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch.callbacks import Callback
from training_helpers import try_training

from sccountsdiff import CountsDiffImputer
from sccountsdiff.training import (
    LossWatch,
    TrainingDiverged,
    divergence,
)


def lonely_trainer() -> SimpleNamespace:
    strategy = SimpleNamespace(reduce_boolean_decision=lambda decision, all: decision)
    return SimpleNamespace(precision="32-true", gradient_clip_val=1.0, strategy=strategy)


class TestDivergence:
    """Of 6 epochs with 6 steps each."""

    @pytest.mark.parametrize("lr", [1e3, 3.0])
    def test_a_loss_that_is_none_stops_training(self, simulate, lr):
        model = CountsDiffImputer(simulate(100).adata, n_hidden=8, n_layers=1)
        before = {key: value.clone() for key, value in model.module.state_dict().items()}
        with pytest.raises(
            TrainingDiverged, match=rf"in step \d of epoch 0: .*rate of {lr:g} is the likely cause.*as it was"
        ):
            model.train(6, batch_size=15, plan_kwargs={"lr": lr}, enable_progress_bar=False, accelerator="cpu")
        assert not model.is_trained
        after = model.module.state_dict()
        assert all(torch.equal(before[key], after[key]) for key in before)
        with pytest.raises(RuntimeError, match="not trained yet"):
            model.log_likelihood()

    def test_a_validation_loss_that_is_none_stops_training_too(self, simulate):
        """If an epoch has a single step, the loss of that step is still that of the weights before it."""
        model = CountsDiffImputer(simulate(100).adata, n_hidden=8, n_layers=1)
        with pytest.raises(TrainingDiverged, match="in epoch 0: the validation loss is nan.*likely cause.*as it was"):
            model.train(2, batch_size=100, plan_kwargs={"lr": 1e30}, enable_progress_bar=False, accelerator="cpu")
        assert not model.is_trained

    def test_what_was_good_before_is_kept(self, simulate):
        class Spoil(Callback):
            def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
                if trainer.global_step == 14:
                    next(pl_module.parameters()).data.fill_(math.nan)

        model, error = try_training(simulate, callbacks=[Spoil()])
        assert isinstance(error, TrainingDiverged) and "step 14 of epoch 2: the loss is nan" in str(error)
        assert re.search("The weights of epoch [01], the best so far, are kept", str(error))
        assert model.is_trained and all(p.isfinite().all() for p in model.module.parameters())

    def test_precision_and_clipping_are_named(self):
        cause = lambda **trainer: divergence.likely_cause(1e-3, SimpleNamespace(**trainer))
        assert "16-mixed" in cause(precision="16-mixed", gradient_clip_val=1.0)
        assert "not clipped" in cause(precision="32-true", gradient_clip_val=None)
        assert "may help" in cause(precision="32-true", gradient_clip_val=1.0)

    def test_losses_of_a_device_are_looked_at_together(self, monkeypatch):
        monkeypatch.setattr(divergence, "host_sees", lambda values: False)
        watch, plan = LossWatch(every=4), SimpleNamespace(current_epoch=1)
        plan.trainer = lonely_trainer()
        losses = [1.0, 2.0, 1.0, 3.0, 2.0, math.nan, math.nan]
        for plan.global_step, loss in enumerate(losses):
            watch(torch.tensor(loss), plan)
        with pytest.raises(TrainingDiverged, match="in step 5 of epoch 1: the loss is nan"):
            watch(torch.tensor(1.0), plan)
        watch.look(plan.trainer)  # nothing is left to look at

    def test_all_processes_stop_or_none(self):
        plan = SimpleNamespace(current_epoch=0, global_step=3, trainer=lonely_trainer())
        plan.trainer.strategy.reduce_boolean_decision = lambda decision, all: True  # another one has seen it
        with pytest.raises(TrainingDiverged, match="in another process"):
            LossWatch()(torch.tensor(1.0), plan)
        plan.trainer.strategy.reduce_boolean_decision = lambda decision, all: decision and all  # would go on
        LossWatch()(torch.tensor(math.nan), plan)

    @pytest.mark.parametrize("train_size", [0.8, 1.0])
    def test_weights_of_a_device_are_looked_at_before_they_are_kept(self, simulate, monkeypatch, train_size):
        """Averages of the epoch in which the loss was lost would be kept, if nobody had looked by its end."""
        monkeypatch.setattr(divergence, "host_sees", lambda values: False)
        look_at = LossWatch.__call__

        def lie(watch, loss, plan):  # the weights stay whole: what is wrong has to be seen in the losses
            look_at(watch, loss * (math.nan if plan.global_step == 9 else 1), plan)

        monkeypatch.setattr(LossWatch, "__call__", lie)
        model, error = try_training(simulate, train_size=train_size)
        assert isinstance(error, TrainingDiverged) and "step 9 of epoch 1: the loss is nan" in str(error)
        assert "The weights of epoch 0, the best so far, are kept" in str(error)
