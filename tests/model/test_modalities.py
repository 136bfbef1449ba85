"""Counts of several modalities in one model: each has its own features and depth, and may be missing whole."""

from __future__ import annotations

import anndata as ad
import mudata
import numpy as np
import pandas as pd
import pytest
import torch

from sccountsdiff import CountsDiffImputer

BOTH = {"layer": ["rna", "prot"]}
QUICK = {"n_samples": 2, "n_steps": 2, "seed": 0, "silent": True}


@pytest.fixture
def pair(make_pair):
    return make_pair()


@pytest.fixture
def make_pair(simulate):
    """Return a function that makes RNA of all cells and proteins of some, in another order; totals go together."""

    def _make(n_cells=60, seed=0, n_with=40, same_names=False):
        rng = np.random.default_rng(seed)
        rna = simulate(n_cells, seed).adata
        size = np.asarray(rna.X.sum(1)).ravel() / rna.X.sum() * n_cells
        prot = ad.AnnData(
            rng.poisson(size[:, None] * np.array([40.0, 5.0, 90.0])).astype(np.float32),
            obs=pd.DataFrame(index=rna.obs_names),
            var=pd.DataFrame(index=[rna.var_names[0], "p1", "p2"] if same_names else ["p0", "p1", "p2"]),
        )
        mdata = mudata.MuData({"rna": rna, "prot": prot[rng.permutation(n_cells)[:n_with]].copy()})
        mdata.obs["donor"] = np.array(["d1", "d2"])[np.arange(n_cells) % 2]
        return mdata

    return _make


class TestSeveralModalities:
    @pytest.mark.parametrize("layer", ["X", {"rna": "X", "prot": "X"}])
    def test_x_may_be_named_as_messages_advise(self, pair, layer):
        for part in pair.mod.values():
            part.layers["log"] = np.log1p(part.X)
        with pytest.raises(ValueError, match="pass layer='X' to"):
            CountsDiffImputer.setup_mudata(pair, layer="log", modalities=BOTH)
        CountsDiffImputer.setup_mudata(pair, layer=layer, modalities=BOTH)
        assert CountsDiffImputer(pair, n_hidden=4).module.n_genes == 23

    def test_results_of_each_go_to_each(self, pair, train, dense):
        CountsDiffImputer.setup_mudata(pair, modalities=BOTH, batch_key="donor")
        before = pair.copy()
        model = train(pair, 2)
        result = dense(model.impute(**QUICK, quantiles=0.5))
        assert result.shape == (60, 23) and list(model.gene_names[-4:]) == ["gene19", "p0", "p1", "p2"]
        assert np.isfinite(result).all()
        names = {"imputed", "imputed_sd", "imputed_q0.5"}
        rows = pair.obs_names.get_indexer(pair["prot"].obs_names)
        for name, columns, of_cells in (("rna", slice(20), slice(None)), ("prot", slice(20, None), rows)):
            assert set(pair[name].layers) - {None} == names and set(pair[name].uns["sccountsdiff"]) == {"imputed"}
            np.testing.assert_array_equal(dense(pair[name].layers["imputed"]), result[of_cells, columns])
            np.testing.assert_array_equal(dense(pair[name].X), dense(before[name].X))
        # Nothing of cells that have the modality was missing, so it comes back as it is; the others are to be found too.
        np.testing.assert_array_equal(result[rows, 20:], pair["prot"].X)
        np.testing.assert_array_equal(dense(pair.obsm["imputed_prot"]), result[:, 20:])
        others = np.setdiff1d(np.arange(60), rows)
        assert (dense(pair.obsm["imputed_sd_prot"])[others].mean(1) > 0).all()
        assert {key for key in pair.obsm if "imputed" in key} == {f"{name}_prot" for name in names}

    def test_results_of_an_earlier_call_go(self, pair, train):
        CountsDiffImputer.setup_mudata(pair, modalities=BOTH)
        model = train(pair, 1)
        model.impute(**QUICK)
        model.impute(n_steps=1, final="mean", silent=True)
        assert {key for key in pair.obsm if "imputed" in key} == {"imputed_prot", "imputed_sd_prot"}
        assert set(pair["prot"].layers) - {None} == {"imputed", "imputed_sd"}
        before = set(pair.obsm)
        model.impute(indices=[3, 1], **QUICK)
        model.impute(**QUICK | {"key_added": None})
        assert set(pair.obsm) == before

    def test_each_has_a_depth_of_its_own(self, make_pair, train, dense):
        """A deep cell with twice the proteins looks, in its RNA, as before."""
        mdata = make_pair(n_with=60)
        CountsDiffImputer.setup_mudata(mdata, modalities=BOTH)
        model = train(mdata, 1)
        denoiser = model.module.denoiser
        x = torch.from_numpy(np.asarray(mdata["rna"].X.todense()))
        x = 100 * torch.cat([x, torch.from_numpy(mdata["prot"].to_df().loc[mdata.obs_names].to_numpy())], dim=1)
        deeper = torch.cat([x[:, :20], 2 * x[:, 20:]], dim=1)
        ones, nothing = torch.ones_like(x), torch.zeros_like(x)
        shallow, deep = (denoiser._depth(c, nothing, denoiser._expected(ones))[0] for c in (x, deeper))
        np.testing.assert_allclose((deep - shallow)[:, 20:], np.log(2), atol=0.05)
        np.testing.assert_allclose((deep - shallow)[:, :20], 0, atol=0.05)
        assert model.module.group_members.sum(1).tolist() == [20, 3]

    def test_cells_that_lack_a_modality_are_trained_on_as_missing(self, pair, train):
        CountsDiffImputer.setup_mudata(pair, modalities=BOTH)
        model = train(pair, 1)
        batch = next(iter(model._make_data_loader(pair, indices=np.arange(60), batch_size=60)))
        read = model.module.read(batch)
        has_prot = pair.obs_names.isin(pair["prot"].obs_names)
        np.testing.assert_array_equal(read["missing"][:, 20:].all(1), ~has_prot)
        np.testing.assert_array_equal(read["missing"][:, 20:].any(1), ~has_prot)
        assert not read["missing"][:, :20].any()
        # Nothing that they do not have has a say: means are those of the cells that have it.
        np.testing.assert_allclose(model.module.denoiser.gene_means[20:], pair["prot"].X.mean(0), rtol=1e-4)

    def test_totals_of_proteins_follow_those_of_rna(self, make_pair, train, dense):
        """Depths go together, so proteins of large cells are predicted to be many, where none of them is seen."""
        mdata = make_pair(300, n_with=200)
        CountsDiffImputer.setup_mudata(mdata, modalities=BOTH)
        model = train(mdata, 30)
        query = make_pair(200, seed=5, n_with=200)
        truth = query["prot"].to_df().loc[query.obs_names].sum(1)
        alone = mudata.MuData({"rna": query["rna"].copy()})
        predicted = dense(model.impute(alone, n_steps=1, final="mean", silent=True))[:, 20:].sum(1)
        assert np.corrcoef(truth, predicted)[0, 1] > 0.6
        assert 0.85 < predicted.sum() / truth.sum() < 1.15
        assert set(alone.mod) == {"rna"} and alone.obsm["imputed_prot"].shape == (200, 3)

    @pytest.mark.parametrize("same_names", [False, True])
    def test_saving_loading_and_queries(self, make_pair, train, tmp_path, dense, same_names):
        mdata = make_pair(same_names=same_names)
        CountsDiffImputer.setup_mudata(mdata, modalities=BOTH, categorical_covariate_keys=["donor"])
        model = train(mdata, 1)
        assert (model.gene_names[-3] == "prot:gene0") == same_names
        model.save(tmp_path / "model")
        query = make_pair(20, seed=4, n_with=12, same_names=same_names)
        expected = dense(model.impute(query, **QUICK))
        for adata in (False, make_pair(20, seed=7, n_with=20, same_names=same_names)):
            again = CountsDiffImputer.load(tmp_path / "model", adata=adata, accelerator="cpu")
            np.testing.assert_array_equal(dense(again.impute(query, **QUICK)), expected)
        # Features in another order, and further ones, are found by name.
        more = make_pair(20, seed=4, n_with=12, same_names=same_names)
        turned = more["prot"][:, ::-1].copy()
        turned = ad.concat([turned, ad.AnnData(np.ones((12, 1)), turned.obs, pd.DataFrame(index=["p9"]))], axis=1)
        other = mudata.MuData({"rna": more["rna"].copy(), "prot": turned})
        other.obs["donor"] = query.obs["donor"]
        found = dense(model.impute(other, **QUICK))
        np.testing.assert_array_equal(found[:, [*range(20), 22, 21, 20]], expected)

    def test_other_methods_take_them_too(self, pair, train):
        CountsDiffImputer.setup_mudata(pair, modalities=BOTH, categorical_covariate_keys=["donor"])
        model = train(pair, 1)
        assert model.denoise(silent=True).shape == (60, 23)
        assert np.isfinite(model.log_likelihood(n_times=4, silent=True)).all()
        assert model.generate(3, {"donor": "d1"}, n_steps=2, silent=True).shape == (3, 23)
        assert model.denoise(final="log_mean", silent=True).shape == (60, 23)
        expression = model.get_normalized_expression(n_folds=2, library_size=100, silent=True)
        assert list(expression.columns[-3:]) == ["p0", "p1", "p2"]
        for part in (expression.iloc[:, :20], expression.iloc[:, 20:]):  # each modality is scaled by itself
            np.testing.assert_allclose(part.sum(1), 100, rtol=1e-6)
        assert model.get_latent_representation(silent=True).shape[0] == 60
        assert model.posterior_predictive_sample(n_folds=2, n_steps=2, silent=True).shape == (60, 23)

    def test_layers_and_masks_by_modality(self, pair, train, dense):
        pair["rna"].layers["umi"] = pair["rna"].X.copy()
        pair["rna"].X = pair["rna"].X.log1p()
        pair["prot"].layers["seen"] = np.random.default_rng(0).random((40, 3)) < 0.7
        CountsDiffImputer.setup_mudata(pair, layer={"rna": "umi"}, mask_layer={"prot": "seen"}, modalities=BOTH)
        model = train(pair, 1)
        result = dense(model.impute(n_steps=1, final="mean", silent=True))
        rows = pair.obs_names.get_indexer(pair["prot"].obs_names)
        np.testing.assert_array_equal(result[:, :20], dense(pair["rna"].layers["umi"]))
        np.testing.assert_array_equal(result[rows, 20:] == pair["prot"].X, pair["prot"].layers["seen"])
        with pytest.raises(ValueError, match=r"would overwrite adata\.layers\['umi'\], which holds the counts"):
            model.impute(key_added="umi", **QUICK)

    def test_changed_counts_are_noticed(self, pair, train):
        CountsDiffImputer.setup_mudata(pair, modalities=BOTH)
        model = train(pair, 1)
        pair["prot"].X = np.log1p(pair["prot"].X)
        with pytest.raises(ValueError, match="non-integer"):
            model.impute(**QUICK)

    @pytest.mark.parametrize(
        ("arguments", "error", "message"),
        [
            ({"modalities": {"layer": ["rna", "atac"]}}, KeyError, "must be one of rna, prot, not 'atac'"),
            (
                {"modalities": {"layer": []}},
                ValueError,
                r"modalities\['layer'\] must name each modality .* once, not \[\]",
            ),
            ({"modalities": {"layer": ["rna", "rna"]}}, ValueError, "must name each modality with counts once"),
            ({"modalities": BOTH, "layer": "umi"}, KeyError, "Modality 'rna': layer='umi' is not in adata.layers"),
            (
                {"modalities": BOTH, "layer": {"adt": "umi"}},
                KeyError,
                "`layer` names 'adt', but counts are in rna, prot",
            ),
            (
                {"modalities": BOTH, "layer": {"prot": 3}},
                TypeError,
                "Modality 'prot': `layer` must be the name of a layer",
            ),
            (
                {"modalities": {"layer": "rna"}, "layer": {"rna": None}},
                TypeError,
                "`layer` must be the name of a layer",
            ),
        ],
    )
    def test_bad_arguments_are_named(self, pair, arguments, error, message):
        with pytest.raises(error, match=message):
            CountsDiffImputer.setup_mudata(pair, **arguments)

    def test_what_is_no_count_is_named_by_its_modality(self, pair):
        pair["prot"].X += 0.5
        with pytest.raises(ValueError, match=r"Modality 'prot': adata\.X holds 120 non-integer entries"):
            CountsDiffImputer.setup_mudata(pair, modalities=BOTH)

    def test_cells_and_groups_that_cannot_be(self, pair, make_pair, train):
        with pytest.raises(ValueError, match="no observed entry.*20 of 60 cells"):
            CountsDiffImputer.setup_mudata(pair, modalities={"layer": ["prot"]})
        CountsDiffImputer.setup_mudata(pair, modalities=BOTH)
        with pytest.raises(ValueError, match="`gene_groups` cannot be other than the modalities"):
            CountsDiffImputer(pair, gene_groups=["a"] * 10 + ["b"] * 13)
        model = train(pair, 1)
        with pytest.raises(KeyError, match=r"modalities\['layer'\] must be one of atac, not 'rna'"):
            model.impute(mudata.MuData({"atac": make_pair()["prot"].copy()}))


class TestQueriesAndViews:
    @pytest.fixture
    def model(self, pair, train):
        CountsDiffImputer.setup_mudata(pair, modalities=BOTH)
        return train(pair, 1)

    def test_a_gene_with_the_name_of_a_protein_is_none(self, model, make_pair, dense):
        """Whether the query has that protein or not; genes that the model does not know are left alone."""
        for without in ([], ["p1"]):
            query = make_pair(30, seed=1, n_with=30)
            plain = query.copy()
            plain.mod["prot"] = plain["prot"][:, ~plain["prot"].var_names.isin(without)].copy()
            other = ad.AnnData(
                np.full((30, 1), 777.0, np.float32), obs=query["rna"].obs, var=pd.DataFrame(index=["p1"])
            )
            rna = ad.concat([query["rna"], other], axis=1, merge="first")
            found, expected = (
                model.get_normalized_expression(mudata.MuData({"rna": of_rna, "prot": plain["prot"]}), silent=True)
                for of_rna in (rna, query["rna"])
            )
            np.testing.assert_array_equal(found, expected)

    def test_a_view_gets_all_results(self, model, pair):
        view = pair[:20]
        model.impute(view, **QUICK)
        assert all("imputed" in view[name].layers for name in BOTH["layer"])

    @pytest.mark.parametrize("place", ["layer", "obsm"])
    def test_what_is_the_users_is_not_replaced(self, model, pair, place):
        if place == "layer":
            pair["rna"].layers["imputed"] = pair["rna"].X.copy()
        else:
            pair.obsm["imputed_prot"] = np.ones((60, 3))
        with pytest.raises(ValueError, match=r"would overwrite .*'imputed"):
            model.impute(**QUICK)

    def test_counts_may_be_in_another_place(self, pair, train, make_pair):
        for part in pair.mod.values():
            part.layers["counts"] = part.X.copy()
        CountsDiffImputer.setup_mudata(pair, modalities=BOTH, layer="counts")
        model, query = train(pair, 1), make_pair(20, seed=2)
        options = {"layer": "X", "silent": True}
        assert model.denoise(query, **options).shape == (20, 23)
        assert model.get_normalized_expression(query, **options).shape == (20, 23)
        assert model.log_likelihood(query, n_times=2, **options).shape == (20,)
        assert model.posterior_predictive_sample(query, n_folds=2, n_steps=2, **options).shape == (20, 23)

    def test_the_note_of_each_says_where_its_own_counts_are(self, pair, train):
        pair["rna"].layers["umi"] = pair["rna"].X.copy()
        CountsDiffImputer.setup_mudata(pair, modalities=BOTH, layer={"rna": "umi", "prot": None})
        train(pair, 1).impute(**QUICK)
        notes = [pair[name].uns["sccountsdiff"]["imputed"] for name in BOTH["layer"]]
        assert [note.get("layer") for note in notes] == ["umi", None]


def test_genes_in_any_form_and_no_spread_of_one_draw(trained, query, dense):
    names = query.var_names[:3]
    options = {"what": "zeros", "key_added": None, "silent": True, "seed": 0}
    found = [trained.impute(query, genes=genes, **options) for genes in (list(names), names, (name for name in names))]
    for other in found[1:]:
        np.testing.assert_array_equal(dense(found[0]), dense(other))
    trained.impute(query, n_samples=3, n_steps=1, final="mean", return_mean=False, seed=0, silent=True)
    assert "imputed" in query.layers and "imputed_sd" not in query.layers
