import numpy as np
import pytest

from sccountsdiff.benchmark.paper import atlases
from sccountsdiff.benchmark.paper.atlases import FETUS, HEART, load_fetus, load_heart
from sccountsdiff.benchmark.preprocessing import filter_genes, top_genes

HEART_COLUMNS = {"age": "age_group"}


def test_counts_are_found_in_raw(cells, fetus_file):
    data = load_fetus(fetus_file)
    np.testing.assert_array_equal(data.adata.X.toarray(), cells.X.toarray())
    assert data.adata.var_names.equals(cells.var_names)
    assert data.adata.obs_names.equals(cells.obs_names)
    assert (data.name, data.label) == ("fetus", "cell_type")


def test_counts_are_found_in_a_layer(cells, tmp_path):
    adata = cells.copy()
    adata.layers["counts"] = cells.X.toarray()  # dense matrices are read as well
    adata.X = adata.X.log1p()
    adata.write_h5ad(tmp_path / "fetus.h5ad")
    np.testing.assert_array_equal(load_fetus(tmp_path / "fetus.h5ad").adata.X.toarray(), cells.X.toarray())


def test_no_counts_anywhere(cells, tmp_path):
    adata = cells.copy()
    adata.X = adata.X.log1p()
    adata.write_h5ad(tmp_path / "fetus.h5ad")
    with pytest.raises(ValueError, match=r"raw counts in one of X, layers/counts, raw/X.*cellxgene"):
        load_fetus(tmp_path / "fetus.h5ad")


def test_covariates_have_the_paper_s_names_and_are_categories(cells, fetus_file):
    data = load_fetus(fetus_file)
    assert data.covariates == FETUS.covariates
    assert data.adata.obs["batch"].tolist() == cells.obs["Batch"].astype(str).tolist()
    assert data.adata.obs["development_day"].tolist() == cells.obs["Development_day"].astype(str).tolist()


def test_columns_can_be_named_or_left_out(cells, heart_file):
    data = load_heart(heart_file, columns={**HEART_COLUMNS, "batch": None})
    assert data.covariates == ("cell_type", "gender", "age")
    missing = cells.obs["age_group"].isna().to_numpy()
    assert missing.any() and set(data.adata.obs["age"][missing]) == {"unknown"}
    assert set(data.adata.obs["age"][~missing]) == {"40-45"}


def test_a_missing_column_is_named_with_what_to_do(heart_file):
    with pytest.raises(KeyError, match=r"\['age'\] in obs; found \['cell_type'.*columns=\{'age'.*heartcellatlas"):
        load_heart(heart_file)
    with pytest.raises(KeyError, match="nonsense"):
        load_heart(heart_file, columns={"nonsense": "sex"})
    with pytest.raises(ValueError, match="cannot be left out"):
        load_heart(heart_file, columns={"cell_type": None})


def test_gene_symbols(fetus_file):
    names = load_fetus(fetus_file, gene_column="feature_name").adata.var_names
    assert names[:2].tolist() == ["G0", "G1"] and names.is_unique
    with pytest.raises(KeyError, match="gene_column='symbol'"):
        load_fetus(fetus_file, gene_column="symbol")


@pytest.mark.parametrize("share", [0.25, 1e-6])
def test_a_share_is_whole_cells_of_the_file(cells, fetus_file, monkeypatch, share):
    monkeypatch.setattr(atlases, "FEWEST_CELLS", 10)
    data = load_fetus(fetus_file, share=share).adata
    assert data.n_obs == (30 if share == 0.25 else 10)
    same = cells[data.obs_names]
    np.testing.assert_array_equal(data.X.toarray(), same.X.toarray())
    assert data.obs["sex"].tolist() == same.obs["sex"].tolist()


def test_atlases_are_those_of_the_paper():
    assert (FETUS.n_genes, FETUS.n_steps, FETUS.n_hidden, FETUS.n_heads) == (1000, 100_000, 64, 4)
    assert (HEART.n_genes, HEART.n_steps, HEART.n_hidden, HEART.n_heads) == (500, 50_000, 128, 8)


def test_the_genes_of_a_recipe_are_read_in_chunks(cells, fetus_file, tmp_path):
    whole = load_fetus(fetus_file).adata
    data = load_fetus(fetus_file, n_genes=10, common_share=0.5, cache=tmp_path / "counts").adata
    expected = top_genes(filter_genes(whole, 60), 10)
    assert data.var_names.equals(expected.var_names) and data.obs.equals(whole.obs)
    np.testing.assert_array_equal(data.X.toarray(), expected.X.toarray())
    assert (tmp_path / "counts" / "data.npy").exists()
    part = load_fetus(fetus_file, n_genes=10, share=0.5).adata
    assert part.n_vars == 10 and part.obs_names.equals(load_fetus(fetus_file, share=0.5).adata.obs_names)
