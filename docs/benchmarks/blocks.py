"""Whole blocks of genes, proteins or peaks missing in some cells, in data that is trained on as it is.

    python docs/benchmarks/blocks.py --data FOLDER --save docs/benchmarks/results/blocks.csv

All proteins (ECCITE-seq) or all peaks (multiome) are hidden in 30 % of the cells; or, in OneK1K, half of the genes in cells of
half of the donors, at random or in correlated groups; or two panels of 40 % of the genes, each in half of the donors, of whom
one half was also sequenced at half the depth. Methods that can learn from incomplete cells see all cells, others those that
lack nothing, if there are any, and all fill in what is hidden. Seeds that no setting was chosen with. A run that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import anndata as ad
import mudata
import numpy as np
import pandas as pd
import torch
from scipy.stats import spearmanr

from sccountsdiff.benchmark import baselines, metrics
from sccountsdiff.benchmark.missingness import CorrelatedPanel, split_molecules
from sccountsdiff.data.reading import dense
from sccountsdiff.files import replacing

METHODS = [
    baselines.GeneMean(),
    baselines.ScaledGeneMean(),
    baselines.KNNMean(),
    baselines.GaussianRegression(),
    baselines.CountsDiff(),
]
SEEDS = (10, 11, 12)
N_GENES, N_CELLS, N_DRAWS, LACKING = 200, 2000, 20, 0.3

Made = tuple[ad.AnnData, np.ndarray]
"""Cells, and which of their entries are hidden."""


def most_expressed(adata: ad.AnnData, n: int) -> np.ndarray:
    """Counts of the n genes with the largest mean, in their order."""
    counts = dense(adata.X)
    return counts[:, np.sort(np.argsort(-counts.mean(0), kind="stable")[:n])]


def modality(file: str, name: str) -> Callable[[Path, np.random.Generator], Made]:
    """All of a second modality is missing in some cells."""

    def make(folder: Path, rng: np.random.Generator) -> Made:
        mdata = mudata.read_h5mu(folder / file)
        parts = [most_expressed(mdata["rna"], N_GENES), most_expressed(mdata[name], N_GENES)]
        counts = np.concatenate(parts, axis=1).astype(np.float32)
        lacking = rng.random(len(counts)) < LACKING
        names = np.repeat(["rna", name], [part.shape[1] for part in parts])
        cells = ad.AnnData(counts, var=pd.DataFrame({"modality": names}, index=np.arange(len(names)).astype(str)))
        return cells, lacking[:, None] & (names == name)

    return make


def panel(correlated: bool = False, both: bool = False) -> Callable[[Path, np.random.Generator], Made]:
    """Half of the genes are missing in the cells of half of the donors; or two panels, each in half of the donors."""

    def make(folder: Path, rng: np.random.Generator) -> Made:
        cells = ad.read_h5ad(folder / "onek1k_subset.h5ad")
        cells = cells[np.sort(rng.permutation(cells.n_obs)[:N_CELLS])]
        counts = most_expressed(cells, 2 * N_GENES).astype(np.float32)
        donors = cells.obs["donor"].astype(str).to_numpy()
        names = rng.permutation(np.unique(donors))
        in_first = np.isin(donors, names[: len(names) // 2])
        if both:  # and the second half of the donors is sequenced less deeply
            counts[~in_first] = split_molecules(counts[~in_first].astype(int), 0.5, seed=int(rng.integers(2**31)))[0]
        seed = int(rng.integers(2**31))
        place = rng.permutation(2 * N_GENES) / (2 * N_GENES)
        first = CorrelatedPanel(0.5)(counts, seed=seed)[0] if correlated else place < (0.4 if both else 0.5)
        hidden = in_first[:, None] & first
        if both:
            hidden |= ~in_first[:, None] & (place >= 0.6)
        enough = (counts * ~hidden).sum(1) > 0
        return ad.AnnData(counts[enough]), hidden[enough]

    return make


BLOCKS = {
    "proteins": modality("eccite_pbmc_citefuse.h5mu", "prot"),
    "peaks": modality("pbmc_multiome_500.h5mu", "atac"),
    "panel": panel(),
    "panel, correlated": panel(correlated=True),
    "two panels, two depths": panel(both=True),
}


def scores(method: baselines.Baseline, cells: ad.AnnData, hidden: np.ndarray, seed: int) -> dict[str, float]:
    """How well a method fills in what is hidden."""
    complete = ~hidden.any(1)
    modality = "modality" if "modality" in cells.var else None
    if method.uses_mask:
        seen = ad.AnnData(np.where(hidden, 0, cells.X), var=cells.var)
        method.fit(seen, observed=~hidden, modality=modality, seed=seed)
    else:
        method.fit(cells[complete].copy(), seed=seed)
    lacking, sites, truth = cells[~complete].copy(), hidden[~complete], cells.X[~complete]
    if isinstance(method, baselines.CountsDiff):
        mean = baselines.CountsDiffMean().take_over(method).impute(lacking, sites, seed=seed)
    else:
        mean = method.impute(lacking, sites, seed=seed)
    genes = np.flatnonzero(sites.any(0) & (truth.max(0) > 0))
    ranks = [spearmanr(mean[sites[:, g], g], truth[sites[:, g], g])[0] for g in genes]
    found = {
        "rmse": metrics.rmse(truth=truth, imputed=mean, sites=sites),
        "ratio_of_sums": metrics.ratio_of_sums(truth=truth, imputed=mean, sites=sites),
        "ratio_of_sums_se": _error_of_ratio((mean * sites).sum(1), (truth * sites).sum(1)),
        "spearman_per_gene": float(np.nanmedian(np.nan_to_num(ranks))),
    }
    if method.draws:
        draws = method.impute(lacking, sites, n_samples=N_DRAWS, seed=seed)[:, sites]
        ranks = metrics.pit(truth, draws, sites, seed=seed)
        found["coverage_90"] = float(np.mean(np.abs(ranks - 0.5) <= 0.45))
    return found


def _error_of_ratio(found: np.ndarray, true: np.ndarray) -> float:
    """Standard error of a ratio of sums over cells, by resampling the cells."""
    cells = np.random.default_rng(0).integers(len(true), size=(1000, len(true)))
    return float((found[cells].sum(1) / true[cells].sum(1)).std())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the .h5ad and .h5mu files")
    parser.add_argument("--save", type=Path, required=True, help="the table")
    parser.add_argument("--blocks", nargs="+", choices=BLOCKS, default=list(BLOCKS))
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    keys = ["block", "seed", "method"]
    table = pd.read_csv(arguments.save) if arguments.save.exists() else pd.DataFrame(columns=[*keys, "metric", "value"])
    for seed in arguments.seeds:
        for block in arguments.blocks:
            cells, hidden = BLOCKS[block](arguments.data, np.random.default_rng(seed))
            for method in METHODS:
                cannot_learn = hidden.any(1).all() and not method.uses_mask
                if cannot_learn or (table[keys] == [block, seed, method.name]).all(axis=1).any():
                    continue
                found = scores(type(method)(), cells, hidden, seed)
                rows = [[block, seed, method.name, metric, value] for metric, value in found.items()]
                added = pd.DataFrame(rows, columns=table.columns)
                table = added if table.empty else pd.concat([table, added])
                with replacing(arguments.save) as partial:
                    table.to_csv(partial, index=False, float_format="%.5g")
                shown = "  ".join(f"{metric} {value:.3f}" for metric, value in found.items())
                print(f"{block}, seed {seed}, {method.name}: {shown}", flush=True)


if __name__ == "__main__":
    main()
