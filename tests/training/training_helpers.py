"""What the tests of training share."""

from __future__ import annotations

import torch
from lightning.pytorch.callbacks import Callback

from sccountsdiff import CountsDiffImputer
from sccountsdiff.seeding import global_seed


def validation_losses(model):
    return model.history["validation_loss"].to_numpy(dtype=float).ravel()


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


def try_training(simulate, **kwargs):
    """A model of 100 cells, and what stopped its training: 6 epochs with 6 steps each."""
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
