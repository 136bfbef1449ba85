"""Optimiser schedule, validation on fixed noise, and the average of the weights that stays."""

from __future__ import annotations

import math
import os
import re
import signal
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import Callback

from sccountsdiff import CountsDiffImputer
from sccountsdiff.seeding import global_seed
from sccountsdiff.training import (
    CountsDiffTrainingPlan,
    LossWatch,
    TrainingDiverged,
    default_lr,
    default_max_epochs,
    divergence,
    schedule,
)


def validation_losses(model):
    return model.history["validation_loss"].to_numpy(dtype=float).ravel()


def lonely_trainer() -> SimpleNamespace:
    strategy = SimpleNamespace(reduce_boolean_decision=lambda decision, all: decision)
    return SimpleNamespace(precision="32-true", gradient_clip_val=1.0, strategy=strategy)


class Weights(Callback):
    """The weights after each optimiser step, and the learning rate with which it was made."""

    def __init__(self):
        self.rates, self.weights = [], []

    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        self.rates.append(optimizer.param_groups[0]["lr"])

    def on_train_batch_end(self, trainer, pl_module, *args):
        self.weights.append({k: v.detach().clone() for k, v in pl_module.module.named_parameters()})


def moving_averages(weights, decay):
    """The average after each step, from its definition."""
    average, averages = weights[0], [weights[0]]
    for n, current in enumerate(weights[1:], start=1):
        share = min(decay, (1 + n) / (10 + n))
        average = {key: share * average[key] + (1 - share) * current[key] for key in average}
        averages.append(average)
    return averages


def same(weights, others):
    return all(torch.allclose(weights[key], others[key], rtol=1e-4, atol=1e-6) for key in weights)


class TestLearningRate:
    @pytest.mark.parametrize(("n_warmup_steps", "n_warmup"), [(100, 4), (2, 2), (0, 1)])
    def test_follows_warm_up_and_cosine_decay(self, simulate, train, n_warmup_steps, n_warmup):
        watch = Weights()
        plan_kwargs = {"lr": 0.01, "n_warmup_steps": n_warmup_steps, "lr_final": 0.1}
        train(simulate(50).adata, 8, batch_size=10, plan_kwargs=plan_kwargs, callbacks=[watch], early_stopping=False)
        n = 8 * 5  # 45 training cells; warm-up is at most a tenth of all steps
        steps = np.arange(n)
        decay = 0.5 * (1 + np.cos(math.pi * steps / n))
        expected = 0.01 * np.minimum((steps + 1) / n_warmup, 1) * (0.1 + 0.9 * decay)
        np.testing.assert_allclose(watch.rates, expected, rtol=1e-6)

    def test_optimiser_is_adamw_without_the_large_eps_of_scvi(self, simulate, train):
        model = train(simulate(20).adata, plan_kwargs={"lr": 1e-4, "weight_decay": 0.5})
        (optimizer,) = model.trainer.optimizers
        assert isinstance(optimizer, torch.optim.AdamW)
        assert optimizer.defaults["eps"] == 1e-8 and optimizer.defaults["weight_decay"] == 0.5
        assert model.trainer.gradient_clip_val == 1.0


class TestValidation:
    def test_is_the_same_number_for_the_same_weights(self, simulate, train):
        model = train(simulate(60).adata, 4, plan_kwargs={"lr": 0.0}, early_stopping=False)
        losses = validation_losses(model)
        assert len(losses) == 4 and len(set(losses)) == 1
        assert len(set(model.history["train_loss"].to_numpy(dtype=float).ravel())) == 4  # training draws are new

    @pytest.mark.parametrize("n_cells", [40, 600])
    def test_is_the_loss_over_fixed_draws(self, simulate, train, n_cells):
        """Repeat it by hand: a generator for each batch, small sets repeated, weighted by cells."""
        adata = simulate(n_cells).adata
        model = train(adata, 1, plan_kwargs={"lr": 0.0, "validation_seed": 3}, train_size=0.5, batch_size=32)
        model.module.denoiser.forget_corrections()  # which are made once it is trained
        cells = model.validation_indices
        n_repeats = min(8, math.ceil(schedule.VALIDATION_DRAWS / len(cells)))
        losses, n_obs = [], []
        for number, start in enumerate(range(0, len(cells), 32)):
            x = torch.from_numpy(adata.X[cells[start : start + 32]].toarray())
            generator = torch.Generator().manual_seed(3 + number)
            for _ in range(n_repeats):
                with torch.inference_mode():
                    _, _, output = model.module({"X": x}, inference_kwargs={"generator": generator})
                losses.append(float(output.loss))
                n_obs.append(len(x))
        assert len(cells) == n_cells // 2
        np.testing.assert_allclose(validation_losses(model), np.average(losses, weights=n_obs), rtol=1e-5)

    def test_other_seed_other_noise(self, simulate, train):
        losses = [
            validation_losses(train(simulate(30).adata, 1, plan_kwargs={"lr": 0.0, "validation_seed": seed}))[0]
            for seed in (0, 0, 1)
        ]
        assert losses[0] == losses[1] != losses[2]


class TestAverage:
    @pytest.mark.parametrize("decay", [0.999, 0.3])
    def test_without_validation_the_last_average_stays(self, simulate, train, decay):
        watch = Weights()
        model = train(
            simulate(40).adata, 5, batch_size=10, ema_decay=decay, train_size=1.0, callbacks=[watch],
            plan_kwargs={"lr": 0.01},
        )  # fmt: skip
        final = dict(model.module.named_parameters())
        assert "validation_loss" not in model.history
        assert len(watch.weights) == 20
        assert same(final, moving_averages(watch.weights, decay)[-1])
        assert not same(final, watch.weights[-1])

    def test_the_average_with_the_best_validation_loss_stays(self, simulate, train):
        watch = Weights()
        # far too high a learning rate, so that it does not end where it was best
        model = train(
            simulate(50).adata, 6, batch_size=15, callbacks=[watch], plan_kwargs={"lr": 0.5, "lr_final": 1.0},
            early_stopping=False, model_kwargs={"head": "poisson"},
        )  # fmt: skip
        losses = validation_losses(model)
        best = int(losses.argmin())
        assert best < len(losses) - 1, "chosen so that the last epoch is not the best one"
        averages = moving_averages(watch.weights, 0.999)
        final = dict(model.module.named_parameters())
        assert same(final, averages[3 * best + 2])  # 45 training cells: 3 steps each epoch
        assert not same(final, averages[-1])

    def test_validation_looks_at_the_average(self, simulate, train):
        adata = simulate(50).adata
        model = train(adata, 3, batch_size=15, plan_kwargs={"lr": 0.05}, early_stopping=False)
        # The best average is what is left: without training, its validation loss is the best of the history.
        again = model.history["validation_loss"].copy()
        model.train(1, plan_kwargs={"lr": 0.0}, enable_progress_bar=False, accelerator="cpu", batch_size=15)
        assert float(validation_losses(model)[-1]) == pytest.approx(float(again.to_numpy(float).min()), rel=1e-6)

    def test_better_weights_of_an_earlier_training_stay(self, simulate, train):
        model = train(simulate(50).adata, 10, batch_size=15, early_stopping=False, plan_kwargs={"lr": 0.02})
        before = {key: value.clone() for key, value in model.module.state_dict().items()}
        # far too high a learning rate: nothing of the second training is worth keeping
        with global_seed(0):
            model.train(2, plan_kwargs={"lr": 0.5}, enable_progress_bar=False, accelerator="cpu", batch_size=15)
        losses = validation_losses(model)
        assert losses[10:].min() > losses[:10].min(), "chosen so that it only gets worse"
        after = model.module.state_dict()
        assert all(torch.equal(before[key], after[key]) for key in before)


class SignalAt(Callback):
    """What Ctrl-C, or a scheduler, does to the process."""

    def __init__(self, step, number):
        self.step, self.number = step, number

    def on_train_batch_end(self, trainer, *args):
        if trainer.global_step == self.step:
            os.kill(os.getpid(), self.number)


class TestInterruption:
    """Of 6 epochs with 6 steps each."""

    def train(self, simulate, **kwargs):
        with global_seed(0):
            model = CountsDiffImputer(simulate(100).adata, n_hidden=8, n_layers=1)
        settings = {"batch_size": 15, "enable_progress_bar": False, "accelerator": "cpu", "early_stopping": False}
        error = None
        try:
            with global_seed(0):
                model.train(6, **(settings | kwargs))
        except BaseException as caught:  # noqa: BLE001
            error = caught
        return model, error

    @pytest.mark.parametrize(("number", "kind"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
    def test_the_best_average_so_far_is_kept(self, simulate, number, kind, caplog, capsys):
        watch = Weights()
        model, error = self.train(simulate, callbacks=[watch, SignalAt(15, number)], plan_kwargs={"lr": 0.01})
        assert type(error) is kind and getattr(error, "code", 143) == 143
        assert model.is_trained and not model.module.training and len(model.history["train_loss"]) == 2
        averages = moving_averages(watch.weights, 0.999)
        best = int(validation_losses(model).argmin())
        assert same(dict(model.module.named_parameters()), averages[6 * best + 5])
        assert f"after 2 epochs. The weights of epoch {best}, the best so far, are kept" in caplog.text
        assert "NameError" not in capsys.readouterr().out
        assert model.impute(n_samples=1, n_steps=1, n_folds=1, silent=True).shape == (100, 20)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

    def test_without_validation_the_last_epoch_is_kept(self, simulate):
        watch = Weights()
        model, _ = self.train(simulate, callbacks=[watch, SignalAt(16, signal.SIGINT)], train_size=1.0)
        assert model.is_trained
        assert same(dict(model.module.named_parameters()), moving_averages(watch.weights, 0.999)[13])  # 7 steps each

    def test_within_the_first_epoch_nothing_is_changed(self, simulate, caplog):
        model, error = self.train(simulate, callbacks=[SignalAt(3, signal.SIGINT)])
        assert type(error) is KeyboardInterrupt and not model.is_trained
        assert "The model is as it was before" in caplog.text

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

        model, error = self.train(simulate, callbacks=[Spoil()])
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
        model, error = self.train(simulate, train_size=train_size)
        assert isinstance(error, TrainingDiverged) and "step 9 of epoch 1: the loss is nan" in str(error)
        assert "The weights of epoch 0, the best so far, are kept" in str(error)


class TestDefaultMaxEpochs:
    @pytest.mark.parametrize("n_cells", [1, 50, 1_000, 10_000, 100_000, 1_000_000, 10_000_000])
    def test_steps_grow_with_the_square_root_of_the_cells(self, n_cells):
        per_epoch = math.ceil(n_cells / 128)
        n_steps = default_max_epochs(n_cells, 128) * per_epoch
        wanted = 2000 * math.sqrt(n_cells / 1000)
        assert wanted <= n_steps < wanted + per_epoch

    def test_larger_batches_more_epochs(self):
        assert default_max_epochs(10_000, 512) > default_max_epochs(10_000, 128) > default_max_epochs(10_000, 32)


def test_the_learning_rate_falls_with_the_number_of_genes(simulate, train):
    model = train(simulate(20).adata)
    plan = CountsDiffTrainingPlan(model.module)
    assert plan.lr == default_lr(20) == 1e-3
    model.module.denoiser.gene_means = torch.ones(4000)
    assert CountsDiffTrainingPlan(model.module).lr == pytest.approx(5e-4)
    assert CountsDiffTrainingPlan(model.module, lr=0.1).lr == 0.1
