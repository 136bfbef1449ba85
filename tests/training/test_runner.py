"""What a training that is interrupted leaves."""

from __future__ import annotations

import os
import signal

import pytest
from lightning.pytorch.callbacks import Callback
from training_helpers import Weights, moving_averages, same, try_training, validation_losses


class SignalAt(Callback):
    """What Ctrl-C, or a scheduler, does to the process."""

    def __init__(self, step, number):
        self.step, self.number = step, number

    def on_train_batch_end(self, trainer, *args):
        if trainer.global_step == self.step:
            os.kill(os.getpid(), self.number)


class TestInterruption:
    """Of 6 epochs with 6 steps each."""

    @pytest.mark.parametrize(("number", "kind"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
    def test_the_best_average_so_far_is_kept(self, simulate, number, kind, caplog, capsys):
        watch = Weights()
        model, error = try_training(simulate, callbacks=[watch, SignalAt(15, number)], plan_kwargs={"lr": 0.01})
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
        model, _ = try_training(simulate, callbacks=[watch, SignalAt(16, signal.SIGINT)], train_size=1.0)
        assert model.is_trained
        assert same(dict(model.module.named_parameters()), moving_averages(watch.weights, 0.999)[13])  # 7 steps each

    def test_within_the_first_epoch_nothing_is_changed(self, simulate, caplog):
        model, error = try_training(simulate, callbacks=[SignalAt(3, signal.SIGINT)])
        assert type(error) is KeyboardInterrupt and not model.is_trained
        assert "The model is as it was before" in caplog.text

    def test_a_request_to_end_after_the_last_step_is_heard_too(self, simulate):
        class AtTheEnd(Callback):
            def on_train_end(self, *args):
                os.kill(os.getpid(), signal.SIGTERM)

        model, error = try_training(simulate, callbacks=[AtTheEnd()])
        assert type(error) is SystemExit and error.code == 143
        assert model.is_trained and len(model.history["train_loss"]) == 6
