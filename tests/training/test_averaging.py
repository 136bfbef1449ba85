"""The average of the weights that stays."""

from __future__ import annotations

import pytest
import torch
from training_helpers import Weights, moving_averages, same, validation_losses

from sccountsdiff.seeding import global_seed


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
