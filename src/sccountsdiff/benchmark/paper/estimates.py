"""How long the rows of a table will take, and how much memory, before anything is run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

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
from sccountsdiff.benchmark.paper.settings import n_parameters, stand_in, training_of, untrained
from sccountsdiff.benchmark.resources import PEAKS, hours_by_device

EFFICIENCY = 0.5
"""Share of the speed of large matrix products that a network is taken to reach."""

BYTES_PER_ENTRY = 13
"""Of a training cell at the peak, which is CountsDiff's: its counts three times, and a mask."""

COLUMNS = ("parameters", "mflop_per_cell", "trainings", "passes", "fit_hours", "impute_hours")
COLUMNS += tuple(f"hours_{name}" for name in PEAKS)
"""What is said of networks."""

N_DRAWS = 6
"""Draws of each test cell: one answer of a single draw, and one of five."""


@dataclass(frozen=True)
class Work:
    """What a table asks of the method of a row.

    Attributes
    ----------
    n_trainings
        How often it is trained.
    settings
        Settings that it is asked in, beside its own; the same twice count once.
    n_draws
        Draws of each cell in its own settings, which may be none.
    n_cells
        Cells that are imputed at most. Default: all test cells.

    Examples
    --------
    >>> Work.of_row(Row("CountsDiff", "countsdiff_paper", grid=({}, {"guidance": 2.0})), tune=True).n_trainings
    2
    """

    n_trainings: int = 1
    settings: tuple[dict[str, Any], ...] = ()
    n_draws: int = N_DRAWS
    n_cells: int | None = None

    @classmethod
    def of_row(cls, row: Row, tune: bool) -> Work:
        """A row of a comparison; one that is tuned is trained once more, and asked once in each setting."""
        return cls(2, row.grid) if tune and row.grid else cls()

    def passes(self, method: Baseline) -> float:
        """Passes of the network over each cell that is imputed."""
        draws = [(method, self.n_draws if method.draws else 1)] if self.n_draws else []
        variants = {repr(variant): variant for variant in (replace(method, **changes) for changes in self.settings)}
        draws += [(variant, 1) for variant in variants.values()]
        return sum(n * _passes_of_a_draw(variant) for variant, n in draws)


def _passes_of_a_draw(method: Baseline) -> int:
    """Guidance other than 0 and 1 takes a pass with and one without covariates."""
    both = getattr(method, "guidance", 1.0) not in (0.0, 1.0)
    return getattr(method, "n_steps", 1) * getattr(method, "n_resamples", 1) * (2 if both else 1)


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


def estimates(
    rows: Sequence[Row],
    budget: Budget,
    n_genes: int,
    speed: float | None = None,
    work: Callable[[Row], Work] = partial(Work.of_row, tune=True),
) -> pd.DataFrame:
    """Hours of training and of imputation, and memory, of each row on this machine, for one seed; rough, without metrics.

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
    work
        What the table asks of a row. Default: a comparison in which settings are chosen on validation cells.

    Returns
    -------
    A row for each row: parameters, floating-point operations of one pass over one cell, trainings, passes over each cell
    that is imputed, hours on this machine, all hours on one of some other devices in single precision, and memory. No time
    for methods without a network, which take minutes, or whose weights are in a file.

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
        method, asked = row.method(budget), work(row)
        network, training = untrained(method, cells), training_of(method, budget.n_training)
        of_cell, n_draws = operations(method, cells), asked.n_draws if method.draws else 1
        line = dict.fromkeys(COLUMNS, np.nan)
        if isinstance(method, ForestDiffusion):
            line["fit_hours"] = method.expected_hours(n_given, n_genes) / max(torch.get_num_threads(), 1)
        elif network is not None and of_cell is not None and training is not None:
            passes = asked.passes(method)
            # A step backwards costs two passes.
            fit = 3 * of_cell * training[0] * training[1] * asked.n_trainings
            impute = of_cell * passes * min(budget.n_test, asked.n_cells or budget.n_test)
            hours = {"fit_hours": fit / speed / 3600, "impute_hours": impute / speed / 3600}
            hours |= {f"hours_{name}": value for name, value in hours_by_device(fit + impute).items()}
            sizes = {"parameters": n_parameters(network), "mflop_per_cell": of_cell / 1e6}
            line |= sizes | {"trainings": asked.n_trainings, "passes": passes} | hours
        memory = n_given * n_genes * BYTES_PER_ENTRY + 4 * n_genes * budget.n_test * max(n_draws, 1) * 2
        lines[row.name] = line | {"memory_gb": memory / 2**30}
    return pd.DataFrame.from_dict(lines, orient="index")
