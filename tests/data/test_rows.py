"""Which cells are asked for, in whatever way, and the blocks in which they are read."""

from __future__ import annotations

import numpy as np
import pytest

from sccountsdiff.data.rows import row_blocks


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
