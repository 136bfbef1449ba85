"""Training of scVI, for its imputations and for its embedding of cells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sccountsdiff.benchmark.quiet import quiet
from sccountsdiff.seeding import global_seed

if TYPE_CHECKING:
    from anndata import AnnData
    from scvi.model import SCVI

TRAIN_SIZE = 0.9


def fit_scvi(
    cells: AnnData,
    *,
    categorical_covariate_keys: Sequence[str] = (),
    continuous_covariate_keys: Sequence[str] = (),
    model_kwargs: dict[str, Any] | None = None,
    train_kwargs: dict[str, Any] | None = None,
    batch_size: int = 128,
    seed: int = 0,
) -> SCVI:
    """Train scVI with a negative-binomial likelihood, stopping early on a tenth of the cells.

    Examples
    --------
    >>> import numpy as np
    >>> from anndata import AnnData
    >>> cells = AnnData(np.random.default_rng(0).poisson(2, (40, 6)).astype("float32"))
    >>> fit_scvi(cells, train_kwargs={"max_epochs": 1}).is_trained
    True
    """
    from scvi.model import SCVI

    n_train = math.ceil(TRAIN_SIZE * cells.n_obs)
    with global_seed(seed), quiet():
        SCVI.setup_anndata(
            cells,
            categorical_covariate_keys=list(categorical_covariate_keys) or None,
            continuous_covariate_keys=list(continuous_covariate_keys) or None,
        )
        model = SCVI(cells, gene_likelihood="nb", **(model_kwargs or {}))
        options = {"train_size": TRAIN_SIZE, "early_stopping": n_train < cells.n_obs}
        options |= {"batch_size": batch_size_without_rest(n_train, batch_size)}
        options |= {"enable_progress_bar": False, "logger": False, **(train_kwargs or {})}
        model.train(**options)
    return model


def batch_size_without_rest(n_cells: int, largest: int) -> int:
    """The largest batch size that leaves no last batch of a single cell, on which batch normalisation fails.

    Examples
    --------
    >>> batch_size_without_rest(257, 128)
    127
    """
    return next((size for size in range(largest, 1, -1) if n_cells % size != 1), largest)
