"""How well embeddings keep types of cells apart and mix batches: of CountsDiff, of scVI and principal components.

    python docs/benchmarks/latent.py --data FOLDER --save docs/benchmarks/results/latent.csv

1,000 cells and the 300 genes with the largest variance. Both models are told the batch, none is told the types. Types
are predicted from 15 neighbours in the embedding (5-fold), and neighbours of the same batch are counted among cells of the
same type, relative to what chance would give: 1 is perfectly mixed. Seeds that nothing was chosen with. A run that was
interrupted goes on where it stopped.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import anndata as ad
import numpy as np
import pandas as pd
import scanpy as sc
import torch
from sklearn.metrics import silhouette_score
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors

from sccountsdiff import CountsDiffImputer
from sccountsdiff.benchmark.quiet import quiet
from sccountsdiff.benchmark.scvi_training import fit_scvi
from sccountsdiff.data.reading import dense
from sccountsdiff.files import replacing
from sccountsdiff.seeding import global_seed

DATASETS = {
    "pbmc3k": ("pbmc3k.h5ad", None),
    "kang": ("kang_ifnb_pbmc.h5ad", "condition"),
    "onek1k": ("onek1k_subset.h5ad", "donor"),
}
"""Files, and the column with the batch."""

SEEDS = (10, 11, 12)
N_CELLS, N_GENES, N_NEIGHBORS, N_COMPONENTS = 1000, 300, 15, 20


def load(folder: Path, name: str, seed: int) -> ad.AnnData:
    """Some cells of known type, and the genes that vary most among them."""
    file, batch = DATASETS[name]
    cells = ad.read_h5ad(folder / file)
    known = ~cells.obs["cell_type"].astype(str).isin(["unassigned", "nan"])
    if batch is not None:
        known &= ~cells.obs[batch].astype(str).isin(["doublet", "nan"])
    rows = np.sort(np.random.default_rng(seed).permutation(np.flatnonzero(known))[:N_CELLS])
    counts = dense(cells.X[rows])
    counts = counts[:, np.sort(np.argsort(-counts.var(0), kind="stable")[:N_GENES])].astype(np.float32)
    obs = pd.DataFrame({"cell_type": cells.obs["cell_type"].astype(str).to_numpy()[rows]})
    obs["batch"] = "" if batch is None else cells.obs[batch].astype(str).to_numpy()[rows]
    obs.index = obs.index.astype(str)
    seen = counts.sum(1) > 0
    return ad.AnnData(counts[seen], obs=obs[seen])


def covariates(cells: ad.AnnData) -> list[str]:
    """The batch, if there are several."""
    return ["batch"] if cells.obs["batch"].nunique() > 1 else []


def principal_components(cells: ad.AnnData, seed: int) -> np.ndarray:
    """As in most analyses: of log counts of cells that are scaled to the same total."""
    cells = cells.copy()
    sc.pp.normalize_total(cells, target_sum=1e4)
    sc.pp.log1p(cells)
    sc.pp.pca(cells, n_comps=N_COMPONENTS, random_state=seed)
    return cells.obsm["X_pca"]


def scvi(cells: ad.AnnData, seed: int) -> np.ndarray:
    """Latent means of scVI."""
    return fit_scvi(cells.copy(), categorical_covariate_keys=covariates(cells), seed=seed).get_latent_representation()


def fit_countsdiff(cells: ad.AnnData, seed: int) -> CountsDiffImputer:
    """The default model."""
    cells = cells.copy()
    with global_seed(seed), quiet():
        CountsDiffImputer.setup_anndata(cells, categorical_covariate_keys=covariates(cells))
        model = CountsDiffImputer(cells)
        model.train(enable_progress_bar=False, logger=False)
    return model


def countsdiff(cells: ad.AnnData, seed: int) -> np.ndarray:
    """Hidden layer of CountsDiff."""
    return fit_countsdiff(cells, seed).get_latent_representation(silent=True)


METHODS = {"pca": principal_components, "scvi": scvi, "countsdiff": countsdiff}


def scores(latent: np.ndarray, obs: pd.DataFrame, seed: int) -> dict[str, float]:
    """How well types are kept, and how well batches are mixed."""
    types, batches = obs["cell_type"].to_numpy(), obs["batch"].to_numpy()
    names, sizes = np.unique(types, return_counts=True)
    common = np.isin(types, names[sizes >= 10])
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    accuracy = cross_val_score(
        KNeighborsClassifier(N_NEIGHBORS), latent[common], types[common], cv=folds, scoring="balanced_accuracy"
    )
    found = {
        "type_accuracy": float(accuracy.mean()),
        "type_silhouette": float(silhouette_score(latent[common], types[common])),
    }
    if len(np.unique(batches)) > 1:
        same, chance = 0.0, 0.0
        for name in names[sizes > N_NEIGHBORS]:
            rows = np.flatnonzero(types == name)
            near = NearestNeighbors(n_neighbors=N_NEIGHBORS).fit(latent[rows]).kneighbors(return_distance=False)
            same += (batches[rows][near] == batches[rows][:, None]).sum()
            _, n_of = np.unique(batches[rows], return_counts=True)
            chance += N_NEIGHBORS * (n_of * (n_of - 1)).sum() / (len(rows) - 1)
        found["same_batch"] = float(same / chance)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the .h5ad files")
    parser.add_argument("--save", type=Path, required=True, help="the table")
    parser.add_argument("--datasets", nargs="+", choices=DATASETS, default=list(DATASETS))
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    keys = ["dataset", "seed", "method"]
    table = pd.read_csv(arguments.save) if arguments.save.exists() else pd.DataFrame(columns=[*keys, "metric", "value"])
    for seed in arguments.seeds:
        for dataset in arguments.datasets:
            cells = load(arguments.data, dataset, seed)
            for method, embed in METHODS.items():
                if (table[keys] == [dataset, seed, method]).all(axis=1).any():
                    continue
                found = scores(np.asarray(embed(cells, seed)), cells.obs, seed)
                rows = [[dataset, seed, method, metric, value] for metric, value in found.items()]
                added = pd.DataFrame(rows, columns=table.columns)
                table = added if table.empty else pd.concat([table, added])
                with replacing(arguments.save) as partial:
                    table.to_csv(partial, index=False, float_format="%.5g")
                print(dataset, seed, method, {metric: round(value, 3) for metric, value in found.items()}, flush=True)


if __name__ == "__main__":
    main()
