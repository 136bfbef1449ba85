"""Covariates replaced at prediction time, against cells that really have the new value.

    python docs/benchmarks/covariates.py --data FOLDER --save docs/benchmarks/results/covariates.csv

Kang et al.: control cells of each type are predicted as stimulated, with a model that has seen no stimulated cell of one of the
types, and compared with stimulated cells. Changes are log2 ratios of mean expression (counts per ten thousand, plus 1).
OneK1K: cells of all donors are brought to one donor. Donors are mixed if, among the nearest neighbours of a cell within its
type, its own donor is no more frequent than by chance (1). Cells are ones that the model was not trained on, with a seed that
nothing was chosen with. A run that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import anndata as ad
import numpy as np
import pandas as pd
import scvi
import torch
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors

from sccountsdiff import CountsDiffImputer
from sccountsdiff.benchmark.preprocessing import top_genes
from sccountsdiff.files import replacing

DEVELOPMENT, FINAL = (0, 1, 2), 10
"""Seeds that settings were chosen with, and the one of the saved table."""

N_CELLS, N_GENES, N_TESTED, MAX_EPOCHS, N_HIDDEN = 2400, 400, 800, 60, 128
HELD_OUT = "B cells"
RESPONDING = (
    "ISG15", "IFI6", "IFIT1", "IFIT2", "IFIT3", "MX1", "ISG20", "OAS1", "LY6E", "IFITM3", "CXCL10", "CXCL11", "IFI44L",
    "IFI35", "APOBEC3A",
)  # fmt: skip
"""Genes that interferon induces; those among the genes of the model count."""

TOTAL, LEAST_CELLS, N_NEIGHBOURS, N_DONORS = 1e4, 25, 20, 12
WAYS = ("replaced in obs", "transform_covariates")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, required=True, help="folder with kang_ifnb_pbmc.h5ad and onek1k_subset.h5ad"
    )
    parser.add_argument("--save", type=Path, required=True)
    parser.add_argument("--studies", nargs="+", choices=["kang", "onek1k"], default=["kang", "onek1k"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[FINAL])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    studies = {"kang": stimulation, "onek1k": donors}
    table = pd.read_csv(arguments.save) if arguments.save.exists() else pd.DataFrame(columns=["data", "seed"])
    for seed in arguments.seeds:
        for name in arguments.studies:
            if ((table["data"] == name) & (table["seed"] == seed)).any():
                continue
            rows = pd.DataFrame([{"data": name, "seed": seed} | row for row in studies[name](arguments.data, seed)])
            print(rows.round(3).to_string(), flush=True)
            table = pd.concat([table, rows], ignore_index=True)
            with replacing(arguments.save) as path:
                table.to_csv(path, index=False, float_format="%.5g")


def stimulation(folder: Path, seed: int) -> Iterator[dict]:
    """Control cells as stimulated ones: a row for each cell type and way to replace the condition."""
    cells = ad.read_h5ad(folder / "kang_ifnb_pbmc.h5ad")
    cells = cells[(cells.obs["donor"] != "doublet") & (cells.obs["cell_type"] != "Megakaryocytes")]
    train, test = split(cells, seed, N_CELLS)
    train = train[~((train.obs["cell_type"] == HELD_OUT) & (train.obs["condition"] == "stim"))]
    train = top_genes(train, N_GENES, "pearson_residuals").copy()
    test = test[:, train.var_names].copy()
    model = fit(train, seed, batch_key="donor", categorical_covariate_keys=["condition", "cell_type"])
    control = test[test.obs["condition"] == "ctrl"][:N_TESTED].copy()
    stimulated = test[test.obs["condition"] == "stim"]
    before, predictions = expression(model, control, "condition", "stim")
    genes = np.isin(train.var_names, RESPONDING)
    for cell_type in sorted(test.obs["cell_type"].unique()):
        ours, theirs = (some.obs["cell_type"].to_numpy() == cell_type for some in (control, stimulated))
        if min(ours.sum(), theirs.sum()) < LEAST_CELLS:
            continue
        measured, goal = scaled(control[ours].X.toarray()), scaled(stimulated[theirs].X.toarray())
        real = change(goal, measured)
        expressed = (goal.mean(0) + measured.mean(0)) / 2 > 1
        stable = expressed & (np.abs(real) < np.log2(1.25))
        for way, after in predictions.items():
            found = change(after[ours], before[ours])
            yield {
                "way": way,
                "group": cell_type,
                "held_out": cell_type == HELD_OUT,
                "n_cells": int(ours.sum()),
                "real_change": real[genes].mean(),
                "change": found[genes].mean(),
                "share": found[genes].mean() / real[genes].mean(),
                "correlation": np.corrcoef(real[expressed], found[expressed])[0, 1],
                "stable_moved": np.abs(found[stable]).mean(),
                "stable_moved_really": np.abs(real[stable]).mean(),
            }


def donors(folder: Path, seed: int) -> Iterator[dict]:
    """Cells of all donors brought to the one with most cells: a row for counts, expectations and each way to do that."""
    cells = ad.read_h5ad(folder / "onek1k_subset.h5ad")
    some = cells.obs["donor"].value_counts().index[:N_DONORS]
    train, test = split(cells[cells.obs["donor"].isin(some)], seed, 0.7)
    train = top_genes(train, N_GENES, "pearson_residuals").copy()
    test = test[:, train.var_names].copy()
    model = fit(train, seed, batch_key="donor")
    before, predictions = expression(model, test, "donor", str(some[0]))
    for way, values in {"counts": scaled(test.X.toarray()), "own donor": before, **predictions}.items():
        same_donor, same_type = mixing(values, test.obs["donor"].to_numpy(), test.obs["cell_type"].to_numpy())
        yield {"way": way, "group": "all", "n_cells": test.n_obs, "same_donor": same_donor, "same_type": same_type}


def split(cells: ad.AnnData, seed: int, size: float) -> tuple[ad.AnnData, ad.AnnData]:
    """Cells to train on, and others; a first quarter, the same for all seeds, is kept for the final one."""
    order = np.random.default_rng(0).permutation(cells.n_obs)
    kept, rest = np.split(order, [cells.n_obs // 4])
    rest = np.random.default_rng(seed).permutation(rest)
    n = int(size * len(rest)) if size < 1 else int(size)
    train, test = cells[rest[:n]].copy(), cells[kept if seed == FINAL else rest[n:]].copy()
    for part in (train, test):
        for key in part.obs.columns.intersection(["donor", "condition", "cell_type"]):
            part.obs[key] = part.obs[key].astype(str)
    return train, test


def fit(train: ad.AnnData, seed: int, **covariates) -> CountsDiffImputer:
    """A small model, trained for about a minute."""
    scvi.settings.seed = seed
    CountsDiffImputer.setup_anndata(train, **covariates)
    model = CountsDiffImputer(train, n_hidden=N_HIDDEN)
    model.train(max_epochs=MAX_EPOCHS, early_stopping_patience=MAX_EPOCHS // 4, enable_progress_bar=False)
    return model


def expression(
    model: CountsDiffImputer, cells: ad.AnnData, key: str, value: str
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Expected expression with the cells' own covariates, and with one of them replaced in each way."""
    options = {"library_size": TOTAL, "return_numpy": True, "silent": True}
    replaced = cells.copy()
    replaced.obs[key] = value
    found = (
        model.get_normalized_expression(replaced, **options),
        model.get_normalized_expression(cells, transform_covariates={key: value}, **options),
    )
    return model.get_normalized_expression(cells, **options), dict(zip(WAYS, found, strict=True))


def scaled(counts: np.ndarray) -> np.ndarray:
    """Counts per ten thousand of each cell."""
    return TOTAL * counts / counts.sum(1, keepdims=True).clip(1)


def change(after: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Log2 ratio of the mean of each gene."""
    return np.log2((after.mean(0) + 1) / (before.mean(0) + 1))


def mixing(values: np.ndarray, donor: np.ndarray, cell_type: np.ndarray) -> tuple[float, float]:
    """How often neighbours within a type have the same donor, over chance; and how often neighbours have the same type."""
    space = PCA(20, random_state=0).fit_transform(np.log1p(values))
    same, n_cells = [], []
    for name in np.unique(cell_type):
        rows = np.flatnonzero(cell_type == name)
        if len(rows) <= 2 * N_NEIGHBOURS:
            continue
        _, counts = np.unique(donor[rows], return_counts=True)
        by_chance = ((counts / len(rows)) ** 2).sum()
        same.append((donor[rows][neighbours(space[rows])] == donor[rows][:, None]).mean() / by_chance)
        n_cells.append(len(rows))
    return np.average(same, weights=n_cells), (cell_type[neighbours(space)] == cell_type[:, None]).mean()


def neighbours(space: np.ndarray) -> np.ndarray:
    """Nearest neighbours of each point, without itself."""
    found = NearestNeighbors(n_neighbors=N_NEIGHBOURS + 1).fit(space).kneighbors(space, return_distance=False)
    return found[:, 1:]


if __name__ == "__main__":
    main()
