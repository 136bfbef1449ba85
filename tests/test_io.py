"""Data comes back from every format as it was, and a target is whole or as it was."""

import gzip
import json
import os
import pickle

import anndata
import h5py
import mudata
import numcodecs
import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from sccountsdiff import datasets, io


@pytest.fixture(scope="module")
def adata():
    adata = datasets.pbmc68k()[:30, :12].copy()
    adata.layers["observed"] = np.random.default_rng(0).random(adata.shape) < 0.8
    return adata


def same(one, other):
    assert one.obs_names.equals(other.obs_names) and one.var_names.equals(other.var_names)
    assert (sp.csr_matrix(one.X) != sp.csr_matrix(other.X)).nnz == 0


@pytest.mark.parametrize("name", ["cells.h5ad", "cells.zarr"])
def test_anndata(adata, tmp_path, name):
    io.write(adata, tmp_path / name)
    found = io.read(tmp_path / name)
    same(found, adata)
    np.testing.assert_array_equal(found.layers["observed"], adata.layers["observed"])
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["cells.h5mu", "cells.zarr"])
def test_mudata(adata, tmp_path, name):
    io.write(mudata.MuData({"rna": adata}), tmp_path / name)
    found = io.read(tmp_path / name)
    assert isinstance(found, mudata.MuData)
    same(found.mod["rna"], adata)


def write_10x_file(adata, path):
    by_gene = sp.csc_matrix(adata.X.T)
    with h5py.File(path, "w") as file:
        matrix = file.create_group("matrix")
        matrix["data"], matrix["indices"] = by_gene.data.astype(np.int32), by_gene.indices
        matrix["indptr"], matrix["shape"] = by_gene.indptr, np.array(by_gene.shape, np.int32)
        matrix["barcodes"] = np.array(adata.obs_names, dtype="S")
        features = {"id": adata.var_names, "name": adata.var_names, "genome": ["x"] * adata.n_vars}
        features["feature_type"] = ["Gene Expression"] * (adata.n_vars - 1) + ["Antibody Capture"]
        for key, values in features.items():
            matrix[f"features/{key}"] = np.array(list(values), dtype="S")


def write_10x_folder(adata, folder):
    folder.mkdir()
    with gzip.open(folder / "matrix.mtx.gz", "wb") as file:
        scipy.io.mmwrite(file, sp.coo_matrix(adata.X.T).astype(np.int32))
    lines = {"barcodes": adata.obs_names, "features": [f"{g}\t{g}\tGene Expression" for g in adata.var_names]}
    for name, values in lines.items():
        with gzip.open(folder / f"{name}.tsv.gz", "wt") as file:
            file.write("\n".join(values) + "\n")


def test_10x(adata, tmp_path):
    write_10x_file(adata, tmp_path / "counts.h5")
    found = io.read(tmp_path / "counts.h5")
    same(found, adata)
    assert found.var["feature_types"].nunique() == 2, "all feature types are there"
    write_10x_folder(adata, tmp_path / "filtered")
    same(io.read(tmp_path / "filtered"), adata)


@pytest.mark.parametrize("name", ["cells.h5ad", "cells.zarr"])
def test_what_is_there_is_replaced_only_if_asked_for(adata, tmp_path, name):
    io.write(adata, tmp_path / name)
    with pytest.raises(FileExistsError, match="--overwrite"):
        io.write(adata[:5].copy(), tmp_path / name)
    assert io.read(tmp_path / name).n_obs == 30
    io.write(adata[:5].copy(), tmp_path / name, overwrite=True)
    assert io.read(tmp_path / name).n_obs == 5
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["cells.h5ad", "cells.zarr"])
def test_what_is_there_stays_if_writing_fails(adata, tmp_path, name):
    io.write(adata, tmp_path / name)
    broken = adata.copy()
    broken.uns["thing"] = object()
    with pytest.raises(Exception, match="object"):
        io.write(broken, tmp_path / name, overwrite=True)
    same(io.read(tmp_path / name), adata)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["copy.h5ad", "cells.h5ad", "copy.zarr"])
def test_data_in_a_file_stays_where_it_is(adata, tmp_path, name):
    io.write(adata, tmp_path / "cells.h5ad")
    backed = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    io.write(backed, tmp_path / name, overwrite=True)
    assert str(backed.filename) == str(tmp_path / "cells.h5ad")
    same(io.read(tmp_path / name), adata)
    same(backed.to_memory(), adata)


class Touch:
    """What makes a pickle dangerous: it says what is to be called when it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize(
    "codecs",
    [
        {"filters": [{"id": "vlen-utf8"}, {"id": "pickle"}], "compressor": None},
        {"filters": [{"id": "vlen-utf8"}], "compressor": {"id": "pickle"}},
        {"filters": [{"id": "pickle"}], "compressor": None},
    ],
    ids=["second filter", "compressor", "filter"],
)
def test_hostile_arrays_are_not_run(adata, tmp_path, monkeypatch, codecs):
    """Arrays of Zarr may say that they are pickles."""
    # Newer versions of numcodecs refuse by themselves.
    monkeypatch.setattr(numcodecs.pickles, "ALLOW_UNSAFE_PICKLE_DECODE", True, raising=False)
    with anndata.settings.override(zarr_write_format=2):
        io.write(adata, tmp_path / "cells.zarr")
    for notes in (tmp_path / "cells.zarr").rglob(".zmetadata"):
        notes.unlink()
    array = tmp_path / "cells.zarr" / "uns" / "thing"
    array.mkdir()
    about = {"zarr_format": 2, "shape": [1], "chunks": [1], "dtype": "|O", "fill_value": "", "order": "C", **codecs}
    (array / ".zarray").write_text(json.dumps(about))
    (array / ".zattrs").write_text(json.dumps({"encoding-type": "string-array", "encoding-version": "0.2.0"}))
    (array / "0").write_bytes(pickle.dumps(Touch(tmp_path / "touched")))
    with pytest.raises(ValueError, match=r"cells\.zarr' cannot be read: .*pickle"):
        io.read(tmp_path / "cells.zarr")
    assert not (tmp_path / "touched").exists()
    assert "pickle" in numcodecs.registry.codec_registry, "others may use it"


def test_what_cannot_be_read_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="no file or folder"):
        io.read(tmp_path / "nothing.h5ad")
    (tmp_path / "cells.csv").write_text("a,b")
    with pytest.raises(ValueError, match=r"no known format: .h5ad"):
        io.read(tmp_path / "cells.csv")
    for name in ("cells.h5ad", "cells.h5mu", "cells.h5"):
        (tmp_path / name).write_text("no HDF5")
        with pytest.raises(ValueError, match=f"{name}' cannot be read: .*(Unable to|not an HDF5)"):
            io.read(tmp_path / name)
    (tmp_path / "broken.zarr").mkdir()
    (tmp_path / "broken.zarr" / "zarr.json").write_text("{")
    with pytest.raises(ValueError, match=r"broken.zarr' cannot be read"):
        io.read(tmp_path / "broken.zarr")


def test_what_cannot_be_written_is_said_before(adata, tmp_path):
    with pytest.raises(ValueError, match="MuData is written as .h5mu or .zarr"):
        io.check_target(tmp_path / "cells.h5ad", "MuData")
    with pytest.raises(ValueError, match="data is written as"):
        io.check_target(tmp_path / "cells.loom")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        io.check_target(tmp_path / "no" / "cells.h5ad")
    (tmp_path / "folder.h5ad").mkdir()
    with pytest.raises(ValueError, match="it is a folder"):
        io.check_target(tmp_path / "folder.h5ad", overwrite=True)
    anndata.AnnData(np.ones((1, 1))).write_h5ad(tmp_path / "file.zarr")
    with pytest.raises(ValueError, match="it is a file"):
        io.check_target(tmp_path / "file.zarr", overwrite=True)
