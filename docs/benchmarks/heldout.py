"""How well hidden counts of held-out cells are predicted: CountsDiff against the depth-scaled cell-type mean and scVI.

    python docs/benchmarks/heldout.py DATA.h5ad --genes 1000 --seeds 0 1 2 --output docs/benchmarks/results/NAME.csv

A tenth of the cells are test cells; CountsDiff and scVI each hold out validation cells of their own from the others. Half
of the entries of each test cell are hidden at random, zeros included. All methods get the same cells, the same sites and
the same covariate, ``cell_type``; no method sees a hidden value, not even through the total of a cell. Genes are chosen
before the split, with the counts of the test cells, the same for all methods. Finished seeds are not run again.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import scvi
import torch

from sccountsdiff import CountsDiffImputer
from sccountsdiff.benchmark import metrics, preprocessing
from sccountsdiff.benchmark.baselines import get_baseline
from sccountsdiff.benchmark.missingness import MCAR

N_DRAWS = 50
SCVI_BUDGET = {"max_epochs": 150, "train_kwargs": {"early_stopping_patience": 20}}
PAPER = {"backbone": "transformer", "head": "softplus", "observed_training": False}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help=".h5ad file with raw counts in X and obs['cell_type']")
    parser.add_argument("--genes", type=int, help="most variable genes to keep (default: all)")
    parser.add_argument("--min-cells", type=int, default=10, help="cells a gene must be found in")
    parser.add_argument("--cells", type=int, help="keep only this many cells, at random")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--paper", action="store_true", help="the paper's network, training and RePaint instead")
    parser.add_argument("--max-epochs", type=int, help="budget of CountsDiff (default: its own)")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()

    adata = preprocessing.filter_genes(anndata.read_h5ad(arguments.data), arguments.min_cells)
    if arguments.genes:
        adata = preprocessing.top_genes(adata, arguments.genes, by="variance")
    if arguments.cells:
        adata = adata[np.random.default_rng(0).permutation(adata.n_obs)[: arguments.cells]].copy()
    print(f"{arguments.data}: {adata.n_obs} cells, {adata.n_vars} genes, {torch.get_num_threads()} threads")
    done = pd.read_csv(arguments.output) if arguments.output.exists() else pd.DataFrame({"seed": []})
    for seed in arguments.seeds:
        if seed in set(done["seed"]):
            continue
        rows = run_seed(adata, seed, arguments.paper, arguments.max_epochs)
        done = pd.concat([done, pd.DataFrame(rows).assign(seed=seed)], ignore_index=True)
        done.to_csv(arguments.output, index=False, float_format="%.6g")
        print(done[done["seed"] == seed].drop(columns="seed").set_index("method").round(4).T.to_string(), flush=True)
    summary = done.groupby("method", sort=False).mean().drop(columns="seed").round(4)
    summary.insert(0, "seeds", done.groupby("method", sort=False)["seed"].nunique())
    summary = summary.T.rename_axis("metric")
    summary.to_csv(arguments.output.with_stem(arguments.output.stem + "_summary"), float_format="%.4g")
    print("\nMean over seeds")
    print(summary.to_string())


def run_seed(adata: anndata.AnnData, seed: int, paper: bool, max_epochs: int | None) -> list[dict]:
    """One split, one set of sites, all methods."""
    train_cells, validation_cells, test_cells = preprocessing.split_cells(adata, (0.8, 0.1, 0.1), seed=seed)
    # CountsDiff and scVI each draw validation cells of their own from these 90 %; the means are over all of them.
    train, test = adata[np.concatenate([train_cells, validation_cells])].copy(), adata[test_cells].copy()
    truth = test.X.toarray()
    sites = MCAR(0.5)(truth, seed=seed)
    rank = np.asarray(train.X.mean(0)).ravel().argsort().argsort()
    third = np.array(["low", "middle", "high"])[rank * 3 // len(rank)]
    rows = []

    def report(method: str, answer: np.ndarray, seconds: float, **more: float) -> None:
        scores = {
            name: getattr(metrics, name)(truth, answer, sites)
            for name in ("rmse", "poisson_loss", "spearman", "bias", "energy_distance")
        }
        scores["sliced_wasserstein"] = metrics.sliced_wasserstein(truth, answer)
        rows.append({"method": method, **scores, **more, "seconds": seconds})
        print(
            f"seed {seed} {method}: " + ", ".join(f"{k} {v:.4f}" for k, v in rows[-1].items() if k != "method"),
            flush=True,
        )

    def calibration(draws: np.ndarray) -> dict[str, float]:
        by_third = metrics.pit_ks(truth, draws, sites, gene_strata=third)
        return {"pit_ks": metrics.pit_ks(truth, draws, sites)} | {
            f"pit_ks_{k}": by_third[k] for k in ("low", "middle", "high")
        }

    if not paper:
        start = time.perf_counter()
        method = get_baseline("conditional_mean_scaled")().fit(train, covariates=["cell_type"], seed=seed)
        report("cell-type mean x depth", method.impute(test, sites, seed=seed), time.perf_counter() - start)
        start = time.perf_counter()
        method = get_baseline("scvi")(**SCVI_BUDGET).fit(train, covariates=["cell_type"], seed=seed)
        report("scVI", method.impute(test, sites, seed=seed), time.perf_counter() - start)
        method.n_rounds = 5  # hidden counts are first 0, then what scVI expects them to be
        report("scVI, refined", method.impute(test, sites, seed=seed), time.perf_counter() - start)

    scvi.settings.seed = seed
    start = time.perf_counter()
    CountsDiffImputer.setup_anndata(train, categorical_covariate_keys=["cell_type"])
    model = CountsDiffImputer(train, **(PAPER if paper else {}))
    model.train(max_epochs, train_size=8 / 9, enable_progress_bar=False)
    seconds = time.perf_counter() - start
    print(f"seed {seed} trained {len(model.history['train_loss'])} of {model.trainer.max_epochs} epochs", flush=True)

    known = "noised" if paper else "clean"
    draw_options = {"known": known, "key_added": None, "silent": True, "return_mean": False, "seed": seed}
    if paper:  # 19 steps, 3 rounds of RePaint, guidance 1 (App. E.5)
        start = time.perf_counter()
        draws = model.impute(test, sites=sites, n_samples=5, n_steps=19, n_resamples=3, **draw_options)
        report("paper, 1 draw", draws[0], seconds + (time.perf_counter() - start) / 5)
        report("paper, 5 draws", draws.mean(0), seconds + time.perf_counter() - start, **calibration(draws[:, sites]))
        return rows
    start = time.perf_counter()
    mean = model.impute(test, sites=sites, n_steps=1, final="mean", key_added=None, silent=True)
    report("CountsDiff, one-pass mean", mean.toarray(), seconds + time.perf_counter() - start)
    start = time.perf_counter()
    draws = model.impute(test, sites=sites, n_samples=N_DRAWS, **draw_options)
    seconds_per_draw = (time.perf_counter() - start) / N_DRAWS
    report("CountsDiff, 1 draw", draws[0], seconds + seconds_per_draw)
    report("CountsDiff, 5 draws", draws[:5].mean(0), seconds + 5 * seconds_per_draw)
    report(
        f"CountsDiff, {N_DRAWS} draws",
        draws.mean(0),
        seconds + N_DRAWS * seconds_per_draw,
        **calibration(draws[:, sites]),
    )
    return rows


if __name__ == "__main__":
    main()
