"""Embedding of cells: what moves a cell and what does not."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sccountsdiff import CountsDiffImputer
from sccountsdiff.nn import Backbone


def test_a_point_for_each_cell_in_the_order_asked_for(trained, query):
    latent = trained.get_latent_representation(query, silent=True)
    assert latent.shape == (query.n_obs, trained.module.denoiser.backbone.n_hidden) and np.isfinite(latent).all()
    some = trained.get_latent_representation(query, [5, 2, 5], batch_size=2, silent=True)
    np.testing.assert_allclose(some, latent[[5, 2, 5]], rtol=1e-4, atol=1e-5)


def test_changes_neither_data_nor_model(trained, query, assert_unchanged):
    before, weights = query.copy(), {k: v.clone() for k, v in trained.module.state_dict().items()}
    first = trained.get_latent_representation(query, silent=True)
    assert_unchanged(query, before)
    assert all(torch.equal(value, weights[key]) for key, value in trained.module.state_dict().items())
    np.testing.assert_array_equal(trained.get_latent_representation(query, silent=True), first)
    assert not trained.module.denoiser.backbone.decoder._forward_pre_hooks


def test_types_are_neighbours(trained, simulate):
    """Three types with profiles of their own: most of the nearest cells are of the same type, where chance is a third."""
    cells = simulate(200, seed=9).adata
    latent = trained.get_latent_representation(cells, silent=True)
    distance = ((latent[:, None] - latent[None]) ** 2).sum(-1)
    np.fill_diagonal(distance, np.inf)
    types = cells.obs["cell_type"].to_numpy()
    assert (types[distance.argmin(1)] == types).mean() > 0.7


def test_counts_in_another_layer(trained, query):
    expected = trained.get_latent_representation(query, silent=True)
    query.layers["umi"], query.X = query.X.copy(), query.X.log1p()
    with pytest.raises(ValueError, match="pass layer='umi'"):
        trained.get_latent_representation(query, silent=True)
    np.testing.assert_array_equal(trained.get_latent_representation(query, layer="umi", silent=True), expected)


class TestCovariates:
    @pytest.fixture(scope="class")
    def model(self, simulate, train):
        adata = simulate(60).adata
        CountsDiffImputer.setup_anndata(adata, labels_key="cell_type", continuous_covariate_keys=["age"])
        return train(adata, 3)

    def test_are_left_out_unless_asked_for(self, model, simulate):
        cells, others = simulate(30, seed=3).adata, simulate(30, seed=3).adata
        others.obs["cell_type"] = "unheard of"
        others.obs["age"] = 3.0
        latent = model.get_latent_representation(cells, silent=True)
        np.testing.assert_array_equal(model.get_latent_representation(others, silent=True), latent)
        told = model.get_latent_representation(cells, use_covariates=True, silent=True)
        assert (told != latent).any()
        with pytest.raises(ValueError, match="unheard of"):
            model.get_latent_representation(others, use_covariates=True, silent=True)

    def test_a_model_that_knows_no_cells_without_them(self, strict):
        with pytest.raises(ValueError, match="`use_covariates=True`, or train one with `p_uncond` above 0"):
            strict.get_latent_representation(silent=True)
        assert np.isfinite(strict.get_latent_representation(use_covariates=True, silent=True)).all()


def test_missing_entries_do_not_count(masked):
    model, nan, out = masked
    cells = model.adata.copy()
    latent = model.get_latent_representation(cells, silent=True)
    cells.X = np.where(out, 99, cells.X)
    np.testing.assert_array_equal(model.get_latent_representation(cells, silent=True), latent)


def test_models_of_other_kinds(paper, simulate, train):
    assert np.isfinite(paper.get_latent_representation(simulate(5).adata, silent=True)).all()
    tokens = train(simulate(20).adata, 1, model_kwargs={"backbone": "transformer", "n_hidden": 8, "n_heads": 2})
    assert tokens.get_latent_representation(silent=True).shape == (20, 8)


class NoDecoder(Backbone):
    def __init__(self, n_genes, n_outputs):
        super().__init__()
        self.n_hidden = 4
        self.weight = torch.nn.Parameter(torch.zeros(n_outputs, n_genes, 4))

    def forward(self, channels, tokens):
        return torch.einsum("ogh,ch->ocg", self.weight, tokens.sum(1))


def test_refusals(simulate):
    model = CountsDiffImputer(simulate(20).adata, backbone=NoDecoder)
    with pytest.raises(RuntimeError, match="not trained"):
        model.get_latent_representation()
    model.is_trained = True
    with pytest.raises(TypeError, match="The backbone NoDecoder has no last layer called `decoder`"):
        model.get_latent_representation(silent=True)
