"""The demonstration behind ``sccountsdiff demo``: train and impute on bundled real data, and compare."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import scvi

from sccountsdiff import datasets, io, pl
from sccountsdiff.benchmark import metrics
from sccountsdiff.benchmark.baselines import get_baseline
from sccountsdiff.benchmark.missingness import MCAR
from sccountsdiff.files import replacing, write_table
from sccountsdiff.model import CountsDiffImputer

HELD_OUT_SHARE = 0.2
HIDDEN_SHARE = 0.5
N_DRAWS = 20
SIMPLE_METHODS = {
    "zero": "zero",
    "gene_mean": "gene mean",
    "conditional_mean": "cell-type mean",
    "conditional_mean_scaled": "cell-type mean x depth",
}


def run_demo(
    output: str | Path = "demo", *, seed: int = 0, max_epochs: int | None = None, silent: bool = False
) -> pd.DataFrame:
    """Hide half of the counts of held-out cells, impute them, and compare with simple methods.

    Parameters
    ----------
    output
        Folder for ``table.csv``, ``demo.png`` and ``imputed.h5ad``.
    seed
        Seed of split, hidden entries, training and draws.
    max_epochs
        Epochs; default: those of :meth:`CountsDiffImputer.train`.
    silent
        Show no progress bars.

    Returns
    -------
    A row for each method.
    """
    output = Path(output)
    output.mkdir(parents=True, exist_ok=True)
    scvi.settings.seed = seed
    adata = datasets.pbmc68k()
    is_test = np.random.default_rng(seed).random(adata.n_obs) < HELD_OUT_SHARE
    train, test = adata[~is_test].copy(), adata[is_test].copy()
    truth = test.X.toarray()
    sites = MCAR(HIDDEN_SHARE)(truth, seed=seed)

    answers = {}
    for name, label in SIMPLE_METHODS.items():
        answers[label] = get_baseline(name)().fit(train, covariates=["cell_type"]).impute(test, sites)

    CountsDiffImputer.setup_anndata(train, categorical_covariate_keys=["cell_type"])
    model = CountsDiffImputer(train)
    model.train(max_epochs=max_epochs, enable_progress_bar=not silent)
    options = {"n_samples": N_DRAWS, "return_mean": False, "key_added": "imputed", "seed": seed, "silent": silent}
    draws = model.impute(test, sites=sites, **options)
    one_pass = model.impute(test, sites=sites, n_steps=1, final="mean", key_added="expected", silent=True)
    answers["CountsDiff, 1 draw"] = draws[0]
    answers[f"CountsDiff, mean of {N_DRAWS} draws"] = draws.mean(0)
    answers["CountsDiff, one-pass mean"] = one_pass.toarray()

    table = pd.DataFrame({label: _scores(truth, answer, sites) for label, answer in answers.items()}).T
    write_table(output / "table.csv", table, index=True, index_label="method")
    _plot(model, truth, one_pass.toarray(), draws[:, sites], sites, output / "demo.png")
    test.layers["hidden"] = sites
    io.write(test, output / "imputed.h5ad", overwrite=True)
    return table


def _scores(truth: np.ndarray, answer: np.ndarray, sites: np.ndarray) -> dict[str, float]:
    return {
        "RMSE": metrics.rmse(truth, answer, sites),
        "Spearman": metrics.spearman(truth, answer, sites),
        "Poisson loss": metrics.poisson_loss(truth, answer, sites),
        "energy distance": metrics.energy_distance(truth, answer, sites),
        "sliced Wasserstein": metrics.sliced_wasserstein(truth, answer),
    }


def _plot(
    model: CountsDiffImputer, truth: np.ndarray, expected: np.ndarray, draws: np.ndarray, sites: np.ndarray, path: Path
) -> None:
    """Loss curve, imputed against truth, calibration by expression."""
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(1, 3, figsize=(13, 3.8), layout="constrained")
    pl.history(model, ax=axes[0])
    pl.imputed_vs_truth(truth, expected, sites, ax=axes[1])
    axes[1].set_title("Hidden counts: expected against true")
    rank = np.asarray(model.adata.X.mean(0)).ravel().argsort().argsort()
    third = np.broadcast_to(rank * 3 // len(rank), sites.shape)[sites]
    strata = pd.Categorical.from_codes(third, ["low genes", "middle genes", "high genes"])
    pl.calibration(metrics.pit(truth, draws, sites), strata, ax=axes[2])
    axes[2].set_title(f"Calibration of {len(draws)} draws")
    with replacing(path) as beside:
        fig.savefig(beside, dpi=150)
    plt.close(fig)
