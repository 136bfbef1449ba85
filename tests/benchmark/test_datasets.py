import numpy as np
import pytest
from anndata import AnnData

from sccountsdiff.benchmark.datasets import Dataset, load_dataset


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


def test_what_is_refused(cells, tmp_path):
    path = tmp_path / "mine.h5ad"
    cells.write_h5ad(path)
    for error, message, call in [
        (KeyError, "Unknown data set 'pbmc'", lambda: load_dataset("pbmc")),
        (FileNotFoundError, "no file", lambda: load_dataset(tmp_path / "none.h5ad")),
        (ValueError, "of its own", lambda: load_dataset("pbmc68k", label="cell_type")),
        (KeyError, "not a layer", lambda: load_dataset(path, layer="raw")),
        (KeyError, "label: 'kind'", lambda: load_dataset(path, label="kind")),
        (KeyError, "covariates: 'age'", lambda: load_dataset(path, covariates=["age"])),
        (ValueError, "1 cells of data set 'mine' have no 'donor'", lambda: load_dataset(path, covariates=["donor"])),
        (ValueError, "raw counts", lambda: Dataset("logs", AnnData(np.log1p(cells.X)))),
        (ValueError, "raw counts", lambda: Dataset("negative", AnnData(-cells.X))),
    ]:
        with pytest.raises(error, match=message):
            call()
