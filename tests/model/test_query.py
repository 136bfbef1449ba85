"""From a reference to new cells: genes and columns that they lack, and categories that are learnt."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from anndata import AnnData

from sccountsdiff import CountsDiffImputer

QUICK = {"n_samples": 1, "n_steps": 2, "seed": 0, "silent": True, "key_added": None}
N_GENES = 20


def prepare(*args, **kwargs):
    return CountsDiffImputer.prepare_query_anndata(*args, **kwargs)


class TestPrepare:
    @pytest.fixture
    def few(self, query):
        """Some of the genes in another order, and one that the model does not have."""
        names = ["gene7", "other", *(f"gene{j}" for j in range(15, 1, -1) if j != 7)]
        counts = pd.DataFrame(query.X.toarray(), columns=query.var_names).assign(other=3.0)[names]
        few = AnnData(sp.csr_matrix(counts.to_numpy()), obs=query.obs.copy(), var=pd.DataFrame({"n": 1}, index=names))
        few.obsm["X_pca"], few.uns["note"] = np.ones((50, 2)), "kept"
        return few

    @pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix, sp.csc_matrix])
    @pytest.mark.parametrize("dtype", [np.float32, np.uint16, np.int64])
    def test_genes_are_those_of_the_model_and_absent_ones_are_missing(self, trained, few, query, dense, make, dtype):
        few.X = make(few.X.toarray().astype(dtype))
        full = prepare(few, trained, inplace=False)
        assert full.var_names.tolist() == trained.gene_names.tolist()
        has = np.isin(trained.gene_names, few.var_names)
        np.testing.assert_array_equal(dense(full.X), np.where(has, query.X.toarray(), np.nan))
        assert full.X.dtype == (np.float64 if dtype is np.int64 else np.float32) and sp.issparse(full.X) == sp.issparse(
            few.X
        )
        assert full.obs.equals(few.obs) and full.uns["note"] == "kept" and "X_pca" in full.obsm
        np.testing.assert_array_equal(full.var["n"].isna(), ~has)
        assert few.n_vars == 15  # as it was

    def test_filled_in_are_the_absent_genes_alone(self, trained, few, dense):
        prepare(few, trained)  # in place
        assert few.n_vars == N_GENES
        filled, counts = dense(trained.impute(few, what="missing", **QUICK)), few.X.toarray()
        np.testing.assert_array_equal(filled[~np.isnan(counts)], counts[~np.isnan(counts)])
        assert np.isfinite(filled).all()

    def test_nothing_is_added_to_complete_data(self, trained, query, assert_unchanged):
        before = query.copy()
        query.varm["loadings"] = before.varm["loadings"] = np.ones((N_GENES, 2))
        prepare(query, trained)
        assert_unchanged(query, before)

    def test_a_folder_will_do_and_names_can_be_had(self, saved, trained, few):
        assert prepare(few, str(saved), return_reference_var_names=True).tolist() == trained.gene_names.tolist()
        assert prepare(few, saved, inplace=False).n_vars == N_GENES

    def test_covariates_that_are_absent_are_null(self, trained, few, caplog):
        complete = prepare(few, trained, inplace=False)
        del few.obs["age"]
        with caplog.at_level("INFO", "sccountsdiff"):
            prepare(few, trained)
        assert few.obs["age"].isna().all() and "Without covariates 'age'" in caplog.text
        np.testing.assert_allclose(
            trained.denoise(few, unseen_to_null=True, silent=True),
            trained.denoise(complete, guidance=0, silent=True),
            rtol=1e-5,
        )

    def test_layers_and_masks(self, masked, few, dense):
        model = masked[0]
        few.layers["seen"] = np.ones(few.shape, dtype=bool)
        few.layers["umi"], few.X = few.X, few.X.log1p()
        full = prepare(few, model, inplace=False, layer="umi")
        has = np.isin(model.gene_names, few.var_names)
        np.testing.assert_array_equal(full.layers["seen"], np.broadcast_to(has, full.shape))
        np.testing.assert_array_equal(dense(full.X), dense(full.layers["umi"]))
        assert np.isfinite(dense(model.impute(full, **QUICK))).all()

    def test_what_cannot_be_prepared(self, trained, few, simulate, tmp_path):
        with pytest.raises(TypeError, match="`reference_model` must be a CountsDiffImputer or the folder .*, not int"):
            prepare(few, 3)
        with pytest.raises(FileNotFoundError, match="No saved model in"):
            prepare(few, tmp_path)
        with pytest.raises(TypeError, match="`adata` must be an AnnData.* not ndarray"):
            prepare(few.X.toarray(), trained)
        with pytest.raises(KeyError, match="layer='umi' is not in adata.layers"):
            prepare(few, trained, layer="umi")
        few.var_names = [f"ENSG{j}" for j in range(15)]
        with pytest.raises(ValueError, match="lacks 20 of the 20 genes"):
            prepare(few, trained)


class TestUnknownCovariates:
    """Columns that are not there, and values that are missing: an error, or the null state if that is asked for."""

    def test_are_named_with_what_to_do(self, trained, query):
        query.obs["cell_type"] = query.obs["cell_type"].where(np.arange(50) != 7)
        with pytest.raises(ValueError, match=r"\['cell_type'\] is missing in 1 of 50 cells.*unseen_to_null=True"):
            trained.impute(query)
        del query.obs["age"]
        del query.obs["cell_type"]
        message = r"covariates of the model: 'cell_type' not in adata\.obs, which has none\. Pass unseen_to_null=True"
        with pytest.raises(KeyError, match=message):
            trained.impute(query)

    @pytest.mark.parametrize("key", ["cell_type", "age"])
    def test_are_the_null_state_on_request(self, trained, query, sites, key):
        mean = {"n_steps": 1, "final": "mean", "sites": sites, "silent": True, "key_added": None}
        known = trained.impute(query, **mean).toarray()
        null = trained.impute(query, guidance=0, **mean).toarray()
        some, complete = np.arange(50) % 3 == 0, query.copy()
        query.obs[key] = query.obs[key].where(~some)
        result = trained.impute(query, unseen_to_null=True, **mean).toarray()
        np.testing.assert_allclose(result, np.where(some[:, None], null, known), rtol=1e-5)
        del query.obs[key]
        np.testing.assert_allclose(trained.impute(query, unseen_to_null=True, **mean).toarray(), null, rtol=1e-5)
        for method in (trained.denoise, trained.get_normalized_expression):
            without = method(query, unseen_to_null=True, silent=True)
            np.testing.assert_allclose(without, method(complete, guidance=0, silent=True), rtol=1e-5)

    def test_a_model_that_does_not_know_the_null_state(self, strict, query):
        query.obs["age"] = query.obs["age"].where(np.arange(50) != 7)
        with pytest.raises(ValueError, match="`p_uncond=0` and has never seen"):
            strict.denoise(query, unseen_to_null=True)
        strict.denoise(query, slice(7), unseen_to_null=True, silent=True)


def with_batches(simulate, n_cells: int, batches: list[str], seed: int) -> AnnData:
    """Cells of batches that each multiply the counts of every gene by a factor of their own, by up to e in either way."""
    cells = simulate(n_cells, seed=seed)
    factors = np.exp(np.random.default_rng(7).uniform(-1, 1, (5, N_GENES)))
    rng = np.random.default_rng(seed)
    of = rng.choice([int(batch[1:]) for batch in batches], n_cells)
    cells.adata.X = sp.csr_matrix(rng.poisson(cells.rates * factors[of]).astype(np.float32))
    cells.adata.obs["batch"] = [f"b{number}" for number in of]
    return cells.adata


@pytest.fixture(scope="module")
def reference(simulate, train):
    adata = with_batches(simulate, 600, ["b0", "b1", "b2", "b3"], seed=0)
    CountsDiffImputer.setup_anndata(adata, batch_key="batch", labels_key="cell_type")
    kwargs = {"batch_size": 64, "plan_kwargs": {"lr": 5e-3}, "early_stopping": False}
    return train(adata, 60, model_kwargs={"n_hidden": 32}, **kwargs)


@pytest.fixture
def new(simulate):
    """Cells of a batch that the reference does not know, and some of one that it does."""
    return with_batches(simulate, 300, ["b2", "b4", "b4"], seed=1)


class TestLoadQuery:
    @pytest.mark.parametrize("unfrozen", [False, True])
    def test_says_the_same_of_known_categories_until_it_is_trained(self, reference, new, unfrozen, seeded):
        known = new[new.obs["batch"] == "b2"].copy()
        expected = reference.impute(known, **QUICK).toarray()
        before = {name: value.clone() for name, value in reference.module.state_dict().items()}
        model = CountsDiffImputer.load_query_data(new, reference, unfrozen=unfrozen)
        assert model.categories["batch"].tolist() == ["b0", "b1", "b2", "b3", "b4"]
        assert reference.categories["batch"].tolist() == ["b0", "b1", "b2", "b3"]
        np.testing.assert_array_equal(model.impute(known, **QUICK).toarray(), expected)
        weight = model.module.denoiser.conditioning.categorical[0].weight
        torch.testing.assert_close(weight[4], weight[:4].mean(0))
        with seeded(0):
            model.train(3, enable_progress_bar=False, accelerator="cpu", plan_kwargs={"lr": 1e-2})
        assert all(torch.equal(value, before[name]) for name, value in reference.module.state_dict().items())
        same = np.array_equal(model.impute(known, **QUICK).toarray(), expected)
        assert same == (not unfrozen)

    def test_frozen_training_moves_new_categories_only(self, reference, new, seeded):
        model = CountsDiffImputer.load_query_data(new, reference)
        with seeded(0):
            model.train(3, enable_progress_bar=False, accelerator="cpu", plan_kwargs={"lr": 1e-2}, train_size=1.0)
        assert len(model.history["train_loss"]) == 3
        old = reference.module.state_dict()
        for name, value in model.module.state_dict().items():
            if name.endswith("categorical.0.weight"):
                assert torch.equal(value[:4], old[name]) and not torch.equal(value[4], old[name].mean(0))
            elif name != "n_categories":
                assert torch.equal(value, old[name]), name

    @pytest.mark.parametrize("unfrozen", [False, True])
    def test_learns_a_new_batch(self, reference, new, simulate, unfrozen, seeded):
        """Other cells of the batch are predicted better than without covariates, which is all that the reference can do."""
        model = CountsDiffImputer.load_query_data(new, reference, unfrozen=unfrozen)
        with seeded(0):
            model.train(30, enable_progress_bar=False, accelerator="cpu", plan_kwargs={"lr": 5e-3}, batch_size=64)
        unseen = with_batches(simulate, 600, ["b4"], seed=2)
        kwargs = {"seed": 0, "silent": True}
        gain = model.log_likelihood(unseen, **kwargs) - reference.log_likelihood(unseen, unseen_to_null=True, **kwargs)
        assert gain.mean() > 4 * gain.std(ddof=1) / np.sqrt(600)

    def test_categories_may_stand_in_any_order(self, reference, new):
        """As in a column that has been made from others, with categories that no cell has."""
        new.obs["batch"] = pd.Categorical(new.obs["batch"], categories=["b4", "b3", "b2", "b1", "b0"])
        new.obs["cell_type"] = new.obs["cell_type"].cat.reorder_categories(["T", "B", "NK"])
        model = CountsDiffImputer.load_query_data(new, reference)
        codes = model.adata_manager.get_from_registry("extra_categorical_covs")
        for key in ("batch", "cell_type"):
            assert model.categories[key][codes[key]].tolist() == new.obs[key].tolist()
        assert model.categories["batch"].tolist() == ["b0", "b1", "b2", "b3", "b4"]

    def test_from_a_folder_and_saved_again(self, reference, new, tmp_path, seeded):
        reference.save(tmp_path / "reference")
        model = CountsDiffImputer.load_query_data(new, tmp_path / "reference")
        with seeded(0):
            model.train(1, enable_progress_bar=False, accelerator="cpu")
        model.save(tmp_path / "model")
        again = CountsDiffImputer.load(tmp_path / "model", adata=False, accelerator="cpu")
        assert again.categories["batch"].tolist() == model.categories["batch"].tolist()
        np.testing.assert_array_equal(again.impute(new, **QUICK).toarray(), model.impute(new, **QUICK).toarray())
        assert set(again.generate(200, {}, n_steps=1, silent=True).obs["batch"]) == {"b0", "b1", "b2", "b3", "b4"}

    def test_is_frozen_once_it_is_loaded_again(self, reference, new, tmp_path, seeded):
        CountsDiffImputer.load_query_data(new, reference).save(tmp_path / "model")
        again = CountsDiffImputer.load(tmp_path / "model", adata=new, accelerator="cpu")
        assert again.module.is_frozen
        before = again.module.denoiser.backbone.encoder.weight.clone()
        with seeded(0):
            again.train(1, enable_progress_bar=False, accelerator="cpu", plan_kwargs={"lr": 0.01})
        assert torch.equal(again.module.denoiser.backbone.encoder.weight, before)

    def test_is_not_frozen_again_once_somebody_has_unfrozen_it(self, reference, new, tmp_path):
        model = CountsDiffImputer.load_query_data(new, reference)
        model.module.requires_grad_(True)
        model.save(tmp_path / "model")
        assert not CountsDiffImputer.load(tmp_path / "model", adata=new, accelerator="cpu").module.is_frozen

    @pytest.mark.parametrize("unfrozen", [True, False])
    def test_a_training_that_does_not_begin_leaves_it_trained(self, reference, new, unfrozen, monkeypatch):
        model = CountsDiffImputer.load_query_data(new, reference, unfrozen=unfrozen)
        model.module.denoiser.log_levels.fill_(0.01)
        before = {key: value.clone() for key, value in model.module.state_dict().items()}
        monkeypatch.setattr(model, "_train_runner_cls", None)
        with pytest.raises(TypeError):
            model.train(1, enable_progress_bar=False, accelerator="cpu")
        assert model.is_trained and model.history_ is None
        assert all(torch.equal(value, before[key]) for key, value in model.module.state_dict().items())

    def test_genes_may_be_missing_in_all_cells(self, reference, new, seeded):
        few = new[:, 3:].copy()
        with pytest.raises(ValueError, match="other genes than the model.*prepare_query_anndata"):
            CountsDiffImputer.load_query_data(few, reference)
        prepare(few, reference)
        model = CountsDiffImputer.load_query_data(few, reference, unfrozen=True)
        with seeded(0):
            model.train(1, enable_progress_bar=False, accelerator="cpu")
        assert np.isfinite(model.impute(**QUICK).toarray()).all()

    def test_labels_of_which_zeros_are_missing(self, simulate, train):
        adata = simulate(90).adata
        is_new = (adata.obs["cell_type"] == "T").to_numpy()
        old, new = adata[~is_new].copy(), adata[is_new].copy()
        for part in (old, new):
            part.obs["cell_type"] = part.obs["cell_type"].astype(str)
        new.X = new.X.toarray() * (np.arange(N_GENES) != 4)
        CountsDiffImputer.setup_anndata(old, labels_key="cell_type", zeros="missing")
        reference = train(old)
        model = CountsDiffImputer.load_query_data(new, reference)
        expressed = model.module.expressed.numpy()
        np.testing.assert_array_equal(expressed[:2], reference.module.expressed.numpy())
        np.testing.assert_array_equal(expressed[2], (new.X > 0).any(0))

    def test_what_there_is_nothing_to_learn_from(self, reference, simulate, query):
        known = with_batches(simulate, 50, ["b1"], seed=3)
        with pytest.raises(ValueError, match="all known to the model.*`unfrozen=True`"):
            CountsDiffImputer.load_query_data(known, reference)
        CountsDiffImputer.load_query_data(known, reference, unfrozen=True)
        with pytest.raises(TypeError, match="`adata` must be an AnnData, not ndarray"):
            CountsDiffImputer.load_query_data(known.X.toarray(), reference)
        with pytest.raises(KeyError, match="batch_key: 'batch' not in adata.obs"):
            CountsDiffImputer.load_query_data(query, reference)
        untrained = CountsDiffImputer(query, n_hidden=4, n_layers=1)
        with pytest.raises(RuntimeError, match="not trained yet"):
            CountsDiffImputer.load_query_data(known, untrained)
