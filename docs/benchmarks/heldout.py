"""How well hidden counts of held-out cells are predicted: CountsDiff against the depth-scaled cell-type mean and scVI.

    python docs/benchmarks/heldout.py DATA.h5ad --genes 1000 --seeds 0 1 2 --output docs/benchmarks/results/NAME.csv

A tenth of the cells, or another share, are test cells; CountsDiff and scVI each hold out validation cells of their own from the others. Half
of the entries of each test cell are hidden at random, zeros included. All methods get the same cells, the same sites and
the same covariate, ``cell_type``; no method sees a hidden value, not even through the total of a cell. Genes are chosen
before the split, with the counts of the test cells, the same for all methods. Finished seeds are not run again.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
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

PAPER = {"backbone": "transformer", "head": "softplus", "observed_training": False}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help=".h5ad file with raw counts in X and obs['cell_type']")
    parser.add_argument("--genes", type=int, help="most variable genes to keep (default: all)")
    parser.add_argument("--min-cells", type=int, default=10, help="cells a gene must be found in")
    parser.add_argument("--cells", type=int, help="keep only this many cells, at random")
    parser.add_argument("--test-share", type=float, default=0.1, help="share of the cells that are test cells")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--paper", action="store_true", help="the paper's network, training and RePaint instead")
    parser.add_argument("--max-epochs", type=int, help="budget of CountsDiff (default: its own)")
    parser.add_argument("--draws", type=int, default=50, help="draws that calibration is measured with, above 5")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()

    adata = preprocessing.filter_genes(anndata.read_h5ad(arguments.data), arguments.min_cells)
    if arguments.genes:
        adata = preprocessing.top_genes(adata, arguments.genes, by="variance")
    if arguments.cells:
        adata = adata[np.random.default_rng(0).permutation(adata.n_obs)[: arguments.cells]].copy()
    print(f"{arguments.data}: {adata.n_obs} cells, {adata.n_vars} genes, {torch.get_num_threads()} threads")
    methods = METHODS_OF_THE_PAPER if arguments.paper else methods_with(arguments.draws)
    order = [row for rows in methods for row in rows]
    done = pd.read_csv(arguments.output) if arguments.output.exists() else pd.DataFrame({"seed": [], "method": []})
    for seed in arguments.seeds:
        split = None
        for rows, method in methods.items():
            if set(rows) <= set(done.loc[done["seed"] == seed, "method"]):
                continue
            split = split or Split(adata, seed, arguments.test_share)
            method(split, arguments.max_epochs)
            done = pd.concat([done, pd.DataFrame(split.rows).assign(seed=seed)], ignore_index=True)
            split.rows.clear()
            done = done.sort_values(["seed", "method"], key=lambda x: x.map(order.index) if x.name == "method" else x)
            done.to_csv(arguments.output, index=False, float_format="%.6g")
        print(done[done["seed"] == seed].drop(columns="seed").set_index("method").round(4).T.to_string(), flush=True)
    summary = done.groupby("method", sort=False).mean().drop(columns="seed").round(4)
    summary.insert(0, "seeds", done.groupby("method", sort=False)["seed"].nunique())
    summary = summary.T.rename_axis("metric")
    summary.to_csv(arguments.output.with_stem(arguments.output.stem + "_summary"), float_format="%.4g")
    print("\nMean over seeds")
    print(summary.to_string())


class Split:
    """One split, one set of sites, and the scores of the methods so far."""

    def __init__(self, adata: anndata.AnnData, seed: int, test_share: float):
        shares = (0.9 - test_share, 0.1, test_share)
        train, validation, test = preprocessing.split_cells(adata, shares, seed=seed)
        # CountsDiff and scVI each draw validation cells of their own from these 90 %; the means are over all of them.
        self.train, self.test = adata[np.concatenate([train, validation])].copy(), adata[test].copy()
        self.truth = self.test.X.toarray()
        self.sites = MCAR(0.5)(self.truth, seed=seed)
        self.seed = seed
        self.rows: list[dict] = []
        rank = np.asarray(self.train.X.mean(0)).ravel().argsort().argsort()
        self._third = np.array(["low", "middle", "high"])[rank * 3 // len(rank)]

    def report(self, method: str, answer: np.ndarray, seconds: float, **more: float) -> None:
        """Score an answer, (cells, genes)."""
        scores = {
            name: getattr(metrics, name)(self.truth, answer, self.sites)
            for name in ("rmse", "poisson_loss", "spearman", "bias", "energy_distance")
        }
        scores["sliced_wasserstein"] = metrics.sliced_wasserstein(self.truth, answer)
        scores |= {**more, "seconds": seconds}
        self.rows.append({"method": method, **scores})
        print(f"seed {self.seed} {method}: " + ", ".join(f"{k} {v:.4f}" for k, v in scores.items()), flush=True)

    def calibration(self, draws: np.ndarray) -> dict[str, float]:
        """Distance of the draws, (draws, cells, genes), from calibration, over all genes and in thirds of them."""
        draws = draws[:, self.sites]
        by_third = metrics.pit_ks(self.truth, draws, self.sites, gene_strata=self._third)
        return {"pit_ks": metrics.pit_ks(self.truth, draws, self.sites)} | {
            f"pit_ks_{k}": by_third[k] for k in ("low", "middle", "high")
        }


def cell_type_mean(split: Split, max_epochs: int | None) -> None:
    start = time.perf_counter()
    method = get_baseline("conditional_mean_scaled")().fit(split.train, covariates=["cell_type"], seed=split.seed)
    answer = method.impute(split.test, split.sites, seed=split.seed)
    split.report("cell-type mean x depth", answer, time.perf_counter() - start)


def scvi_tools(split: Split, max_epochs: int | None) -> None:
    """With the budget of scvi-tools, up to 400 epochs, and early stopping."""
    start = time.perf_counter()
    method = get_baseline("scvi")().fit(split.train, covariates=["cell_type"], seed=split.seed)
    split.report("scVI", method.impute(split.test, split.sites, seed=split.seed), time.perf_counter() - start)
    method.n_rounds = 5  # hidden counts are first 0, then what scVI expects them to be
    split.report("scVI, refined", method.impute(split.test, split.sites, seed=split.seed), time.perf_counter() - start)
    print(f"seed {split.seed} trained scVI for {method.model.trainer.current_epoch} epochs", flush=True)


def countsdiff(split: Split, max_epochs: int | None, n_draws: int) -> None:
    model, seconds = _trained(split, max_epochs)
    start = time.perf_counter()
    mean = model.impute(split.test, sites=split.sites, n_steps=1, final="mean", key_added=None, silent=True)
    split.report("CountsDiff, one-pass mean", mean.toarray(), seconds + time.perf_counter() - start)
    start = time.perf_counter()
    draws = _draws(model, split, n_samples=n_draws)
    per_draw = (time.perf_counter() - start) / n_draws
    split.report("CountsDiff, 1 draw", draws[0], seconds + per_draw)
    split.report("CountsDiff, 5 draws", draws[:5].mean(0), seconds + 5 * per_draw)
    calibration = split.calibration(draws)
    split.report(f"CountsDiff, {n_draws} draws", draws.mean(0), seconds + n_draws * per_draw, **calibration)


def countsdiff_of_the_paper(split: Split, max_epochs: int | None) -> None:
    """19 steps, 3 rounds of RePaint, guidance 1 (App. E.5)."""
    model, seconds = _trained(split, max_epochs, **PAPER)
    start = time.perf_counter()
    draws = _draws(model, split, n_samples=5, n_steps=19, n_resamples=3, known="noised")
    per_draw = (time.perf_counter() - start) / 5
    split.report("paper, 1 draw", draws[0], seconds + per_draw)
    split.report("paper, 5 draws", draws.mean(0), seconds + 5 * per_draw, **split.calibration(draws))


def _trained(split: Split, max_epochs: int | None, **settings) -> tuple[CountsDiffImputer, float]:
    """A trained model, and the seconds it took."""
    scvi.settings.seed = split.seed
    start = time.perf_counter()
    CountsDiffImputer.setup_anndata(split.train, categorical_covariate_keys=["cell_type"])
    model = CountsDiffImputer(split.train, **settings)
    model.train(max_epochs, train_size=8 / 9, enable_progress_bar=False)
    seconds = time.perf_counter() - start
    n_epochs = len(model.history["train_loss"])
    print(f"seed {split.seed} trained {n_epochs} of {model.trainer.max_epochs} epochs", flush=True)
    return model, seconds


def _draws(model: CountsDiffImputer, split: Split, **settings) -> np.ndarray:
    return model.impute(
        split.test, sites=split.sites, seed=split.seed, return_mean=False, key_added=None, silent=True, **settings
    )


def methods_with(n_draws: int) -> dict[tuple[str, ...], Callable[[Split, int | None], None]]:
    """The methods, by the rows that each adds to the table."""
    ours = [f"CountsDiff, {answer}" for answer in ("one-pass mean", "1 draw", "5 draws", f"{n_draws} draws")]
    return {
        ("cell-type mean x depth",): cell_type_mean,
        ("scVI", "scVI, refined"): scvi_tools,
        tuple(ours): partial(countsdiff, n_draws=n_draws),
    }


METHODS_OF_THE_PAPER = {("paper, 1 draw", "paper, 5 draws"): countsdiff_of_the_paper}


if __name__ == "__main__":
    main()
