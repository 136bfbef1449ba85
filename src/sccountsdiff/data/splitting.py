"""Which cells to train on."""

from __future__ import annotations

import numpy as np


def split_train_validation(
    n_cells: int, train_size: float, validation_size: float | None, seed: int
) -> list[np.ndarray]:
    """Training, validation and test cells, the same for a seed on every process."""
    if not 0 < train_size <= 1:
        raise ValueError(f"`train_size` must be above 0 and at most 1, not {train_size}.")
    if validation_size is not None and not 0 <= validation_size <= 1 - train_size + 1e-9:
        raise ValueError(f"`validation_size` must be within [0, 1 - train_size], not {validation_size}.")
    order = np.random.default_rng(seed).permutation(n_cells)
    n_train = max(1, round(train_size * n_cells))
    n_validation = n_cells - n_train if validation_size is None else round(validation_size * n_cells)
    return [np.sort(part) for part in np.split(order, [n_train, min(n_cells, n_train + n_validation)])]
