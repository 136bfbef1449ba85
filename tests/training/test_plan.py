"""Optimiser, learning rate, and validation on fixed noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from training_helpers import Weights, validation_losses

from sccountsdiff.training import (
    CountsDiffTrainingPlan,
    default_lr,
    schedule,
)


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


def test_the_learning_rate_falls_with_the_number_of_genes(simulate, train):
    model = train(simulate(20).adata)
    plan = CountsDiffTrainingPlan(model.module)
    assert plan.lr == default_lr(20) == 1e-3
    model.module.denoiser.gene_means = torch.ones(4000)
    assert CountsDiffTrainingPlan(model.module).lr == pytest.approx(5e-4)
    assert CountsDiffTrainingPlan(model.module, lr=0.1).lr == 0.1
