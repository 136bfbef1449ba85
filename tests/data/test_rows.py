"""Which cells are asked for, in whatever way, and the blocks in which they are read."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData

from sccountsdiff.data.rows import row_blocks, unique_rows

NAMES = [f"cell{i}" for i in range(50)]


@pytest.fixture
def cells():
    return AnnData(np.ones((50, 2)), obs=pd.DataFrame(index=NAMES))


class TestRowBlocks:
    @pytest.mark.parametrize("seed", range(10))
    def test_blocks_are_those_of_the_data_whatever_is_asked_for(self, seed):
        rng = np.random.default_rng(seed)
        batch_size = int(rng.integers(1, 12))
        rows = rng.choice(60, rng.integers(1, 80))
        blocks = list(row_blocks(rows, batch_size))
        np.testing.assert_array_equal(np.concatenate([block for _, block in blocks]), np.unique(rows))
        for number, block in blocks:
            assert (block // batch_size == number).all() and isinstance(number, int)
        numbers = [number for number, _ in blocks]
        assert numbers == sorted(set(numbers))

    def test_all_rows(self):
        blocks = {number: block.tolist() for number, block in row_blocks(np.arange(7), 3)}
        assert blocks == {0: [0, 1, 2], 1: [3, 4, 5], 2: [6]}


class TestUniqueRows:
    def test_all_cells_in_their_order(self, cells):
        rows, order = unique_rows(None, cells)
        assert rows.tolist() == list(range(50)) and order is None

    @pytest.mark.parametrize(
        "indices",
        [
            slice(None, None, -7),
            slice(3, 9),
            np.array([3, 1], dtype=np.uint64),
            [7, 3, 40, 21],
            [5, 5, 2, 5],
            [-1, 0, -50],
            np.arange(50) % 7 == 0,
            [i % 7 == 0 for i in range(50)],
            pd.Index([9, 8]),
            range(10, 2, -3),
        ],
    )
    def test_rows_are_sorted_once_each_and_the_order_leads_back(self, cells, indices):
        expected = np.arange(50)[indices if isinstance(indices, slice) else np.asarray(indices)]
        rows, order = unique_rows(indices, cells)
        assert (np.diff(rows) > 0).all()
        np.testing.assert_array_equal(rows if order is None else rows[order], expected)

    def test_there_is_no_order_where_none_is_needed(self, cells):
        for indices in ([2, 5, 9], slice(1, 4), np.arange(50) < 3, ["cell0", "cell7"]):
            assert unique_rows(indices, cells)[1] is None

    @pytest.mark.parametrize(
        "kind", [list, tuple, np.array, pd.Index, pd.Series, lambda names: pd.Index(names, dtype="string")]
    )
    def test_may_be_names(self, cells, kind):
        rows, order = unique_rows(kind(["cell40", "cell4", "cell40"]), cells)
        assert rows[order].tolist() == [40, 4, 40]

    @pytest.mark.parametrize(
        ("indices", "error", "message"),
        [
            ([], ValueError, "names no cell"),
            ([50], IndexError, "positions among the 50 cells"),
            ([-51], IndexError, "positions among the 50 cells"),
            (np.ones(49, dtype=bool), ValueError, "one value for each of the 50 cells"),
            (np.zeros(50, dtype=bool), ValueError, "names no cell"),
            (slice(0, 0), ValueError, "names no cell"),
            (["cell4", "cell50"], KeyError, "names cell 'cell50', which is not in adata.obs_names"),
            ([1.0, 2.0], ValueError, r"must be a list .* of whole numbers, of names .* or a slice; found \[1.0, 2.0\]"),
            ([[1, 2], [3, 4]], ValueError, r"must be a list .* found \[\[1, 2\], \[3, 4\]\]"),
            (np.zeros((2, 2)), ValueError, r"must be a list .* found float64 of shape \(2, 2\)"),
            (3, ValueError, "must be a list .* found 3"),
            ("cell4", ValueError, "must be a list .* found 'cell4'"),
        ],
    )
    def test_refuses_cells_that_are_not_there(self, cells, indices, error, message):
        with pytest.raises(error, match=message):
            unique_rows(indices, cells)

    def test_names_must_be_unique(self, cells):
        cells.obs_names = ["cell"] * 50
        with pytest.raises(ValueError, match="adata.obs_names are not unique: pass positions"):
            unique_rows(["cell"], cells)
        assert unique_rows([3], cells)[0].tolist() == [3]
