"""Which cells to train on, and the blocks in which cells are imputed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np


def split_cells(n_cells: int, train_size: float, validation_size: float | None, seed: int) -> list[np.ndarray]:
    """Training, validation and test cells, the same for a seed on every process."""
    if not 0 < train_size <= 1:
        raise ValueError(f"`train_size` must be above 0 and at most 1, not {train_size}.")
    if validation_size is not None and not 0 <= validation_size <= 1 - train_size + 1e-9:
        raise ValueError(f"`validation_size` must be within [0, 1 - train_size], not {validation_size}.")
    order = np.random.default_rng(seed).permutation(n_cells)
    n_train = max(1, round(train_size * n_cells))
    n_validation = n_cells - n_train if validation_size is None else round(validation_size * n_cells)
    return [np.sort(part) for part in np.split(order, [n_train, min(n_cells, n_train + n_validation)])]


def row_blocks(rows: np.ndarray, batch_size: int) -> Iterator[tuple[int, np.ndarray]]:
    """Sorted rows by the block of ``batch_size`` cells of the data that they stand in.

    A block has the same number, and so the same random numbers, whichever other blocks are asked for.
    """
    rows = np.unique(rows)
    numbers, starts = np.unique(rows // batch_size, return_index=True)
    for number, block in zip(numbers, np.split(rows, starts[1:]), strict=True):
        yield int(number), block
