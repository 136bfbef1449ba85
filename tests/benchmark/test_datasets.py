import numpy as np
import pytest
from anndata import AnnData
from scipy import io, sparse

from sccountsdiff.benchmark.datasets import Dataset, load_dataset
from sccountsdiff.io import write


@pytest.fixture
def cells():
    return AnnData(np.array([[1.0, 2.0], [0.0, 3.0]]), obs={"type": ["a", "b"], "donor": ["x", None]})


def test_a_file_with_its_columns(cells, tmp_path):
    cells.layers["counts"] = cells.X + 1
    cells.write_h5ad(tmp_path / "mine.h5ad")
    data = load_dataset(str(tmp_path / "mine.h5ad"), covariates="type", label="type", layer="counts")
    assert (data.name, data.covariates, data.label) == ("mine", ("type",), "type")
    np.testing.assert_array_equal(data.adata.X, cells.X + 1)
    assert load_dataset(data) is data


def test_all_formats_that_the_package_reads(cells, tmp_path):
    import mudata

    cells.X = sparse.csr_matrix(cells.X)
    write(cells, tmp_path / "mine.zarr")
    folder = tmp_path / "mine"
    folder.mkdir()
    io.mmwrite(folder / "matrix.mtx", cells.X.T.astype(int))
    (folder / "genes.tsv").write_text("id0\tg\nid1\tg\n")
    (folder / "barcodes.tsv").write_text("c0\nc1\n")
    for path in (tmp_path / "mine.zarr", folder):
        data = load_dataset(path)
        assert data.name == "mine" and data.adata.var_names.is_unique
        np.testing.assert_array_equal(data.adata.X.toarray(), cells.X.toarray())
    write(mudata.MuData({"rna": cells, "atac": cells.copy()}), tmp_path / "both.zarr")
    assert load_dataset(tmp_path / "both.zarr").adata.var["feature_types"].tolist() == ["rna"] * 2 + ["atac"] * 2


def test_counts_are_where_the_model_looks_for_them(cells, tmp_path):
    """In the layer of that name if there is one, else in X; any other place can be named."""
    cells.layers["counts"], cells.layers["spliced"] = cells.X + 1, cells.X + 2
    path = tmp_path / "mine.h5ad"
    cells.write_h5ad(path)
    for layer, added in ((None, 1), ("counts", 1), ("spliced", 2), ("X", 0)):
        np.testing.assert_array_equal(load_dataset(path, layer=layer).adata.X, cells.X + added)
    del cells.layers["counts"]
    cells.write_h5ad(path)
    np.testing.assert_array_equal(load_dataset(path).adata.X, cells.X)


def test_what_are_no_counts_is_told_with_its_place_and_the_others(cells, tmp_path):
    path = tmp_path / "mine.h5ad"
    cells.layers["counts"], cells.layers["raw"] = np.log1p(cells.X), cells.X
    cells.write_h5ad(path)
    message = r"layer 'counts' of mine.h5ad has negative, fractional, infinite or missing values; .*--layer.*: X, raw\."
    with pytest.raises(ValueError, match=message):
        load_dataset(path)
    AnnData(cells.X - 1).write_h5ad(path)
    with pytest.raises(ValueError, match=r"X of mine.h5ad has negative.*no layers to choose from"):
        load_dataset(path)
    AnnData(obs=cells.obs).write_h5ad(path)
    with pytest.raises(ValueError, match=r"no counts: X of mine.h5ad is empty"):
        load_dataset(path)


def test_modalities_of_a_file_side_by_side(tmp_path):
    """Cells that one modality lacks are left out, and cells may be in another order in each."""
    import mudata

    rng = np.random.default_rng(0)
    rna = AnnData(rng.poisson(3, (4, 3)).astype("float32"))
    rna.obs_names, rna.var_names = list("abcd"), ["g1", "g2", "both"]
    rna.obs["type"] = ["x", "y", "x", "y"]
    protein = AnnData(rng.poisson(9, (3, 2)).astype("float32"), layers={"counts": rng.poisson(9, (3, 2))})
    protein.obs_names, protein.var_names = list("dab"), ["p1", "both"]
    mudata.MuData({"rna": rna, "prot": protein}).write_h5mu(tmp_path / "mine.h5mu")
    data = load_dataset(tmp_path / "mine.h5mu", label="type")
    assert data.modality == "feature_types" and data.adata.var_names.is_unique
    assert data.adata.var["feature_types"].tolist() == ["rna"] * 3 + ["prot"] * 2
    assert data.adata.obs_names.tolist() == ["a", "b", "d"] and data.adata.obs["type"].tolist() == ["x", "y", "y"]
    expected = np.hstack([rna[["a", "b", "d"]].X, protein[["a", "b", "d"]].layers["counts"]])
    np.testing.assert_array_equal(data.adata.X.toarray(), expected)


def test_what_is_refused(cells, tmp_path):
    path = tmp_path / "mine.h5ad"
    cells.write_h5ad(path)
    for error, message, call in [
        (KeyError, "Unknown data set 'pbmc'", lambda: load_dataset("pbmc")),
        (ValueError, "no known format", lambda: load_dataset(tmp_path)),
        (FileNotFoundError, "no file", lambda: load_dataset(tmp_path / "none.h5ad")),
        (ValueError, "of its own", lambda: load_dataset("pbmc68k", label="cell_type")),
        (KeyError, "not a layer", lambda: load_dataset(path, layer="raw")),
        (KeyError, "label: 'kind'", lambda: load_dataset(path, label="kind")),
        (KeyError, "batch: 'run' is not a column of obs", lambda: load_dataset(path, batch="run")),
        (ValueError, "batch: 1 cells", lambda: load_dataset(path, batch="donor")),
        (ValueError, "testable: 1 cells", lambda: load_dataset(path, testable="donor")),
        (TypeError, "testable: 'type' of .* must be true or false", lambda: load_dataset(path, testable="type")),
        (KeyError, "modality: 'kind' is not a column of var", lambda: load_dataset(path, modality="kind")),
        (KeyError, "covariates: 'age'", lambda: load_dataset(path, covariates=["age"])),
        (ValueError, "1 cells of data set 'mine' have no 'donor'", lambda: load_dataset(path, covariates=["donor"])),
        (
            ValueError,
            "X of data set 'logs' has negative, fraction",
            lambda: Dataset("logs", AnnData(np.log1p(cells.X))),
        ),
        (ValueError, "Raw counts", lambda: Dataset("negative", AnnData(-cells.X))),
        (ValueError, "Raw counts", lambda: Dataset("gap", AnnData(cells.X * np.array([1, np.nan])))),
    ]:
        with pytest.raises(error, match=message):
            call()
