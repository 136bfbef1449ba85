"""Blocks put together are the matrix, whatever it is stored in."""

from __future__ import annotations

import h5py
import numpy as np
import pytest
import scipy.sparse as sp
from anndata.io import sparse_dataset, write_elem

from sccountsdiff.data import reading
from sccountsdiff.data.reading import BlockMask, as_matrix, by_rows, iter_blocks, iter_some_rows, read_block, read_rows


def counts(n_cells=11, n_genes=7, dtype="float32", seed=0):
    return np.random.default_rng(seed).poisson(0.6, (n_cells, n_genes)).astype(dtype)


def non_canonical_csr(entries, shape):
    """Build a CSR matrix of one row from (column, value) pairs in the given order, duplicates included."""
    columns, values = map(np.asarray, zip(*entries, strict=True))
    return sp.csr_matrix((values, columns, np.array([0, len(columns)])), shape=shape)


def as_dense(block):
    return block.toarray() if sp.issparse(block) else block


def iter_row_chunks(matrix):
    """All rows, with the position of the first row of each block."""
    matrix = by_rows(as_matrix(matrix, "matrix"))
    for rows, block in iter_some_rows(matrix, np.arange(matrix.shape[0])):
        yield rows[0], block


@pytest.fixture(params=[7, 28, 70, 77, 84, 10_000_000])
def block_entries(request, monkeypatch):
    """Entries of a block: of 7 columns these are 1, 4, 10, 11, 12 rows, or all there can be."""
    monkeypatch.setattr(reading, "BLOCK_ENTRIES", request.param)
    return request.param


class TestIterRowChunks:
    def test_chunks_concatenate_to_the_matrix(self, store, fmt, block_entries):
        dense = counts()
        starts, blocks = zip(*iter_row_chunks(store(dense, fmt)), strict=True)
        np.testing.assert_array_equal(np.concatenate([as_dense(block) for block in blocks]), dense)
        lengths = [block.shape[0] for block in blocks]
        np.testing.assert_array_equal(starts, np.cumsum([0, *lengths[:-1]]))
        assert all(length == block_entries // 7 for length in lengths[:-1])

    @pytest.mark.parametrize("seed", range(20))
    def test_random_shapes(self, seed, monkeypatch):
        rng = np.random.default_rng(seed)
        shape, n_rows = rng.integers(1, 40, size=2), int(rng.integers(1, 50))
        monkeypatch.setattr(reading, "BLOCK_ENTRIES", n_rows * shape[1])
        matrix = sp.random(*shape, density=rng.random(), format=rng.choice(["csr", "csc"]), random_state=seed)
        blocks = list(iter_row_chunks(matrix))
        assert len(blocks) == -(-shape[0] // n_rows)
        np.testing.assert_array_equal(sp.vstack([block for _, block in blocks]).toarray(), matrix.toarray())

    def test_blocks_are_bounded(self, store, fmt, small_blocks):
        sizes = [block.shape[0] * block.shape[1] for _, block in iter_row_chunks(store(counts(), fmt))]
        assert len(sizes) == 6
        assert max(sizes) <= 20

    def test_rows_longer_than_a_block_come_one_by_one(self, small_blocks):
        assert [start for start, _ in iter_row_chunks(np.ones((3, 50)))] == [0, 1, 2]

    def test_sparse_blocks_are_csr_unless_in_a_file_by_columns(self, store, fmt, small_blocks):
        is_sparse = "cs" in fmt or "coo" in fmt
        formats = {getattr(block, "format", None) for _, block in iter_row_chunks(store(counts(), fmt))}
        assert formats == {("csc" if fmt == "backed csc" else "csr") if is_sparse else None}

    def test_unsorted_and_duplicate_entries_are_put_in_order_without_touching_the_input(self):
        matrix = non_canonical_csr([(2, 1.0), (0, 3.0), (2, 4.0)], shape=(1, 3))
        ((_, block),) = iter_row_chunks(matrix)
        np.testing.assert_array_equal(block.indices, [0, 2])
        np.testing.assert_array_equal(block.data, [3, 5])
        np.testing.assert_array_equal(matrix.indices, [2, 0, 2])
        np.testing.assert_array_equal(matrix.data, [1, 3, 4])

    def test_h5py_dataset(self, tmp_path, small_blocks):
        dense = counts()
        with h5py.File(tmp_path / "x.h5", "w") as file:
            dataset = file.create_dataset("x", data=dense, chunks=(3, 2), compression="gzip")
            blocks = [block for _, block in iter_row_chunks(dataset)]
        np.testing.assert_array_equal(np.concatenate(blocks), dense)

    def test_no_rows_no_blocks(self):
        assert list(iter_row_chunks(np.ones((0, 3)))) == []


class TestRows:
    """Some rows, with or without gaps between them."""

    ROWS = [[0], [10], [3, 4, 5], [0, 2, 3, 9], list(range(11))]

    @pytest.mark.parametrize("rows", ROWS)
    def test_read_rows(self, store, fmt, rows):
        dense = counts()
        block = read_rows(as_matrix(store(dense, fmt), "matrix"), np.array(rows))
        assert isinstance(block, np.ndarray) and block.dtype == dense.dtype
        np.testing.assert_array_equal(block, dense[rows])

    def test_what_is_read_can_be_changed_without_changing_the_data(self):
        dense = counts()
        read_rows(dense, np.array([3, 4, 5]))[:] = -1
        np.testing.assert_array_equal(dense, counts())

    @pytest.mark.parametrize("rows", [None, *ROWS])
    def test_blocks_say_where_they_are(self, store, fmt, rows, small_blocks):
        dense, found = counts(), np.full((11, 7), np.nan)
        matrix = as_matrix(store(dense, fmt), "matrix")
        for in_rows, in_columns, block in iter_blocks(matrix, None if rows is None else np.array(rows)):
            assert np.isnan(found[np.ix_(in_rows, in_columns)]).all()
            found[np.ix_(in_rows, in_columns)] = as_dense(block)
        expected = np.full((11, 7), np.nan)
        expected[slice(None) if rows is None else rows] = dense[slice(None) if rows is None else rows]
        np.testing.assert_array_equal(found, expected)


def test_a_mask_of_whole_groups_reads_like_a_matrix():
    rng = np.random.default_rng(0)
    present, groups = rng.random((7, 3)) < 0.5, np.array([2, 0, 0, 1, 2])
    mask, whole = BlockMask(present, groups), present[:, groups]
    assert mask.shape == whole.shape and mask.dtype == whole.dtype
    np.testing.assert_array_equal(mask[:], whole)
    np.testing.assert_array_equal(read_block(mask, np.array([1, 4])), whole[[1, 4]])
    np.testing.assert_array_equal(read_block(mask, range(2, 5), range(1, 4)), whole[2:5, 1:4])
    for rows, columns, block in iter_blocks(as_matrix(mask, "mask")):
        np.testing.assert_array_equal(block, whole[np.ix_(rows, columns)])


def test_masked_arrays_are_refused_whether_or_not_anything_is_masked():
    for mask in (False, [[True, False]]):
        with pytest.raises(ValueError, match="adata.X is a masked array: mark missing entries as NaN"):
            as_matrix(np.ma.MaskedArray(np.ones((1, 2)), mask=mask), "adata.X")


DAMAGES = {
    "beyond": lambda m: m.indices.__setitem__(3, 7),
    "far beyond": lambda m: m.indices.__setitem__(3, 2**31 - 1),
    "before": lambda m: m.indices.__setitem__(3, -1),
    "lines that end before they begin": lambda m: m.indptr.__setitem__(2, m.indptr[-1]),
    "lines that end beyond": lambda m: m.indptr.__setitem__(2, 10**6),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("fmt", ["csr", "csc"])
def test_entries_that_are_not_within_the_matrix_are_refused(tmp_path, fmt, damage):
    """SciPy takes them as they are, and a process that makes an array of them may crash."""
    matrix = sp.csr_matrix(counts(7, 7)).asformat(fmt)
    assert as_matrix(matrix, "adata.X") is matrix
    with h5py.File(tmp_path / "cells.h5", "w") as file:
        write_elem(file, "X", matrix)
        DAMAGES[damage](matrix)
        for part in ("indices", "indptr"):
            file[f"X/{part}"][:] = getattr(matrix, part)
        with pytest.raises(ValueError, match=r"adata\.X is damaged: it has entries that are not within its \(7, 7\)"):
            as_matrix(matrix, "adata.X")
        if "lines" in damage:
            return  # anndata finds these, or reads what there is
        stored = as_matrix(sparse_dataset(file["X"]), "adata.X")
        for read in (read_block, read_rows):
            with pytest.raises(ValueError, match="The matrix in the file is damaged"):
                read(stored, range(7))


def test_room_for_more_entries_does_not_matter():
    matrix = sp.csr_matrix(np.eye(3))
    matrix.indices, matrix.data = np.append(matrix.indices, 99), np.append(matrix.data, 0.0)
    assert as_matrix(matrix, "adata.X") is matrix
