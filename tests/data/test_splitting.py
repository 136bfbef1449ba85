"""Splits are partitions, the same for the same seed."""

from __future__ import annotations

import numpy as np
import pytest

from sccountsdiff.data.splitting import split_train_validation


class TestSplitCells:
    @pytest.mark.parametrize("n_cells", [1, 2, 10, 101])
    @pytest.mark.parametrize(
        ("train_size", "validation_size"), [(0.9, None), (1.0, None), (0.5, 0.2), (0.3, 0.7), (1, 0)]
    )
    def test_is_a_partition_of_the_sizes_asked_for(self, n_cells, train_size, validation_size):
        train, validation, test = split_train_validation(n_cells, train_size, validation_size, seed=0)
        assert sorted([*train, *validation, *test]) == list(range(n_cells))
        assert len(train) == max(1, round(train_size * n_cells))
        if validation_size is None:
            assert len(test) == 0
        else:
            assert abs(len(validation) - validation_size * n_cells) <= 1

    def test_seed_decides(self):
        first, second, other = (split_train_validation(100, 0.5, 0.25, seed) for seed in (0, 0, 1))
        assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
        assert not np.array_equal(first[0], other[0])

    def test_cells_are_drawn_at_random_and_sorted(self):
        train, validation, _ = split_train_validation(1000, 0.5, None, seed=0)
        assert (np.diff(train) > 0).all() and (np.diff(validation) > 0).all()
        # mean of 500 of the numbers 0 to 999, without replacement
        standard_error = 1000 / np.sqrt(12) / np.sqrt(500) * np.sqrt(0.5)
        assert abs(train.mean() - 499.5) < 4 * standard_error

    @pytest.mark.parametrize(
        ("train_size", "validation_size", "message"),
        [
            (0, None, "`train_size` must be above 0 and at most 1, not 0"),
            (1.1, None, "`train_size` must be above 0 and at most 1, not 1.1"),
            (0.8, 0.3, r"`validation_size` must be within \[0, 1 - train_size\], not 0.3"),
            (0.8, -0.1, "`validation_size` must be within"),
        ],
    )
    def test_refuses_other_sizes(self, train_size, validation_size, message):
        with pytest.raises(ValueError, match=message):
            split_train_validation(10, train_size, validation_size, 0)
