"""How many test cells it takes until the sliced Wasserstein distance prefers a perfect draw to a perfect mean.

    python docs/benchmarks/oracle_distance.py DATA.h5ad --output docs/benchmarks/results/oracle_distance.csv

Cells are simulated from known rates (cell-type profile times depth of the real cells, negative binomial with dispersion
2). Half of their entries are filled in with the rates themselves, or with new draws from the very law they came from. No
method can do better than that.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import anndata
import numpy as np
import pandas as pd

from sccountsdiff.benchmark import metrics, preprocessing
from sccountsdiff.benchmark.missingness import MCAR

DISPERSION = 2.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help=".h5ad file with raw counts in X and obs['cell_type']")
    parser.add_argument("--cells", type=int, nargs="+", default=[210, 2100])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()

    adata = preprocessing.filter_genes(anndata.read_h5ad(arguments.data), 10)
    counts, labels = adata.X.toarray(), adata.obs["cell_type"].astype(str).to_numpy()
    rates = np.zeros_like(counts)
    for label in np.unique(labels):
        cells = labels == label
        profile = counts[cells].sum(0) / counts[cells].sum()
        rates[cells] = counts[cells].sum(1, keepdims=True) * profile

    rows = []
    for n_cells in arguments.cells:
        for seed in arguments.seeds:
            rng = np.random.default_rng(seed)
            rate = rates[rng.permutation(len(rates))[:n_cells]]
            truth, perfect = (rng.poisson(rng.gamma(DISPERSION, rate / DISPERSION)).astype("f4") for _ in range(2))
            sites = MCAR(0.5)(truth, seed=seed)
            distances = {
                name: metrics.sliced_wasserstein(truth, np.where(sites, answer, truth))
                for name, answer in (("perfect mean", rate), ("perfect draw", perfect))
            }
            rows.append({"cells": n_cells, "seed": seed, **distances})
            print(rows[-1], flush=True)
    pd.DataFrame(rows).to_csv(arguments.output, index=False, float_format="%.4g")


if __name__ == "__main__":
    main()
