"""What cannot be trained on is refused before anything is done, with what is wrong and where."""

from __future__ import annotations

import logging
import re

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from lightning.pytorch.callbacks import Callback

from sccountsdiff import CountsDiffImputer


@pytest.fixture
def adata(simulate):
    return simulate(30).adata


def setup(adata, **kwargs):
    CountsDiffImputer.setup_anndata(adata, **kwargs)


class TestCounts:
    def test_log_normalised_values_are_refused_and_the_counts_pointed_out(self, adata):
        adata.layers["umi"] = adata.X.copy()
        adata.X = adata.X.log1p()
        with pytest.raises(ValueError, match=r"adata\.X holds .*non-integer.*looks log-normalised.*pass layer='umi'"):
            setup(adata)
        with pytest.raises(
            ValueError, match=r"adata\.X holds .*pass layer='umi' to CountsDiffImputer\.setup_anndata\."
        ):
            CountsDiffImputer(adata)  # without set-up: the same check
        setup(adata, layer="umi")

    @pytest.mark.parametrize("fmt", [np.asarray, sp.csr_matrix, sp.csc_matrix, sp.csr_array])
    @pytest.mark.parametrize(
        ("value", "problem"), [(-2, "negative"), (np.inf, "infinite"), (1.5, "non-integer"), (1e17, "too large")]
    )
    def test_one_wrong_entry_is_named(self, adata, fmt, value, problem):
        counts = adata.X.toarray().astype(np.float64)
        counts[17, 6] = value
        adata.layers["counts"] = fmt(counts)
        with pytest.raises(
            ValueError, match=rf"adata\.layers\['counts'\] holds 1 {problem} entry.*'cell17' \(row 17\), gene 'gene6'"
        ):
            CountsDiffImputer(adata)

    @pytest.mark.parametrize(("shape", "what"), [((0, 20), "cells"), ((30, 0), "genes")])
    def test_no_cells_or_no_genes(self, adata, shape, what):
        with pytest.raises(ValueError, match=rf"adata\.X has no {what}"):
            setup(adata[: shape[0], : shape[1]].copy())

    def test_no_observed_entry_in_a_cell_or_gene(self, adata):
        counts = adata.X.toarray()
        counts[4], counts[:, 2] = np.nan, np.nan
        adata.X = counts
        with pytest.raises(ValueError, match=r"1 of 30 cells \('cell4'\) and 1 of 20 genes \('gene2'\)"):
            setup(adata)

    def test_no_observed_entry_by_mask(self, adata):
        mask = np.ones(adata.shape, dtype=bool)
        mask[:, 5] = False
        adata.layers["seen"] = mask
        with pytest.raises(ValueError, match=r"1 of 20 genes \('gene5'\)"):
            setup(adata, mask_layer="seen")

    def test_a_gene_that_was_never_found_is_fine(self, adata, train):
        adata.X = adata.X.toarray() * (np.arange(20) != 3)
        model = train(adata)
        result = model.impute(silent=True, n_steps=1, final="mean")
        assert np.isfinite(result).all()
        assert result[:, 3].mean() < 0.2

    def test_an_empty_cell_is_fine(self, adata, train):
        adata.X = adata.X.toarray() * (np.arange(30) != 3)[:, None]
        result = train(adata).impute(silent=True, n_steps=1, final="mean")
        assert np.isfinite(result).all() and (result[3] > 0).all()

    def test_missing_layers_are_named_with_those_that_exist(self, adata):
        adata.layers["counts"] = adata.X.copy()
        for argument in ("layer", "mask_layer"):
            with pytest.raises(KeyError, match=rf"\"{argument}='count' is not in adata\.layers, which has 'counts'"):
                setup(adata, **{argument: "count"})

    @pytest.mark.parametrize("argument", ["layer", "mask_layer"])
    def test_a_matrix_is_no_name_of_a_layer(self, adata, argument):
        message = f"`{argument}` must be the name of a layer or None, not ndarray: put the matrix into adata.layers"
        with pytest.raises(TypeError, match=message):
            setup(adata, **{argument: np.ones(adata.shape)})

    @pytest.mark.parametrize("value", [2, -1, np.nan])
    def test_a_mask_holds_true_and_false(self, adata, value):
        mask = np.ones(adata.shape)
        mask[3, 7] = value
        adata.layers["seen"] = mask
        with pytest.raises(ValueError, match=r"adata\.layers\['seen'\] holds .* in cell 3, gene 7"):
            setup(adata, mask_layer="seen")

    def test_names_of_genes_must_be_unique(self, adata):
        adata.var_names = ["gene0", *adata.var_names[:-1]]
        with pytest.raises(ValueError, match=re.escape("adata.var_names_make_unique()")):
            setup(adata)


class TestCovariates:
    def test_missing_keys_are_named_with_those_that_exist(self, adata):
        for argument in ("batch_key", "labels_key", "categorical_covariate_keys", "continuous_covariate_keys"):
            key = "celltype" if argument.endswith("key") else ["celltype"]
            with pytest.raises(
                KeyError, match=rf"{argument}: 'celltype' not in adata\.obs, which has 'cell_type', 'age'"
            ):
                setup(adata, **{argument: key})

    def test_missing_and_non_numeric_values(self, adata):
        adata.obs["donor"] = np.where(np.arange(30) == 2, None, "d")
        with pytest.raises(ValueError, match=r"obs\['donor'\] .* is missing in 1 of 30 cells"):
            setup(adata, categorical_covariate_keys=["donor"])
        with pytest.raises(ValueError, match=r"obs\['cell_type'\] .* is not numeric"):
            setup(adata, continuous_covariate_keys=["cell_type"])

    def test_all_kinds_together_each_once(self, adata):
        adata.obs["donor"] = (np.arange(30) % 2).astype(str)
        setup(
            adata,
            batch_key="donor",
            labels_key="cell_type",
            categorical_covariate_keys=["cell_type", "donor"],
            continuous_covariate_keys=["age"],
        )
        model = CountsDiffImputer(adata, n_hidden=4)
        assert list(model.categories) == ["donor", "cell_type"]
        assert model.categories["cell_type"].tolist() == ["B", "NK", "T"]
        assert model.continuous_keys == ["age"]
        assert model.gene_names.tolist() == adata.var_names.tolist()
        assert model.module.n_categories.tolist() == [2, 3]
        np.testing.assert_allclose(model.module.location, [adata.obs["age"].mean()], rtol=1e-5)
        np.testing.assert_allclose(model.module.scale, [adata.obs["age"].std(ddof=0)], rtol=1e-5)

    def test_a_constant_continuous_covariate_is_harmless(self, adata, train, dense):
        adata.obs["age"] = 40.0
        setup(adata, continuous_covariate_keys=["age"])
        model = train(adata)
        assert np.isfinite(dense(model.impute(silent=True, n_steps=1, final="mean"))).all()

    @pytest.mark.parametrize("values", [[0, 1], [True, False], [0.5, 1.5]])
    def test_categories_need_not_be_strings(self, adata, train, values):
        adata.obs["batch"] = np.array(values)[np.arange(30) % 2]
        setup(adata, batch_key="batch")
        model = train(adata)
        generated = model.generate(4, {"batch": values[1]}, n_steps=2, silent=True)
        assert generated.obs["batch"].tolist() == [values[1]] * 4
        model.impute(adata[:10].copy(), n_samples=1, n_steps=1, n_folds=1, silent=True)
        with pytest.raises(ValueError, match=r"\['batch'\] holds categories .*not trained on: 7"):
            model.generate(4, {"batch": 7}, silent=True)


class TestZeros:
    def test_missing_zeros_need_labels(self, adata):
        with pytest.raises(ValueError, match="`zeros='missing'` needs `labels_key`"):
            setup(adata, zeros="missing", batch_key="cell_type")

    def test_other_words_are_refused(self, adata):
        with pytest.raises(ValueError, match="`zeros` must be 'observed' or 'missing', not 'absent'"):
            setup(adata, zeros="absent")


class TestWhatIsChanged:
    @pytest.mark.parametrize("layer", [None, "counts"])
    def test_columns_are_stored_by_rows_once_the_data_passed(self, adata, caplog, layer):
        dense = adata.X.toarray()
        adata.layers["seen"] = sp.csc_matrix(np.random.default_rng(0).random(adata.shape) < 0.8)
        where = {None: "adata.X", "counts": "adata.layers['counts']"}[layer]
        if layer is None:
            adata.X = sp.csc_matrix(dense)
        else:
            adata.layers[layer] = sp.csc_matrix(dense)
        with pytest.raises(KeyError):
            setup(adata, layer=layer, mask_layer="seen", batch_key="nowhere")
        counts = adata.X if layer is None else adata.layers[layer]
        assert counts.format == adata.layers["seen"].format == "csc"  # a refusal changes nothing
        with caplog.at_level(logging.INFO, logger="sccountsdiff"):
            setup(adata, layer=layer, mask_layer="seen")
        counts = adata.X if layer is None else adata.layers[layer]
        assert counts.format == adata.layers["seen"].format == "csr"
        np.testing.assert_array_equal(counts.toarray(), dense)
        assert f"Converting {where} to CSR." in caplog.text and "adata.layers['seen'] to CSR." in caplog.text

    @pytest.mark.parametrize("data", [np.ones((3, 3)), pd.DataFrame([[1]]), "data.h5ad", False])
    def test_other_types_are_refused(self, data):
        with pytest.raises(TypeError, match=f"`adata` must be an AnnData or a MuData, not {type(data).__name__}"):
            CountsDiffImputer(data)
        with pytest.raises(TypeError, match=rf"`adata` must be an AnnData, not {type(data).__name__}\."):
            setup(data)

    def test_the_set_up_can_be_viewed(self, adata, capsys):
        setup(adata, labels_key="cell_type", continuous_covariate_keys=["age"])
        CountsDiffImputer(adata, n_hidden=4).view_anndata_setup()
        shown = capsys.readouterr().out
        assert "CountsDiffImputer" in shown and "cell_type" in shown and "age" in shown

    def test_set_up_changes_nothing_but_scvi_bookkeeping(self, adata):
        before = adata.copy()
        setup(adata, labels_key="cell_type")
        np.testing.assert_array_equal(adata.X.toarray(), before.X.toarray())
        assert {key for key in adata.uns if not key.startswith("_scvi")} == set(before.uns)
        assert {key for key in adata.obsm if not key.startswith("_scvi")} == set(before.obsm)
        pd.testing.assert_frame_equal(adata.obs[before.obs.columns], before.obs)

    @pytest.mark.parametrize("fmt", [np.asarray, sp.csr_matrix, sp.csc_matrix])
    def test_backed_data_come_with_their_own_covariates(self, simulate, train, tmp_path, fmt):
        adata = simulate(30).adata
        adata.X = fmt(adata.X.toarray())
        adata.obs["total"] = np.asarray(adata.X.sum(1)).ravel()
        adata.write_h5ad(tmp_path / "data.h5ad")
        backed = ad.read_h5ad(tmp_path / "data.h5ad", backed="r")
        setup(backed, continuous_covariate_keys=["total"])

        class Watch(Callback):
            n_seen = 0

            def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
                np.testing.assert_array_equal(batch["X"].sum(1), batch["extra_continuous_covs"][:, 0])
                self.n_seen += len(batch["X"])

        watch = Watch()
        model = train(backed, 2, train_size=0.8, batch_size=10, callbacks=[watch])
        assert watch.n_seen == 2 * 24
        np.testing.assert_allclose(
            model.module.denoiser.gene_means, np.maximum(simulate(30).adata.X.toarray().mean(0), 0.5 / 30), rtol=1e-5
        )
        backed.file.close()


class TestChangesAfterSetUp:
    """Training reads covariates as they were at the set-up; the model's other parts read them as they are."""

    @pytest.fixture
    def cells(self, adata):
        setup(adata, categorical_covariate_keys=["cell_type"], continuous_covariate_keys=["age"])
        return adata

    @staticmethod
    def swap_types(cells):
        cells.obs["cell_type"] = cells.obs["cell_type"].cat.rename_categories({"B": "T", "T": "B"})

    @staticmethod
    def forget_types(cells):
        cells.obs["cell_type"] = "all"

    @staticmethod
    def scale_age(cells):
        cells.obs["age"] *= 1000

    @staticmethod
    def drop_age(cells):
        del cells.obs["age"]

    @staticmethod
    def reverse_genes(cells):
        cells._inplace_subset_var(np.arange(cells.n_vars)[::-1])

    @staticmethod
    def drop_genes(cells):
        cells._inplace_subset_var(np.arange(10))

    @pytest.mark.parametrize(
        ("change", "named"),
        [
            (swap_types, r"obs\['cell_type'\]"),
            (forget_types, r"obs\['cell_type'\]"),
            (scale_age, r"obs\['age'\]"),
            (drop_age, r"obs\['age'\]"),
            (reverse_genes, "the genes"),
            (drop_genes, "the genes"),
        ],
    )
    def test_are_refused(self, cells, change, named):
        model = CountsDiffImputer(cells, n_hidden=8)
        change(cells)
        message = f"^{named} of adata changed after the set-up: call `CountsDiffImputer.setup_anndata` again"
        with pytest.raises(ValueError, match=message):
            model.train(1)
        with pytest.raises(ValueError, match=message):
            CountsDiffImputer(cells)

    def test_other_columns_and_fewer_cells_are_no_matter(self, cells):
        cells.obs["cluster"] = "x"
        cells._inplace_subset_obs(np.arange(20))
        CountsDiffImputer(cells, n_hidden=8)


def test_categories_without_cells_are_refused(adata):
    adata.obs["cell_type"] = adata.obs["cell_type"].cat.add_categories(["ghost"])
    with pytest.raises(ValueError, match=r"\['cell_type'\] \(labels_key\) has categories without cells: 'ghost'"):
        setup(adata, labels_key="cell_type")
    adata.obs["cell_type"] = adata.obs["cell_type"].cat.remove_unused_categories()
    setup(adata, labels_key="cell_type")


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("batch_key", 3),
        ("labels_key", ["cell_type"]),
        ("categorical_covariate_keys", [3]),
        ("categorical_covariate_keys", 3),
        ("continuous_covariate_keys", [["age"]]),
    ],
)
def test_columns_are_named_by_text(simulate, argument, value):
    adata = simulate(20).adata
    adata.obs[3] = adata.obs["cell_type"]
    with pytest.raises(TypeError, match=f"`{argument}` must be "):
        CountsDiffImputer.setup_anndata(adata, **{argument: value})


def test_views_are_refused(simulate, tmp_path):
    adata = simulate(20).adata
    with pytest.raises(ValueError, match=r"`adata` is a view of other data.*adata = adata\.copy\(\)"):
        CountsDiffImputer.setup_anndata(adata[:10])
    adata.write_h5ad(tmp_path / "cells.h5ad")
    with pytest.raises(ValueError, match=r"adata = adata\.to_memory\(\)"):
        CountsDiffImputer.setup_anndata(ad.read_h5ad(tmp_path / "cells.h5ad", backed="r")[:10])
