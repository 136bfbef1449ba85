"""One modality of a MuData holds the counts; its own layers receive the result."""

from __future__ import annotations

import anndata as ad
import mudata
import numpy as np
import pandas as pd
import pytest

from sccountsdiff import CountsDiffImputer

QUICK = {"n_samples": 2, "n_steps": 2, "seed": 0, "silent": True}


@pytest.fixture
def make(simulate):
    """Return a function that makes a MuData of counts ("rna") and something else ("prot"), with a donor in its obs."""

    def _make(n_cells=40, seed=0):
        rna = simulate(n_cells, seed).adata
        rna.layers["umi"] = rna.X.copy()
        rna.X = rna.X.log1p()
        other = ad.AnnData(
            np.ones((n_cells, 3)), obs=pd.DataFrame(index=rna.obs_names), var=pd.DataFrame(index=["p0", "p1", "p2"])
        )
        mdata = mudata.MuData({"prot": other, "rna": rna})
        mdata.obs["donor"] = np.array(["d1", "d2"])[np.arange(n_cells) % 2]
        return mdata

    return _make


@pytest.fixture
def mdata(make):
    return make()


def setup(mdata, **kwargs):
    CountsDiffImputer.setup_mudata(mdata, layer="umi", modalities={"layer": "rna"}, **kwargs)


def test_result_goes_to_the_modality(mdata, train):
    setup(mdata)
    before = mdata.copy()
    model = train(mdata, 2)
    result = model.impute(**QUICK)
    assert mdata["rna"].layers["imputed"] is result
    assert set(mdata["rna"].layers) - {None} == {"umi", "imputed", "imputed_sd"}
    assert set(mdata["rna"].uns["sccountsdiff"]) == {"imputed"}
    counts = mdata["rna"].layers["umi"].toarray()
    np.testing.assert_array_equal(result[counts > 0], counts[counts > 0])
    np.testing.assert_array_equal(counts, before["rna"].layers["umi"].toarray())
    assert not mdata["prot"].layers and "sccountsdiff" not in mdata["prot"].uns
    np.testing.assert_array_equal(mdata["prot"].X, before["prot"].X)


def test_is_the_same_as_the_modality_alone(mdata, train, dense):
    setup(mdata)
    rna = mdata["rna"].copy()
    CountsDiffImputer.setup_anndata(rna, layer="umi")
    expected = dense(train(rna, 2).impute(**QUICK))
    np.testing.assert_array_equal(dense(train(mdata, 2).impute(**QUICK)), expected)


def test_covariates_of_the_whole_and_of_modalities(mdata, train, dense):
    CountsDiffImputer.setup_mudata(
        mdata,
        layer="umi",
        batch_key="donor",
        continuous_covariate_keys=["age"],
        modalities={"layer": "rna", "continuous_covariate_keys": "rna"},
    )
    model = train(mdata, 1)
    assert list(model.categories) == ["donor"] and model.continuous_keys == ["age"]
    np.testing.assert_allclose(model.module.location, [mdata["rna"].obs["age"].mean()], atol=1e-6)
    before = dense(model.impute(n_steps=1, final="mean", silent=True))
    assert model.generate(2, {"donor": "d1", "age": 0.0}, n_steps=1, silent=True).shape == (2, 20)
    assert model.get_normalized_expression(silent=True, n_folds=1).index.equals(mdata.obs_names)
    mdata["rna"].obs["age"] += 5
    assert (dense(model.impute(n_steps=1, final="mean", silent=True)) != before).any()


def test_mask_and_labels_of_a_modality(mdata, train, dense):
    mdata["rna"].layers["seen"] = np.random.default_rng(0).random((40, 20)) < 0.8
    CountsDiffImputer.setup_mudata(
        mdata,
        layer="umi",
        labels_key="cell_type",
        mask_layer="seen",
        zeros="missing",
        modalities={"layer": "rna", "categorical_covariate_keys": "rna"},
    )
    model = train(mdata, 1)
    counts, seen = mdata["rna"].layers["umi"].toarray(), mdata["rna"].layers["seen"]
    types = mdata["rna"].obs["cell_type"].cat.codes.to_numpy()
    expressed = np.stack([((counts > 0) & seen)[types == k].any(0) for k in range(3)])[types]
    result = dense(model.impute(n_steps=1, final="mean", silent=True))
    np.testing.assert_array_equal(result != counts, ~seen | ((counts == 0) & expressed))


def test_query_saving_and_loading(mdata, make, train, tmp_path, dense):
    setup(mdata, categorical_covariate_keys=["donor"])
    model = train(mdata, 1)
    model.save(tmp_path / "model")
    query = make(20, seed=4)
    expected = dense(model.impute(query, **QUICK))
    assert "imputed" in query["rna"].layers
    for adata in (False, make(20, seed=4)):
        again = CountsDiffImputer.load(tmp_path / "model", adata=adata, accelerator="cpu")
        np.testing.assert_array_equal(dense(again.impute(query, **QUICK)), expected)
    with pytest.raises(TypeError, match="The model was set up with MuData, but `adata` is AnnData"):
        model.impute(query["rna"])


class TestRefusals:
    def test_not_set_up(self, mdata):
        with pytest.raises(ValueError, match=r"Set up the MuData with `CountsDiffImputer\.setup_mudata` first"):
            CountsDiffImputer(mdata)
        setup(mdata)
        with pytest.raises(ValueError, match=r"is a copy .* Call `CountsDiffImputer\.setup_mudata\(adata, "):
            CountsDiffImputer(mdata.copy())

    @pytest.mark.parametrize(
        ("modalities", "error", "message"),
        [
            (None, KeyError, r"modalities\['layer'\] must be one of prot, rna, not None"),
            ({"layer": "atac"}, KeyError, r"modalities\['layer'\] must be one of prot, rna, not 'atac'"),
            ({"layer": "rna", "categorical_covariate_keys": "x"}, KeyError, "must be one of prot, rna, not 'x'"),
            ({"layer": "rna", "mask": "rna"}, ValueError, "`modalities` may name layer, .* not mask"),
        ],
    )
    def test_unknown_modalities_are_named(self, mdata, modalities, error, message):
        with pytest.raises(error, match=message):
            CountsDiffImputer.setup_mudata(mdata, layer="umi", modalities=modalities)

    def test_other_kinds_of_data(self, mdata):
        with pytest.raises(TypeError, match="`adata` must be an AnnData, not MuData: use `setup_mudata`"):
            CountsDiffImputer.setup_anndata(mdata)
        with pytest.raises(TypeError, match="`mdata` must be a MuData, not AnnData: use `setup_anndata`"):
            CountsDiffImputer.setup_mudata(mdata["rna"], modalities={"layer": "rna"})
        with pytest.raises(TypeError, match=r"`mdata` must be a MuData, not ndarray\."):
            CountsDiffImputer.setup_mudata(np.ones((3, 3)))

    def test_no_counts(self, mdata):
        with pytest.raises(
            ValueError, match=r"looks log-normalised.*pass layer='umi' to CountsDiffImputer\.setup_mudata"
        ):
            CountsDiffImputer.setup_mudata(mdata, modalities={"layer": "rna"})

    def test_keys_that_are_not_there(self, mdata):
        with pytest.raises(KeyError, match="labels_key: 'cell_type' not in adata.obs, which has .*'donor'"):
            setup(mdata, labels_key="cell_type")

    def test_cells_that_differ_between_modalities(self, mdata):
        part = mudata.MuData({"rna": mdata["rna"][:30].copy(), "prot": mdata["prot"].copy()})
        with pytest.raises(ValueError, match="Modality 'rna' does not have the cells of the MuData"):
            setup(part)

    def test_cells_that_differ_between_modalities_of_covariates(self, mdata):
        part = mudata.MuData({"rna": mdata["rna"].copy(), "prot": mdata["prot"][::-1].copy()})
        part["prot"].obs["donor"] = "d1"
        of_prot = {"layer": "rna", "categorical_covariate_keys": "prot"}
        with pytest.raises(ValueError, match="Modality 'prot' does not have the cells of the MuData"):
            CountsDiffImputer.setup_mudata(part, layer="umi", batch_key="donor", modalities=of_prot)

    def test_queries_are_checked_like_the_data_of_the_model(self, mdata, make, train):
        """Covariates of the whole would go to other cells of the modality."""
        setup(mdata, categorical_covariate_keys=["donor"])
        model = train(mdata)
        query = make(20, seed=4)
        for rna in (query["rna"][5:].copy(), query["rna"][::-1].copy()):
            part = mudata.MuData({"prot": query["prot"].copy(), "rna": rna})
            part.obs["donor"] = "d1"
            for method in (model.impute, model.denoise, model.get_normalized_expression, model.log_likelihood):
                with pytest.raises(ValueError, match="Modality 'rna' does not have the cells of the MuData"):
                    method(part, silent=True)
        with pytest.raises(KeyError, match=r"modalities\['layer'\] must be one of prot, not 'rna'"):
            model.impute(mudata.MuData({"prot": query["prot"].copy()}))


def test_new_cells_may_lack_genes_and_bring_a_donor(make, train):
    reference = make()
    setup(reference, batch_key="donor")
    model = train(reference)
    new = make(20, seed=4)
    few = mudata.MuData({"prot": new["prot"].copy(), "rna": new["rna"][:, 5:].copy()})
    assert model.denoise(few, unseen_to_null=True, silent=True).shape == (20, 20)
    assert model.impute(few, unseen_to_null=True, **QUICK).shape == (20, 15)
    new.obs["donor"] = "d3"
    tuned = CountsDiffImputer.load_query_data(new, model)
    tuned.train(1, enable_progress_bar=False, accelerator="cpu")
    assert tuned.categories["donor"].tolist() == ["d1", "d2", "d3"]
    with pytest.raises(TypeError, match="`adata` must be an AnnData.* set up with MuData"):
        CountsDiffImputer.prepare_query_anndata(new["rna"], model)


def test_a_modality_in_a_file_needs_all_of_the_data_there(make, tmp_path):
    """Batches of such data would be read in an order that files cannot be read in."""
    cells = make()["rna"]
    cells.X = cells.layers["umi"]
    cells.write_h5ad(tmp_path / "rna.h5ad")
    mdata = mudata.MuData({"rna": ad.read_h5ad(tmp_path / "rna.h5ad", backed="r")})
    with pytest.raises(ValueError, match="Modality 'rna' is in a file, but `mdata` is not"):
        CountsDiffImputer.setup_mudata(mdata, modalities={"layer": "rna"})
