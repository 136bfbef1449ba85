"""The figures of the user guide, from bundled real data: ``python docs/figures/make_figures.py``, in less than a minute."""

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import scanpy as sc
import scvi

import sccountsdiff
from sccountsdiff import CountsDiffImputer, pl
from sccountsdiff.benchmark.metrics import pit
from sccountsdiff.benchmark.missingness import MCAR

STATIC = Path(__file__).parents[1] / "_static"
N_GENES, N_TEST, N_DRAWS, N_STEPS = 300, 140, 30, 10
GENES = ("GNLY", "NKG7")


def main(output: Path, max_epochs: int) -> None:
    """Train on some cells, impute others, and draw."""
    mpl.use("agg")
    plt.rcParams.update({"savefig.dpi": 130, "font.size": 11})
    scvi.settings.seed = 0
    adata = sccountsdiff.datasets.pbmc68k()
    adata.obsm["X_umap"] = sc.datasets.pbmc68k_reduced().obsm["X_umap"]
    top = np.argsort(-np.asarray(adata.X.mean(0)).ravel())[:N_GENES]
    adata = adata[np.random.default_rng(0).permutation(adata.n_obs), np.sort(top)].copy()
    test, train = adata[:N_TEST].copy(), adata[N_TEST:].copy()

    CountsDiffImputer.setup_anndata(train, categorical_covariate_keys=["cell_type"])
    trained = CountsDiffImputer(train, n_hidden=128)
    trained.train(max_epochs, enable_progress_bar=False, accelerator="cpu")
    with TemporaryDirectory() as folder:  # the same model with cells that it has not seen
        trained.save(folder, overwrite=True)
        model = CountsDiffImputer.load(folder, adata=test, accelerator="cpu")
    truth = test.X.toarray()
    sites = MCAR(0.5)(truth, seed=0)
    options = {"n_samples": N_DRAWS, "n_steps": N_STEPS, "seed": 0, "silent": True}
    draws = model.impute(sites=sites, return_mean=False, key_added=None, **options)

    save = lambda name: plt.savefig(output / f"guide_{name}.png") or plt.close()
    _, (left, middle, right) = plt.subplots(1, 3, figsize=(15, 4.8), layout="constrained", width_ratios=[1, 1.1, 1])
    pl.forward_walk(model, n_steps=N_STEPS, ax=left)
    pl.reverse_walk(model, n_steps=N_STEPS, ax=middle)
    pl.imputed_vs_truth(truth, draws.mean(0), sites, ax=right)
    right.set_title("All hidden counts: mean of draws")
    save("overview")

    _, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    pl.survival(ax=left)
    pl.loss_weight(ax=right)
    save("schedules")

    pl.history(trained, show=False).figure.set_size_inches(5, 3.4)
    save("history")

    rank = np.asarray(train.X.mean(0)).ravel().argsort().argsort()
    third = np.broadcast_to(rank * 3 // N_GENES, sites.shape)[sites]
    strata = pd.Categorical.from_codes(third, ["low genes", "middle genes", "high genes"])
    values = pit(truth, draws[:, sites], sites)
    _, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    pl.calibration(values, strata, ax=left)
    pl.coverage(values, strata, ax=right)
    save("calibration")

    # The zeros of all cells are filled in; few folds and steps, to be quick.
    trained.impute(adata, n_folds=5, n_steps=5, n_samples=10, seed=0, silent=True)
    pl.gene_pair(adata, *GENES, show=False)
    save("gene_pair")
    _, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    pl.uncertainty(adata, ax=left)
    pl.uncertainty(adata, GENES[0], ax=right)
    save("uncertainty")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=STATIC, help="folder for the figures")
    parser.add_argument("--max-epochs", type=int, default=60)
    arguments = parser.parse_args()
    main(arguments.output, arguments.max_epochs)
