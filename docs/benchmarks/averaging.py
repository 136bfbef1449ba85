"""Draws averaged, or the expectation that the first step knows: which is closer to hidden counts, and at what cost.

    python docs/benchmarks/averaging.py FILE.h5ad ... --save docs/benchmarks/results/averaging.csv

Models of 1,200 cells and the 600 genes that vary most; half of the entries of 300 other cells are hidden. Rows of a file and seed
that are there already stay.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import scvi

from sccountsdiff import CountsDiffImputer
from sccountsdiff.benchmark import metrics
from sccountsdiff.benchmark.missingness import MCAR
from sccountsdiff.files import replacing

N_CELLS, N_GENES, TEST_SHARE = 1500, 600, 0.2
ANSWERS = {
    "one pass": {"n_samples": 0},
    "5 chains of 2 steps, expectation": {"n_samples": 5, "n_steps": 2},
    "5 chains of 5 steps, expectation": {"n_samples": 5, "n_steps": 5},
    "5 chains of 15 steps, expectation": {"n_samples": 5},
    "5 chains of 15 steps, draws": {"n_samples": 5, "final": "sample"},
    "30 chains of 15 steps, expectation": {"n_samples": 30},
    "5 chains of 15 steps, counts thinned": {"n_samples": 5, "known": "noised"},
}
"""Arguments of ``impute``, whose steps are even: what is averaged over the chains is the expectation of the last step, or the draw."""


def prepare(path: Path, seed: int) -> tuple[anndata.AnnData, anndata.AnnData]:
    """Training and test cells of some of the cells, with the genes that vary most in training."""
    adata, rng = anndata.read_h5ad(path), np.random.default_rng(seed)
    adata = adata[rng.permutation(adata.n_obs)[:N_CELLS]].to_memory()
    n_test = int(TEST_SHARE * adata.n_obs)
    counts = adata.X.toarray()
    genes = np.sort(np.argsort(-counts[n_test:].var(0))[:N_GENES])
    return adata[n_test:, genes].copy(), adata[:n_test, genes].copy()


def score(path: Path, seed: int) -> pd.DataFrame:
    """Errors and times of all answers of one model."""
    train, test = prepare(path, seed)
    scvi.settings.seed = seed
    labels = "cell_type" if "cell_type" in train.obs else None
    CountsDiffImputer.setup_anndata(train, labels_key=labels)
    model = CountsDiffImputer(train)
    model.train(enable_progress_bar=False)
    truth = test.X.toarray()
    sites = MCAR(0.5)(truth, seed=seed)
    rows = []
    for answer, arguments in ANSWERS.items():
        start = time.process_time()
        found = model.impute(
            test, sites=sites, spacing="even", seed=seed, key_added=None, unseen_to_null=True, silent=True, **arguments
        )
        seconds = time.process_time() - start
        values = {
            name: getattr(metrics, name)(truth, found.toarray(), sites) for name in ("rmse", "poisson_loss", "spearman")
        }
        rows += [
            {"data": path.stem, "seed": seed, "answer": answer, "metric": name, "value": value}
            for name, value in (values | {"cpu_seconds": seconds}).items()
        ]
    return pd.DataFrame(rows)


def main() -> None:
    """Run what is not there yet, and save after each model."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--save", type=Path, required=True)
    arguments = parser.parse_args()
    table = pd.read_csv(arguments.save) if arguments.save.exists() else pd.DataFrame(columns=["data", "seed"])
    for seed in arguments.seeds:
        for path in arguments.files:
            if not ((table["data"] == path.stem) & (table["seed"] == seed)).any():
                table = pd.concat([table, score(path, seed)], ignore_index=True)
                with replacing(arguments.save) as beside:
                    table.to_csv(beside, index=False)
    print(table.pivot_table(index=["data", "answer"], columns="metric", values="value", sort=False).round(4))


if __name__ == "__main__":
    main()
