"""The paper's own model trained to convergence on a small problem, beside our default, ReMDM and Blackout.

    python docs/benchmarks/paper_model.py DATA.h5ad --seeds 0 1 2 --save docs/benchmarks/results
    python docs/benchmarks/paper_model.py DATA.h5ad --genes markers --epochs 24 --seeds 0 1 2 --save docs/benchmarks/results \\
        --models "CountsDiff, the paper's" "CountsDiff, our default" ReMDM

30 genes, chosen as in the paper (common ones with a large coefficient of variation) or such that tell types apart; half of the
entries of test cells are hidden at random. The transformers are narrower than the paper's (32 wide, 2 layers of 2 heads), so
that they converge within minutes. All networks make the same number of optimiser steps on the same cells, with the same learning
rate and in batches of the same size. Draws of the paper's model and of ReMDM are made by RePaint with noised context, 19 steps of
3 rounds. Blackout is trained as it is, and with the weight that makes its loss the negative log-likelihood. Three tables: scores,
losses by epoch, and what each model still expects to come when almost nothing is lost. Finished models are not run again:
more seeds, each with a split, sites and draws of its own, are added to what is there.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

import sccountsdiff.benchmark as bm
from sccountsdiff.benchmark import baselines, metrics
from sccountsdiff.benchmark.missingness import MCAR
from sccountsdiff.benchmark.preprocessing import split_cells
from sccountsdiff.benchmark.runner import prepare
from sccountsdiff.diffusion import NOISED, Blackout, nll_weight, thin
from sccountsdiff.files import replacing

N_GENES, N_DRAWS = 30, 5
GENES = {
    "common": {"gene_ranking": "cv", "common_share": 0.25},
    "markers": {"gene_ranking": "pearson_residuals", "common_share": 0.1},
}
"""How genes are chosen: as in the paper, which on few cells are genes of low counts that say little about each other; or the
genes that tell types apart, of which some have counts in the hundreds."""

BATCH_SIZE, LR, EMA_DECAY, N_WARMUP_STEPS = 64, 2e-3, 0.99, 100
TRANSFORMER = {"n_hidden": 32, "n_layers": 2, "n_heads": 2}
LOST = np.geomspace(1e-6, 0.5, 13)
"""Shares of the counts that are lost, at which predictions are looked at."""


class LikelihoodBlackout(Blackout):
    """Blackout's grid with the weight of the negative log-likelihood, 1 on average."""

    def weight(self, t: Tensor | float) -> Tensor:
        """In proportion to p(t): the last steps weigh as much as any."""
        return nll_weight(self, t) / self._logit_max


def countsdiff(kind: type, epochs: int, **settings: Any) -> baselines.Baseline:
    """A variant of CountsDiff with the budget of all."""
    plan = {"lr": LR, "n_warmup_steps": N_WARMUP_STEPS}
    training = {"batch_size": BATCH_SIZE, "ema_decay": EMA_DECAY, "early_stopping": False, "plan_kwargs": plan}
    network = {} if kind is baselines.CountsDiff else TRANSFORMER
    return kind(max_epochs=epochs, train_kwargs={**training, "logger": None}, model_kwargs=network, **settings)


def remdm(epochs: int) -> baselines.Baseline:
    """ReMDM with the gene-token transformer."""
    training = {"batch_size": BATCH_SIZE, "ema_decay": EMA_DECAY, "lr": LR, "n_warmup_steps": N_WARMUP_STEPS}
    sampling = {"n_steps": 19, "n_resamples": 3, "known": "noised", "eta": 0.005}
    settings = {"max_epochs": epochs, "patience": epochs, **training, **sampling}
    return baselines.ReMDM(backbone="transformer", quantile=1.0, **TRANSFORMER, **settings)


MODELS: dict[str, Callable[[int], baselines.Baseline]] = {
    "CountsDiff, the paper's": lambda epochs: countsdiff(baselines.CountsDiffPaper, epochs),
    "CountsDiff, our default": lambda epochs: countsdiff(baselines.CountsDiff, epochs),
    "ReMDM": remdm,
    "Blackout": lambda epochs: countsdiff(baselines.Blackout, epochs),
    "Blackout, likelihood weight": lambda epochs: countsdiff(baselines.Blackout, epochs, schedule=LikelihoodBlackout()),
}


def scores(method: baselines.Baseline, test, sites: np.ndarray, seed: int) -> pd.DataFrame:
    """Metrics of one draw and of the mean of some."""
    truth = test.X.toarray()
    start = time.perf_counter()
    draws = method.impute(test, sites, n_samples=N_DRAWS, seed=seed)
    seconds = time.perf_counter() - start
    rows = []
    for n in (1, N_DRAWS):
        answer = draws[:n].mean(0)
        found = {
            name: getattr(metrics, name)(truth, answer, sites)
            for name in ("rmse", "bias", "spearman", "energy_distance")
        }
        found["sliced_wasserstein"] = metrics.sliced_wasserstein(truth, answer)
        rows += [{"n_samples": n, "metric": name, "value": value} for name, value in found.items()]
    return pd.DataFrame(rows).assign(impute_seconds=seconds / N_DRAWS)


@torch.no_grad()
def still_to_come(method: baselines.Baseline, counts: np.ndarray, seed: int) -> pd.DataFrame:
    """Mean count that is lost, and mean count that the network expects to be, at some shares of lost counts; no covariates."""
    module = method.model.module.eval()
    x0 = torch.as_tensor(counts, dtype=torch.float32)
    n, generator = len(x0), torch.Generator().manual_seed(seed)
    codes, values = torch.zeros(n, len(module.n_categories), dtype=torch.long), torch.zeros(n, len(module.location))
    rows = []
    for lost in LOST:
        t = module.schedule.time_of(torch.tensor(1 - lost)).to(x0).expand(n)
        p = module.schedule.survival(t).to(x0)
        xt = thin(x0, p[:, None], generator)
        law = module.denoiser(xt, torch.full_like(x0, NOISED), t, codes, values, torch.ones(n, dtype=torch.bool))
        rows.append(
            {"lost": lost, "expected": float((x0 * (1 - p[:, None])).mean()), "predicted": float(law.mean.mean())}
        )
    return pd.DataFrame(rows)


def losses(method: baselines.Baseline) -> pd.DataFrame:
    """Training and validation loss by epoch."""
    if isinstance(method, baselines.ReMDM):
        return method.history.reset_index()[["epoch", "train_loss", "validation_loss"]]
    history = method.model.history
    return pd.concat([history["train_loss"], history["validation_loss"]], axis=1).astype(float).reset_index()


def append(path: Path, table: pd.DataFrame, **keys: Any) -> None:
    """Add the rows of a model to a table."""
    for column, (key, value) in enumerate(keys.items()):
        table.insert(column, key, value)
    whole = pd.concat([pd.read_csv(path), table]) if path.exists() else table
    with replacing(path) as beside:
        whole.to_csv(beside, index=False, float_format="%.6g")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help=".h5ad file with raw counts in X and obs['cell_type']")
    parser.add_argument("--genes", choices=GENES, default="common", help="how they are chosen")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--save", type=Path, required=True, help="folder for the three tables")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dataset = bm.datasets.load_dataset(options.data, covariates=["cell_type"], label="cell_type")
    chosen = GENES[options.genes]
    common = round(chosen["common_share"] * dataset.adata.n_obs)
    cells = prepare(dataset, n_genes=N_GENES, gene_ranking=chosen["gene_ranking"], min_cells=common)
    path = options.save / "paper_model.csv"
    for seed, name in product(options.seeds, options.models):
        keys = {"genes": options.genes, "model": name, "seed": seed}
        if path.exists() and (pd.read_csv(path)[list(keys)] == list(keys.values())).all(axis=1).any():
            continue
        train, test = (cells[part].copy() for part in split_cells(cells, (0.9, 0.1), seed=seed))
        sites = MCAR(0.5)(test.X.toarray(), seed=seed)
        print(f"{train.n_obs} + {test.n_obs} cells, {cells.n_vars} genes, mean count {cells.X.mean():.2f}", flush=True)
        method = MODELS[name](options.epochs)
        start = time.perf_counter()
        method.fit(train, covariates=["cell_type"], seed=seed)
        seconds = time.perf_counter() - start
        network = method.network if isinstance(method, baselines.ReMDM) else method.model.module
        n_parameters = sum(p.numel() for p in network.parameters() if p.requires_grad)
        append(options.save / "paper_model_losses.csv", losses(method), **keys)
        if not isinstance(method, baselines.ReMDM):
            coming = still_to_come(method, test.X.toarray(), seed)
            append(options.save / "paper_model_last_steps.csv", coming, **keys)
        found = scores(method, test, sites, seed).assign(fit_seconds=seconds, n_parameters=n_parameters)
        append(path, found, **keys)
        single = found[found["n_samples"] == 1].set_index("metric")["value"]
        print(
            f"{name}, seed {seed}: {seconds:.0f} s, {n_parameters} parameters, {single.round(4).to_dict()}", flush=True
        )


if __name__ == "__main__":
    main()
