"""Training: what is refused, what is learned, when it stops, what is left if it is stopped, and that it can be repeated."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import Callback

import sccountsdiff
from sccountsdiff import CountsDiffImputer


@pytest.fixture
def adata(simulate):
    return simulate(30).adata


def losses(model, name="validation_loss"):
    return model.history[name].to_numpy(dtype=float).ravel()


class TestTraining:
    def test_history_has_both_losses_for_each_epoch(self, simulate, train):
        model = train(simulate(40).adata, 3)
        assert sorted(model.history) == ["train_loss", "validation_loss"]
        assert len(losses(model)) == len(losses(model, "train_loss")) == 3
        assert np.isfinite(losses(model)).all()
        assert model.is_trained

    @pytest.mark.slow
    def test_minibatches_read_by_another_process_are_the_same(self, simulate, train):
        loading = [{}, {"num_workers": 1}, {"load_sparse_tensor": True}]
        found = [
            losses(train(simulate(40).adata, 2, batch_size=16, datasplitter_kwargs=options)) for options in loading[:2]
        ]
        found.append(losses(train(simulate(40).adata, 2, batch_size=16, **loading[2])))
        np.testing.assert_array_equal(found[0], found[1])
        np.testing.assert_array_equal(found[0], found[2])

    def test_lowers_the_validation_loss_of_the_untrained_network(self, trained, simulate, train):
        adata = simulate(360).adata
        CountsDiffImputer.setup_anndata(
            adata, categorical_covariate_keys=["cell_type"], continuous_covariate_keys=["age"]
        )
        # Nothing is learned at a rate of 0; split, times and noise of the validation are the same.
        untrained = train(adata, 1, model_kwargs={"n_hidden": 32}, batch_size=64, plan_kwargs={"lr": 0.0})
        np.testing.assert_array_equal(untrained.validation_indices, trained.validation_indices)
        assert losses(trained).min() < losses(untrained)[0] - 0.2

    def test_the_mean_of_hidden_entries_is_closer_to_the_truth_than_the_depth_scaled_gene_mean(self, trained, simulate):
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

    def test_untrained_prediction_is_the_depth_scaled_gene_mean(self, simulate, train):
        adata = simulate(100).adata
        model = train(adata, 1, plan_kwargs={"lr": 0.0})
        hidden = np.random.default_rng(0).random(adata.shape) < 0.3
        counts = adata.X.toarray()
        mean = model.impute(sites=hidden, n_steps=1, final="mean", silent=True).toarray()
        gene_means = counts.mean(0)
        depth = (np.where(hidden, 0, counts).sum(1) + 10) / (~hidden @ gene_means + 10)
        np.testing.assert_allclose(mean[hidden], (depth[:, None] * gene_means)[hidden], rtol=1e-4)

    def test_early_stopping_stops(self, simulate, train):
        model = train(simulate(40).adata, 30, plan_kwargs={"lr": 0.0}, early_stopping_patience=2)
        assert len(losses(model)) == 3  # the first is the best, then two without improvement
        model = train(simulate(40).adata, 6, plan_kwargs={"lr": 0.0}, early_stopping_patience=2, early_stopping=False)
        assert len(losses(model)) == 6

    @pytest.mark.parametrize(
        ("head", "max_epochs", "waited"), [("nb_mixture", 30, 9), ("nb_mixture", 10, 5), ("truncated_nb", 70, 7)]
    )
    def test_it_waits_for_a_share_of_the_epochs_or_for_five(self, simulate, head, max_epochs, waited):
        model = CountsDiffImputer(simulate(40).adata, head=head, n_hidden=8, n_layers=1)
        model.train(
            max_epochs, plan_kwargs={"lr": 0.0}, check_val_every_n_epoch=1, accelerator="cpu", enable_progress_bar=False
        )
        assert len(losses(model)) == 1 + waited

    def test_same_seed_same_weights(self, simulate, train):
        first, second, other = (train(simulate(40).adata, 2, seed=seed).module.state_dict() for seed in (3, 3, 4))
        assert all(torch.equal(first[key], second[key]) for key in first)
        assert any(not torch.equal(first[key], other[key]) for key in first)

    def test_split_is_that_of_the_seed(self, simulate, train):
        models = [train(simulate(40).adata, seed=seed, train_size=0.5, validation_size=0.25) for seed in (3, 3, 4)]
        parts = [(m.train_indices, m.validation_indices, m.test_indices) for m in models]
        assert [len(part) for part in parts[0]] == [20, 10, 10]
        assert sorted(np.concatenate(parts[0])) == list(range(40))
        for first, second in zip(parts[0], parts[1], strict=True):
            np.testing.assert_array_equal(first, second)
        assert not np.array_equal(parts[0][0], parts[2][0])

    def test_validation_cells_are_not_trained_on(self, simulate, train):
        adata = simulate(40).adata
        without_factors = {"train_size": 0.5, "model_kwargs": {"n_factors": 0}}  # which are fitted to all cells
        first = train(adata, 1, **without_factors)
        other = simulate(40).adata
        rows = np.arange(40)
        rows[first.validation_indices] = first.validation_indices[::-1]  # the gene means stay
        other.X = other.X[rows]
        second = train(other, 1, **without_factors)
        weights = dict(second.module.named_parameters())
        assert all(torch.equal(value, weights[key]) for key, value in first.module.named_parameters())
        assert losses(first)[0] != losses(second)[0]

    def test_default_budget(self, simulate, train, monkeypatch):
        asked = []

        def two_epochs(n_train, batch_size):
            asked.append((n_train, batch_size))
            return 2

        monkeypatch.setattr(sccountsdiff.model.train, "default_max_epochs", two_epochs)
        assert len(losses(train(simulate(40).adata, None, batch_size=7))) == 2
        assert asked == [(36, 7)]

    def test_training_can_go_on(self, simulate, train):
        model = train(simulate(300).adata, 1)
        before = {key: value.clone() for key, value in model.module.state_dict().items()}
        modes = []

        class Watch(Callback):
            def on_train_batch_start(self, trainer, pl_module, *args):
                modes.extend(part.training for part in pl_module.module.modules())

        model.train(20, plan_kwargs={"lr": 0.01}, enable_progress_bar=False, accelerator="cpu", callbacks=[Watch()])
        assert any(not torch.equal(value, before[key]) for key, value in model.module.state_dict().items())
        assert modes and all(modes)  # dropout is on, also after the first training and after validation
        assert not model.module.training

    @pytest.mark.parametrize("n_cells", [1, 2, 3])
    def test_a_handful_of_cells(self, simulate, train, n_cells):
        adata = simulate(n_cells).adata
        model = train(adata, 2, train_size=0.5)
        assert model.impute(n_samples=1, n_steps=1, n_folds=1, silent=True).shape == adata.shape


class TestArgumentsOfTraining:
    @pytest.mark.parametrize("change", [lambda x: x.log1p(), lambda x: x * 0.5, lambda x: -x])
    def test_counts_that_were_changed_in_place_are_noticed(self, adata, change):
        model = CountsDiffImputer(adata, n_hidden=4)
        adata.X.data[:] = change(adata.X).data
        before = {key: value.clone() for key, value in model.module.state_dict().items()}
        with pytest.raises(ValueError, match=r"adata\.X holds .* entries"):
            model.train(1)
        assert not model.is_trained
        assert all((value == before[key]).all() for key, value in model.module.state_dict().items())

    def test_no_layer_is_advised_that_training_does_not_take(self, adata):
        model = CountsDiffImputer(adata, n_hidden=4)
        adata.layers["raw"], adata.X = adata.X.copy(), adata.X.log1p()
        with pytest.raises(ValueError, match=r"set adata\.X = adata\.layers\['raw'\]"):
            model.train(1)

    def test_a_train_size_of_none_is_the_default(self, adata, train):
        sizes = [len(train(adata, 1, **split).train_indices) for split in ({}, {"train_size": None})]
        assert sizes == [27, 27]

    @pytest.mark.parametrize(
        ("arguments", "error", "message"),
        [
            ({"early_stopping_patience": 0}, ValueError, "`early_stopping_patience` must be at least 1, not 0"),
            ({"early_stopping_monitor": "elbo"}, TypeError, "takes no `early_stopping_monitor`: .* validation loss"),
            ({"early_stopping_mode": "max"}, TypeError, "takes no `early_stopping_mode`: .* validation loss"),
            (
                {"datasplitter_kwargs": {"batch_size": 8}},
                TypeError,
                "takes no `batch_size`: pass `batch_size` to `train`",
            ),
            ({"datasplitter_kwargs": {"external_indexing": []}}, TypeError, "pass `train_size` and `validation_size`"),
            (
                {"datasplitter_kwargs": {"n_workers": 2}},
                TypeError,
                "takes no argument 'n_workers'; did you mean 'num_work",
            ),
            ({"shuffle_set_split": False}, TypeError, "takes no `shuffle_set_split`: .* at random"),
            ({"datamodule": None}, TypeError, "takes no `datamodule`: "),
            ({"accelerator": "mps"}, ValueError, "cannot draw binomials"),
            ({"lr": 0.01}, TypeError, r"takes no `lr`: pass `plan_kwargs=\{'lr': \.\.\.\}`"),
            ({"learning_rate": 0.01}, TypeError, r"takes no `learning_rate`: pass `plan_kwargs=\{'lr': \.\.\.\}`"),
            ({"weight_decay": 0.0}, TypeError, r"takes no `weight_decay`: pass `plan_kwargs=\{'weight_decay': "),
            ({"bath_size": 16}, TypeError, r"train\(\), .* takes no argument 'bath_size'; did you mean 'batch_size'"),
            ({"early_stoping": True}, TypeError, "takes no argument 'early_stoping'; did you mean 'early_stopping'"),
            ({"gpus": 1}, TypeError, r"train\(\), like scvi.train.Trainer, takes no argument 'gpus'"),
            (
                {"plan_kwargs": {"learning_rate": 1}},
                TypeError,
                "`plan_kwargs` takes no argument 'learning_rate'.* are lr,",
            ),
            ({"ema_decay": 5}, ValueError, r"`ema_decay` must be within \[0, 1\], not 5"),
            ({"ema_decay": "0.9"}, TypeError, "`ema_decay` must be a number, not '0.9'"),
            ({"early_stopping_patience": 2.0}, ValueError, "`early_stopping_patience` must be a whole number"),
        ],
    )
    def test_habits_from_other_models_are_answered(self, adata, arguments, error, message):
        model = CountsDiffImputer(adata, n_hidden=4)
        with pytest.raises(error, match=message):
            model.train(1, **arguments)
        assert not model.is_trained

    def test_a_patience_of_one_stops_at_the_first_epoch_without_improvement(self, adata, train):
        model = train(adata, 9, plan_kwargs={"lr": 0.0}, early_stopping_patience=1)
        assert len(model.history["validation_loss"]) == 2

    def test_double_precision_as_the_default_of_torch_is_not_in_the_way(self, adata, train):
        torch.set_default_dtype(torch.float64)
        try:
            model = train(adata, 1)
        finally:
            torch.set_default_dtype(torch.float32)
        assert np.isfinite(float(model.history["validation_loss"].iloc[0, 0]))
        assert {parameter.dtype for parameter in model.module.parameters()} == {torch.float32}

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
    def test_bad_arguments_are_named(self, query, arguments, message):
        model = CountsDiffImputer(query, n_hidden=4)
        with pytest.raises(ValueError, match=message):
            model.train(**arguments)
        assert not model.is_trained


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16", "32-true"])
def test_precision_of_training(simulate, precision):
    model = CountsDiffImputer(simulate(40).adata, n_hidden=4)
    model.train(max_epochs=1, enable_progress_bar=False, precision=precision, accelerator="cpu")
    assert model.is_trained


@pytest.mark.parametrize("precision", ["bf16-true", "64-true", 64])
def test_a_precision_that_would_change_the_weights_is_refused(trained, precision):
    weights = {key: value.dtype for key, value in trained.module.state_dict().items()}
    with pytest.raises(ValueError, match="`precision` must be one of 32"):
        trained.train(max_epochs=1, precision=precision, accelerator="cpu")
    assert trained.is_trained and {key: v.dtype for key, v in trained.module.state_dict().items()} == weights


def test_validation_by_steps(simulate):
    model = CountsDiffImputer(simulate(40).adata, n_hidden=4)
    steps = {"check_val_every_n_epoch": None, "val_check_interval": 1}
    model.train(max_epochs=2, enable_progress_bar=False, batch_size=20, **steps)
    assert model.is_trained


class TestCalibration:
    """How sure to be of a group of genes that is not seen is measured after training, however it ended."""

    @pytest.fixture
    def model(self, simulate):
        adata = simulate(40).adata
        adata.var["feature_types"] = np.where(np.arange(adata.n_vars) < 2, "a", "b")
        return CountsDiffImputer(adata, n_hidden=4)

    def train(self, model, **kwargs):
        model.train(max_epochs=3, batch_size=20, enable_progress_bar=False, accelerator="cpu", **kwargs)

    def shifts(self, model):
        return model.module.denoiser.group_depth.log_dispersion

    def test_after_an_interruption(self, model):
        class Interrupt(Callback):
            def on_train_epoch_end(self, trainer, *args):
                if trainer.current_epoch == 1:
                    os.kill(os.getpid(), signal.SIGINT)

        with pytest.raises(KeyboardInterrupt):
            self.train(model, callbacks=[Interrupt()])
        assert model.is_trained and (self.shifts(model) != 0).all()

    def test_of_a_training_that_had_finished(self, model, tmp_path):
        self.train(model, checkpoint=tmp_path)
        found = self.shifts(model).clone()
        again = CountsDiffImputer(model.adata, n_hidden=4)
        self.train(again, checkpoint=tmp_path)
        assert (found != 0).all()
        assert torch.equal(self.shifts(again), found)
