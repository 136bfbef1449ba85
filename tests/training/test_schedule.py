"""How long to train."""

from __future__ import annotations

import math

import pytest

from sccountsdiff.training import (
    default_max_epochs,
)


class TestDefaultMaxEpochs:
    @pytest.mark.parametrize("n_cells", [1, 50, 1_000, 10_000, 100_000, 1_000_000, 10_000_000])
    def test_steps_grow_with_the_square_root_of_the_cells(self, n_cells):
        per_epoch = math.ceil(n_cells / 128)
        n_steps = default_max_epochs(n_cells, 128) * per_epoch
        wanted = 2000 * math.sqrt(n_cells / 1000)
        assert wanted <= n_steps < wanted + per_epoch

    def test_larger_batches_more_epochs(self):
        assert default_max_epochs(10_000, 512) > default_max_epochs(10_000, 128) > default_max_epochs(10_000, 32)
