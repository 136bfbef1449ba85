"""The largest draws, relative to the largest count that their gene has in the training cells: do any run away?

    python docs/benchmarks/largest_draws.py FILE.h5ad ... --save docs/benchmarks/results/largest_draws.csv

The 1,000 genes with the largest variance of up to 2,000 cells, of which a fifth are test cells; half of their entries are
hidden and drawn, each at least a million times in all, with the defaults of model and sampling.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import anndata as ad
import numpy as np
import pandas as pd
import torch

from sccountsdiff.benchmark.baselines import CountsDiff
from sccountsdiff.benchmark.missingness import MCAR
from sccountsdiff.benchmark.preprocessing import filter_genes, split_cells, top_genes

N_CELLS, N_GENES, N_DRAWS = 2000, 1000, 1_000_000


def measure(path: Path, seed: int) -> dict[str, object]:
    """Train on a file, draw, and say how far the draws go."""
    cells = ad.read_h5ad(path)
    cells = cells[np.sort(np.random.default_rng(seed).permutation(cells.n_obs)[:N_CELLS])].copy()
    cells = top_genes(filter_genes(cells, 10), N_GENES, by="variance")
    train, test = (cells[rows].copy() for rows in split_cells(cells, (0.8, 0.2), seed=seed))
    sites = MCAR(0.5)(test.X, seed=seed)
    covariates = ["cell_type"] if "cell_type" in cells.obs else []
    method = CountsDiff().fit(train, covariates=covariates, seed=seed)
    n_samples = max(2, math.ceil(N_DRAWS / sites.sum()))
    draws = method.impute(test, sites, n_samples=n_samples, seed=seed)[:, sites]
    largest = np.maximum(train.X.max(axis=0).toarray().ravel(), 1)[np.nonzero(sites)[1]]
    ratio = draws / largest
    truth = test.X.toarray()[sites] / largest
    return {
        "data": path.stem,
        "seed": seed,
        "draws": draws.size,
        "largest_count": int(largest.max()),
        "largest_ratio": ratio.max(),
        "above_three_times": int((ratio > 3).sum()),
        "above_once": (ratio > 1).mean(),
        "true_above_once": (truth > 1).mean(),
        "true_largest_ratio": truth.max(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="+", help=".h5ad files with raw counts in X")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", type=Path, required=True, help="the table")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    table = pd.DataFrame([measure(path, arguments.seed) for path in arguments.data])
    print(table.to_string(index=False))
    table.to_csv(arguments.save, index=False, float_format="%.5g")


if __name__ == "__main__":
    main()
