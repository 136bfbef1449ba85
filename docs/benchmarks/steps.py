"""How many steps a draw needs, and how they are best spaced, where genes or a whole modality are missing.

    python docs/benchmarks/steps.py --data FOLDER --save docs/benchmarks/results/steps.csv

Half of the genes are hidden in cells that were not trained on (of those that are test cells with no seed of
``six_data_sets.py``), or all peaks or proteins in 30 % of the cells (as in ``blocks.py``, with other seeds). One trained model
draws in many ways. A run that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import anndata as ad
import numpy as np
import pandas as pd
import torch
from ablation import COMPARED_SEEDS, PREPARATION
from blocks import BLOCKS

import sccountsdiff.benchmark as bm
from sccountsdiff.benchmark import metrics
from sccountsdiff.benchmark.baselines import CountsDiff
from sccountsdiff.benchmark.preprocessing import split_cells
from sccountsdiff.benchmark.tuning import training_cells
from sccountsdiff.data.reading import dense
from sccountsdiff.files import replacing

WALKS = [("even", n) for n in (1, 3, 5, 15, 30)] + [("geometric", n) for n in (2, 3, 4, 5, 8)]
PANELS = ("pbmc3k", "zeisel_cortex_subset_ercc", "sc_mixology_rnamix", "onek1k_subset")
SEEDS = (0, 1)
N_DRAWS, N_COMPARED = 6, 60

Task = tuple[CountsDiff, ad.AnnData, np.ndarray]
"""A trained method, cells to fill in, and which of their entries."""


def half_of_the_genes(name: str, folder: Path, seed: int) -> Task:
    """Half of the genes are hidden in cells that are not trained on."""
    labelled = {} if name == "sc_mixology_rnamix" else {"covariates": ["cell_type"], "label": "cell_type"}
    dataset = bm.datasets.load_dataset(folder / f"{name}.h5ad", **labelled)
    dataset = training_cells(dataset, COMPARED_SEEDS, 0.25, **PREPARATION)
    train, test = (dataset.adata[cells].copy() for cells in split_cells(dataset.adata, (0.8, 0.2), seed=seed))
    method = CountsDiff().fit(train, covariates=labelled.get("covariates", ()), seed=seed)
    hidden = np.random.default_rng(seed).permutation(test.n_vars) < test.n_vars // 2
    return method, test, np.broadcast_to(hidden, test.shape)


def modality(name: str, folder: Path, seed: int) -> Task:
    """All of a modality is hidden in some of the cells, of which all else is trained on."""
    cells, hidden = BLOCKS[name](folder, np.random.default_rng(seed))
    seen = ad.AnnData(np.where(hidden, 0, cells.X), var=cells.var)
    method = CountsDiff().fit(seen, observed=~hidden, modality="modality", seed=seed)
    lacking = hidden.any(1)
    return method, cells[lacking].copy(), hidden[lacking]


TASKS = {name: partial(half_of_the_genes, name) for name in PANELS} | {
    name: partial(modality, name) for name in ("proteins", "peaks")
}


def scores(method: CountsDiff, cells: ad.AnnData, sites: np.ndarray, seed: int) -> Iterator[dict]:
    """How well each walk keeps the correlations of hidden genes, their sum and their distribution."""
    truth = dense(cells.X)
    logs = np.log1p(truth)
    genes = np.flatnonzero(sites.any(0))
    genes = genes[np.argsort(-logs[:, genes].var(0), kind="stable")[:N_COMPARED]]
    pairs = np.triu_indices(len(genes), 1)

    def correlations(counts: np.ndarray) -> np.ndarray:
        return np.nan_to_num(np.corrcoef(np.log1p(counts[:, genes]).T)[pairs])

    true = correlations(truth)
    for spacing, n_steps in WALKS:
        method.n_steps, method.spacing = n_steps, spacing
        start = time.process_time()
        draws = method.impute(cells, sites, n_samples=N_DRAWS, seed=seed)
        seconds = time.process_time() - start
        found = np.mean([correlations(draw) for draw in draws], axis=0)
        yield {
            "spacing": spacing,
            "n_steps": n_steps,
            "correlation_kept": (found @ true) / (true @ true),
            "ratio_of_sums": draws[:, sites].mean() / truth[sites].mean(),
            "energy_distance": np.mean([metrics.energy_distance(truth, draw, sites) for draw in draws]),
            "crps": metrics.crps(truth, draws[:, sites], sites),
            "coverage_90": np.mean(np.abs(metrics.pit(truth, draws[:, sites], sites, seed=seed) - 0.5) <= 0.45),
            "cpu_seconds": seconds,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the .h5ad and .h5mu files")
    parser.add_argument("--save", type=Path, required=True, help="the table")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    table = pd.read_csv(arguments.save) if arguments.save.exists() else pd.DataFrame()
    for seed in SEEDS:
        for task in arguments.tasks:
            if len(table) and ((table["task"] == task) & (table["seed"] == seed)).any():
                continue
            found = pd.DataFrame(scores(*TASKS[task](arguments.data, seed), seed))
            found.insert(0, "task", task)
            found.insert(1, "seed", seed)
            table = pd.concat([table, found]) if len(table) else found
            with replacing(arguments.save) as partial_file:
                table.to_csv(partial_file, index=False, float_format="%.5g")
            print(found.round(3).to_string(index=False), flush=True)


if __name__ == "__main__":
    main()
