"""Construction: what is refused, what is taken, and what is said."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import scipy.sparse as sp

from sccountsdiff import CountsDiffImputer
from sccountsdiff.diffusion import Fisher, Schedule
from sccountsdiff.nn import MLP


@pytest.fixture
def adata(simulate):
    return simulate(30).adata


def setup(adata, **kwargs):
    CountsDiffImputer.setup_anndata(adata, **kwargs)


class TestConstruction:
    def test_without_set_up_the_counts_layer_is_taken_and_this_is_said(self, adata, caplog):
        with caplog.at_level(logging.INFO, logger="sccountsdiff"):
            CountsDiffImputer(adata.copy())
        assert "Setting up with adata.X." in caplog.text
        adata.layers["counts"] = adata.X * 3
        with caplog.at_level(logging.INFO, logger="sccountsdiff"):
            model = CountsDiffImputer(adata)
        assert "Setting up with adata.layers['counts']." in caplog.text
        np.testing.assert_allclose(
            model.module.denoiser.gene_means, np.maximum(3 * adata.X.toarray().mean(0), 0.5 / 30), rtol=1e-5
        )

    @pytest.mark.parametrize(
        ("arguments", "error", "message"),
        [
            ({"head": "gauss"}, KeyError, "Unknown head 'gauss'. Known: nb, poisson, softplus"),
            ({"schedule": "cosin"}, KeyError, "Unknown schedule 'cosin'; did you mean 'cosine'"),
            ({"backbone": "mlpp"}, KeyError, "Unknown backbone 'mlpp'; did you mean 'mlp'"),
            ({"p_uncond": 1.0}, ValueError, "`p_uncond` must be at least 0 and below 1, not 1.0"),
            ({"p_uncond": "0.2"}, TypeError, "`p_uncond` must be a number, not '0.2'"),
            (
                {"n_hiden": 4},
                TypeError,
                "backbone MLP takes no argument 'n_hiden'; did you mean 'n_hidden'.*dropout_rate",
            ),
            ({"n_heads": 4}, TypeError, r"backbone MLP takes no argument 'n_heads'.* Arguments are n_hidden, n_layers"),
            (
                {"layer": "raw"},
                TypeError,
                r"`layer` is .* set-up: call `CountsDiffImputer\.setup_anndata\(adata, layer=",
            ),
            ({"batch_key": "donor"}, TypeError, r"call `CountsDiffImputer\.setup_anndata\(adata, batch_key=\.\.\.\)`"),
            ({"modalities": {}}, TypeError, r"call `CountsDiffImputer\.setup_mudata\(mdata, modalities=\.\.\.\)`"),
            ({"backbone": "transformer", "n_hidden": 9}, ValueError, "`n_heads` must divide `n_hidden`"),
        ],
    )
    def test_refuses_unknown_parts(self, adata, arguments, error, message):
        with pytest.raises(error, match=message):
            CountsDiffImputer(adata, **arguments)

    def test_arguments_of_the_set_up_are_refused_before_the_counts(self, adata):
        adata.X = adata.X.log1p()
        with pytest.raises(TypeError, match="`layer` is an argument of the set-up"):
            CountsDiffImputer(adata, layer="raw")

    def test_a_backbone_may_take_any_argument(self, adata):
        class Open(MLP):
            def __init__(self, n_genes, n_outputs, **kwargs):
                self.mood = kwargs.pop("mood")
                super().__init__(n_genes, n_outputs, **kwargs)

        model = CountsDiffImputer(adata, backbone=Open, mood="good", n_hidden=4)
        assert model.module.denoiser.backbone.mood == "good" and model.module.denoiser.backbone.n_hidden == 4

    def test_a_copy_has_to_be_set_up_again_and_this_is_said(self, adata):
        setup(adata, labels_key="cell_type")
        copy = adata[:20].copy()
        message = (
            r"is a copy .* Call `CountsDiffImputer\.setup_anndata\(adata, \.\.\.\)` again, with the same arguments"
        )
        with pytest.raises(ValueError, match=message):
            CountsDiffImputer(copy)
        setup(copy, labels_key="cell_type")
        assert list(CountsDiffImputer(copy, n_hidden=4).categories) == ["cell_type"]

    def test_own_schedule_and_backbone(self, adata, train):
        class Narrow(MLP):
            pass

        class Linear(Schedule):
            def _curve(self, t):
                return 1 - t

        model = train(adata, 1, model_kwargs={"backbone": Narrow, "schedule": Linear()})
        assert isinstance(model.module.denoiser.backbone, Narrow)
        assert model.impute(n_samples=1, n_steps=2, n_folds=1, silent=True).shape == adata.shape
        other = CountsDiffImputer(adata, schedule=Fisher(n_grid=10), n_hidden=4)
        assert other.module.schedule.n_grid == 10

    def test_summary_names_what_was_chosen(self, adata):
        setup(adata, labels_key="cell_type")
        text = str(CountsDiffImputer(adata, head="poisson", n_hidden=4)._model_summary_string)
        assert all(word in text for word in ("20 genes", "mlp", "poisson", "cosine", "cell_type"))

    @pytest.mark.parametrize("fmt", [sp.csr_matrix, sp.csr_array, sp.csc_matrix, sp.csc_array])
    def test_any_format_trains_the_same(self, simulate, train, fmt):
        weights = []
        for make in (np.asarray, fmt):
            adata = simulate(30).adata
            adata.layers["counts"] = make(adata.X.toarray().astype(np.int32))
            weights.append(train(adata, 1).module.state_dict())
        assert all((weights[0][key] == weights[1][key]).all() for key in weights[0])


class TestGroups:
    def test_a_column_that_is_not_there_is_refused(self, simulate):
        with pytest.raises(KeyError, match="gene_groups: 'modalty' is not a column of adata.var"):
            CountsDiffImputer(simulate(20).adata, gene_groups="modalty")

    @pytest.mark.parametrize("column", [None, "kind"])
    def test_groups_are_hidden_in_training_and_needed_nowhere_else(self, simulate, tmp_path, column):
        adata = simulate(20).adata
        adata.var[column or "feature_types"] = np.where(np.arange(adata.n_vars) < 2, "a", "b")
        model = CountsDiffImputer(adata, gene_groups=column, n_hidden=4)
        assert model.module.group_members.tolist() == [
            (np.arange(adata.n_vars) < 2).tolist(),
            (np.arange(adata.n_vars) >= 2).tolist(),
        ]
        model.train(max_epochs=1, enable_progress_bar=False)
        model.save(tmp_path / "model")
        CountsDiffImputer.load(tmp_path / "model", adata=False)

    def test_without_groups_there_are_none(self, simulate):
        assert CountsDiffImputer(simulate(20).adata, n_hidden=4).module.group_members is None
