"""Training: what it learns, when it stops, and that it can be repeated."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import Callback

import sccountsdiff.model.countsdiff_imputer
from sccountsdiff import CountsDiffImputer


def losses(model, name="validation_loss"):
    return model.history[name].to_numpy(dtype=float).ravel()


def test_history_has_both_losses_for_each_epoch(simulate, train):
    model = train(simulate(40).adata, 3)
    assert sorted(model.history) == ["train_loss", "validation_loss"]
    assert len(losses(model)) == len(losses(model, "train_loss")) == 3
    assert np.isfinite(losses(model)).all()
    assert model.is_trained


def test_lowers_the_validation_loss_of_the_untrained_network(trained, simulate, train):
    adata = simulate(360).adata
    CountsDiffImputer.setup_anndata(adata, categorical_covariate_keys=["cell_type"], continuous_covariate_keys=["age"])
    # Nothing is learned at a rate of 0; split, times and noise of the validation are the same.
    untrained = train(adata, 1, model_kwargs={"n_hidden": 32}, batch_size=64, plan_kwargs={"lr": 0.0})
    np.testing.assert_array_equal(untrained.validation_indices, trained.validation_indices)
    assert losses(trained).min() < losses(untrained)[0] - 0.2


def test_the_mean_of_hidden_entries_is_closer_to_the_truth_than_the_depth_scaled_gene_mean(trained, simulate):
    new = simulate(200, seed=7)
    hidden = np.random.default_rng(0).random(new.adata.shape) < 0.3
    counts = new.adata.X.toarray()
    mean = trained.impute(new.adata, sites=hidden, n_steps=1, final="mean", key_added=None, silent=True).toarray()
    gene_means = trained.adata.X.toarray().mean(0)
    depth = np.where(hidden, 0, counts).sum(1) / (~hidden @ gene_means)
    scaled = depth[:, None] * gene_means
    gain = (np.abs(scaled - new.rates) - np.abs(mean - new.rates))[hidden]
    assert gain.mean() > 4 * gain.std() / np.sqrt(gain.size)
    assert np.abs(mean - new.rates)[hidden].mean() < 0.5 * np.abs(scaled - new.rates)[hidden].mean()


def test_untrained_prediction_is_the_depth_scaled_gene_mean(simulate, train):
    adata = simulate(100).adata
    model = train(adata, 1, plan_kwargs={"lr": 0.0})
    hidden = np.random.default_rng(0).random(adata.shape) < 0.3
    counts = adata.X.toarray()
    mean = model.impute(sites=hidden, n_steps=1, final="mean", silent=True).toarray()
    gene_means = counts.mean(0)
    depth = (np.where(hidden, 0, counts).sum(1) + 10) / (~hidden @ gene_means + 10)
    np.testing.assert_allclose(mean[hidden], (depth[:, None] * gene_means)[hidden], rtol=1e-4)


def test_early_stopping_stops(simulate, train):
    model = train(simulate(40).adata, 30, plan_kwargs={"lr": 0.0}, early_stopping_patience=2)
    assert len(losses(model)) == 3  # the first is the best, then two without improvement
    model = train(simulate(40).adata, 6, plan_kwargs={"lr": 0.0}, early_stopping_patience=2, early_stopping=False)
    assert len(losses(model)) == 6


def test_same_seed_same_weights(simulate, train):
    first, second, other = (train(simulate(40).adata, 2, seed=seed).module.state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)


def test_split_is_that_of_the_seed(simulate, train):
    models = [train(simulate(40).adata, seed=seed, train_size=0.5, validation_size=0.25) for seed in (3, 3, 4)]
    parts = [(m.train_indices, m.validation_indices, m.test_indices) for m in models]
    assert [len(part) for part in parts[0]] == [20, 10, 10]
    assert sorted(np.concatenate(parts[0])) == list(range(40))
    for first, second in zip(parts[0], parts[1], strict=True):
        np.testing.assert_array_equal(first, second)
    assert not np.array_equal(parts[0][0], parts[2][0])


def test_validation_cells_are_not_trained_on(simulate, train):
    adata = simulate(40).adata
    first = train(adata, 1, train_size=0.5)
    other = simulate(40).adata
    rows = np.arange(40)
    rows[first.validation_indices] = first.validation_indices[::-1]  # the gene means stay
    other.X = other.X[rows]
    second = train(other, 1, train_size=0.5)
    weights = second.module.state_dict()
    assert all(torch.equal(value, weights[key]) for key, value in first.module.state_dict().items())
    assert losses(first)[0] != losses(second)[0]


def test_default_budget(simulate, train, monkeypatch):
    asked = []

    def two_epochs(n_train, batch_size):
        asked.append((n_train, batch_size))
        return 2

    monkeypatch.setattr(sccountsdiff.model.countsdiff_imputer, "default_max_epochs", two_epochs)
    assert len(losses(train(simulate(40).adata, None, batch_size=7))) == 2
    assert asked == [(36, 7)]


def test_training_can_go_on(simulate, train):
    model = train(simulate(40).adata, 1)
    before = {key: value.clone() for key, value in model.module.state_dict().items()}
    modes = []

    class Watch(Callback):
        def on_train_batch_start(self, trainer, pl_module, *args):
            modes.extend(part.training for part in pl_module.module.modules())

    model.train(20, plan_kwargs={"lr": 0.01}, enable_progress_bar=False, accelerator="cpu", callbacks=[Watch()])
    assert any(not torch.equal(value, before[key]) for key, value in model.module.state_dict().items())
    assert modes and all(modes)  # dropout is on, also after the first training and after validation
    assert not model.module.training


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_epochs": 0}, "`max_epochs` must be a whole number of at least 1, not 0"),
        ({"max_epochs": -2}, "`max_epochs` must be a whole number of at least 1, not -2"),
        ({"max_epochs": 1.5}, "`max_epochs` must be a whole number of at least 1, not 1.5"),
        ({"max_epochs": "5"}, "`max_epochs` must be a whole number of at least 1, not '5'"),
        ({"batch_size": 0}, "`batch_size` must be a whole number of at least 1, not 0"),
        ({"batch_size": 64.0}, "`batch_size` must be a whole number of at least 1, not 64.0"),
        ({"train_size": 0}, "`train_size` must be above 0 and at most 1, not 0"),
        ({"train_size": 1.2}, "`train_size` must be above 0 and at most 1, not 1.2"),
        ({"train_size": 0.8, "validation_size": 0.5}, "`validation_size` must be within .* not 0.5"),
        ({"train_size": 0.8, "validation_size": -0.1}, "`validation_size` must be within .* not -0.1"),
    ],
)
def test_bad_arguments_are_named(query, arguments, message):
    model = CountsDiffImputer(query, n_hidden=4)
    with pytest.raises(ValueError, match=message):
        model.train(**arguments)
    assert not model.is_trained


@pytest.mark.parametrize("n_cells", [1, 2, 3])
def test_a_handful_of_cells(simulate, train, n_cells):
    adata = simulate(n_cells).adata
    model = train(adata, 2, train_size=0.5)
    assert model.impute(n_samples=1, n_steps=1, n_folds=1, silent=True).shape == adata.shape
