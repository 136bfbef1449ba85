"""How long the rows of a table will take, and how much memory, before anything is run."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from torch.utils.flop_counter import FlopCounterMode

from sccountsdiff.benchmark.baselines import Baseline
from sccountsdiff.benchmark.baselines.cells import Cells
from sccountsdiff.benchmark.baselines.countsdiff import CountsDiff
from sccountsdiff.benchmark.baselines.covariate_codes import CovariateCoder
from sccountsdiff.benchmark.baselines.forest_diffusion import ForestDiffusion
from sccountsdiff.benchmark.baselines.torch_training import Batch
from sccountsdiff.benchmark.metrics.inputs import best_device
from sccountsdiff.benchmark.paper.rows import Budget, Row
from sccountsdiff.benchmark.paper.settings import stand_in, training_of, untrained

EFFICIENCY = 0.5
"""Share of the speed of large matrix products that a network is taken to reach."""

BYTES_PER_ENTRY = 14
"""Of a training cell: its counts twice, as read and as tensors, and once more while they are made dense; two masks."""

N_DRAWS = 6
"""Draws of each test cell: one answer of a single draw, and one of five."""


def operations(method: Baseline, cells: Cells) -> float | None:
    """Floating-point operations of one pass of a method's network over one cell; ``None`` if it has none.

    Examples
    --------
    >>> from sccountsdiff.benchmark.baselines import get_baseline
    >>> from sccountsdiff.benchmark.paper import HEART
    >>> operations(get_baseline("zero")(), stand_in(20, HEART)) is None
    True
    """
    network = untrained(method, cells)
    if network is None:
        return None
    few = (
        cells[:2]
        if method.uses_covariates
        else Cells(cells.counts[:2], cells.observed[:2], cells.covariates.iloc[:2][[]])
    )
    counts, observed = torch.as_tensor(few.counts), torch.as_tensor(few.observed)
    codes, scores, unseen = CovariateCoder.fit(few.covariates)(few.covariates)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        if isinstance(method, CountsDiff):
            network.denoiser(counts, torch.zeros_like(counts), torch.ones(2), codes, scores, unseen)
        else:
            network.loss(Batch(counts, observed, codes, scores, unseen))
    return counter.get_total_flops() / 2


def machine_speed() -> float:
    """Floating-point operations per second of large matrix products in single precision on the best device."""
    matrix = torch.randn(2048, 2048, device=best_device())
    start, n = time.perf_counter(), 0
    while time.perf_counter() - start < 0.3:
        float((matrix @ matrix)[0, 0])  # waits for the device
        n += 1
    return n * 2 * 2048**3 / (time.perf_counter() - start)


def estimates(rows: Sequence[Row], budget: Budget, n_genes: int, speed: float | None = None) -> pd.DataFrame:
    """Hours of training and of imputation, and memory, of each row on this machine; rough, and without metrics.

    Parameters
    ----------
    rows
        Rows of a table.
    budget
        Atlas and size.
    n_genes
        Number of genes.
    speed
        Floating-point operations per second. Default: measured.

    Returns
    -------
    A row for each row; no time for methods without a network, which take minutes, or whose weights are in a file.

    Examples
    --------
    >>> from sccountsdiff.benchmark.paper import HEART, ROWS
    >>> table = estimates(ROWS[:1], Budget(HEART, 10_000), n_genes=100, speed=1e11)
    >>> table["memory_gb"].round(3).tolist()
    [0.012]
    """
    speed = (speed or machine_speed()) * EFFICIENCY
    cells = stand_in(n_genes, budget.atlas)
    n_given = budget.n_cells - budget.n_test
    lines = {}
    for row in rows:
        method = row.method(budget)
        passes = getattr(method, "n_steps", 1) * getattr(method, "n_resamples", 1) * (N_DRAWS if method.draws else 1)
        of_cell, training = operations(method, cells), training_of(method, budget.n_training)
        fit = impute = np.nan
        if isinstance(method, ForestDiffusion):
            fit = method.expected_hours(n_given, n_genes) / max(torch.get_num_threads(), 1)
        elif of_cell is not None and training is not None:
            fit = 3 * of_cell * training[0] * training[1] / speed / 3600  # a step backwards costs two passes
            impute = of_cell * passes * budget.n_test / speed / 3600
        memory = (
            n_given * n_genes * BYTES_PER_ENTRY + 4 * n_genes * budget.n_test * (N_DRAWS if method.draws else 1) * 2
        )
        lines[row.name] = {"fit_hours": fit, "impute_hours": impute, "memory_gb": memory / 2**30}
    return pd.DataFrame.from_dict(lines, orient="index")
