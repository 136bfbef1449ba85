"""Genes chosen and counts kept in chunks are those of the whole matrix."""

import os
import shutil

import h5py
import numpy as np
import pytest
from anndata import AnnData
from anndata.io import sparse_dataset, write_elem
from scipy import sparse

from sccountsdiff.benchmark.paper import chunks
from sccountsdiff.benchmark.preprocessing import filter_genes, top_genes


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK", 16)


@pytest.fixture(scope="module")
def counts():
    rng = np.random.default_rng(0)
    return rng.poisson(rng.gamma(0.3, 4, (1, 40)) * rng.gamma(1, 1, (90, 1))).astype(np.float32)


@pytest.fixture
def on_disk(counts, tmp_path):
    with h5py.File(tmp_path / "counts.h5", "w") as file:
        write_elem(file, "X", sparse.csr_matrix(counts))
        yield sparse_dataset(file["X"])


def test_chunks_are_the_rows_in_their_order(counts, on_disk):
    rows = np.array([0, 3, 15, 16, 17, 50, 89])
    for matrix in (counts, on_disk):
        parts = list(chunks.chunks_of(matrix, rows))
        assert len(parts) == 4 and all(part.shape[0] <= 16 for part in parts)
        np.testing.assert_array_equal(sparse.vstack(parts).toarray(), counts[rows])


def test_the_genes_are_those_that_are_chosen_in_memory(counts, on_disk):
    rows = np.arange(0, 90, 2)
    kept, genes = chunks.read_chosen(on_disk, rows, n_genes=7, min_cells=9)
    expected = top_genes(filter_genes(AnnData(counts[rows]), 9), 7)
    assert genes.tolist() == expected.var_names.astype(int).tolist()
    np.testing.assert_array_equal(kept.toarray(), expected.X)
    with pytest.raises(ValueError, match="min_cells=46"):
        chunks.read_chosen(on_disk, rows, 7, 46)


def test_counts_are_mapped_and_found_again(counts, on_disk, tmp_path, monkeypatch):
    rows, folder = np.arange(90), tmp_path / "kept"
    first, genes = chunks.read_chosen(on_disk, rows, 5, 3, folder, source="a")
    monkeypatch.setattr(chunks, "choose_genes", lambda *arguments: pytest.fail("read again"))
    again, same = chunks.read_chosen(on_disk, rows, 5, 3, folder, source="a")
    assert not again.data.flags.owndata and not again.indices.flags.owndata, "a copy in memory"
    np.testing.assert_array_equal(again.toarray(), first.toarray())
    assert np.array_equal(genes, same)
    for changed in ({"source": "b"}, {"source": "a", "n_genes": 4}):
        with pytest.raises(pytest.fail.Exception, match="read again"):
            chunks.read_chosen(on_disk, rows, changed.pop("n_genes", 5), 3, folder, **changed)


@pytest.mark.parametrize("name", ["counts.json", "data.npy", "indptr.npy"])
def test_what_is_damaged_is_set_aside_and_made_again(on_disk, tmp_path, caplog, name):
    rows, folder = np.arange(90), tmp_path / "kept"
    whole = chunks.read_chosen(on_disk, rows, 5, 3, folder, source="a")[0].toarray()
    os.truncate(folder / name, 7)
    again, _ = chunks.read_chosen(on_disk, rows, 5, 3, folder, source="a")
    np.testing.assert_array_equal(again.toarray(), whole)
    assert "counts.json is damaged" in caplog.text


def test_room_is_asked_for(on_disk, tmp_path, monkeypatch):
    """A disk that fills up while a file is mapped would end the process."""
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=10))
    with pytest.raises(OSError, match=r"counts\.json cannot be written: 1 MiB are needed, 0 are free"):
        chunks.read_chosen(on_disk, np.arange(90), 5, 3, tmp_path / "kept", source="a")


def test_an_interrupted_write_is_not_taken_for_whole(on_disk, tmp_path, monkeypatch):
    rows, folder = np.arange(90), tmp_path / "kept"
    chunks.read_chosen(on_disk, rows, 5, 3, folder, source="a")
    whole = chunks.chunks_of
    monkeypatch.setattr(chunks, "chunks_of", lambda *arguments: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        chunks.read_chosen(on_disk, rows, 5, 3, folder, source="b")
    monkeypatch.setattr(chunks, "chunks_of", whole)
    kept, _ = chunks.read_chosen(on_disk, rows, 5, 3, folder, source="b")
    assert kept.sum() > 0
