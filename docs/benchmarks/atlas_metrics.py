"""Time of the distributional metrics at the size of the paper's bootstrap resamples, and how exact MMD is.

    python docs/benchmarks/atlas_metrics.py --save docs/benchmarks/results/atlas_metrics.csv

50,000 cells of 1,000 genes with negative-binomial counts; the imputed cells have half of their entries drawn anew. MMD of 3,000
of the cells is also computed in the plainest way. ``cpu_seconds`` are those of all threads together: on a machine that does other work
at the same time they say more than ``seconds``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from sccountsdiff.benchmark import metrics
from sccountsdiff.benchmark.metrics import kernel
from sccountsdiff.files import replacing


def cells(n_cells: int, n_genes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """True counts, imputed ones, and the sites."""
    rng = np.random.default_rng(seed)
    rates = rng.gamma(0.3, 1, n_genes).astype(np.float32)
    draw = lambda: rng.poisson(rates * rng.gamma(2, 0.5, (n_cells, 1)).astype(np.float32)).astype(np.float32)
    truth, sites = draw(), rng.random((n_cells, n_genes), dtype=np.float32) < 0.5
    return truth, np.where(sites, draw(), truth), sites


def plain_mmd(truth: np.ndarray, imputed: np.ndarray) -> float:
    """MMD by numpy in double precision: every distance, every kernel."""
    both = np.concatenate([truth, imputed]).astype(np.float64)
    norms = (both**2).sum(axis=1)
    squared = norms[:, None] + norms - 2 * both @ both.T
    some = np.random.default_rng(0).choice(len(truth), min(len(truth), 2000), replace=False)  # those that mmd takes
    median = np.median(np.sqrt(squared[np.ix_(some, some)])[np.triu_indices(len(some), k=1)])
    signs = np.repeat([1.0, -1.0], len(truth)) / len(truth)
    return float(
        np.mean([signs @ np.exp(-squared / (2 * (scale * median) ** 2)) @ signs for scale in (0.25, 0.5, 1, 2, 4)])
    )


def measured(name: str, compute: Callable[[], float], truth: np.ndarray) -> dict[str, float | str | int]:
    """Value and time of a metric."""
    start, cpu = time.perf_counter(), time.process_time()
    value = compute()
    row = {"metric": name, "n_cells": len(truth), "n_genes": truth.shape[1], "threads": torch.get_num_threads()}
    row |= {"value": value, "seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - cpu}
    print(row, flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=50_000)
    parser.add_argument("--genes", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--save", type=Path, required=True, help="the table")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    truth, imputed, sites = cells(options.cells, options.genes)
    few = slice(3000)
    rows = [measured("mmd, plain numpy", lambda: plain_mmd(truth[few], imputed[few]), truth[few])]
    for name, limit in (("mmd, double", 10**9), ("mmd, single", 0)):
        kernel.DOUBLE_UP_TO = limit
        rows.append(measured(name, lambda: metrics.mmd(truth[few], imputed[few]), truth[few]))
    rows.append(measured("mmd", lambda: metrics.mmd(truth, imputed), truth))
    rows.append(measured("energy_distance", lambda: metrics.energy_distance(truth, imputed, sites), truth))
    rows.append(measured("sliced_wasserstein", lambda: metrics.sliced_wasserstein(truth, imputed), truth))
    with replacing(options.save) as beside:
        pd.DataFrame(rows).to_csv(beside, index=False, float_format="%.12g")


if __name__ == "__main__":
    main()
