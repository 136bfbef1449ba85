"""What each part of the default model is worth: the default, and the default with one part changed.

    python docs/benchmarks/ablation.py FILE.h5ad ... --save docs/benchmarks/results/ablation.csv

Only cells that are test cells with none of the seeds of ``six_data_sets.py``, and its genes; four fifths are trained on. Of the
others half of all entries, half of the genes, or half of the genes in correlated groups are hidden. A run that was
interrupted goes on where it stopped.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor

import sccountsdiff.benchmark as bm
from sccountsdiff import calibration
from sccountsdiff.benchmark.baselines import CountsDiff, CountsDiffMean
from sccountsdiff.benchmark.tuning import training_cells
from sccountsdiff.diffusion import Prediction, hiding, noising
from sccountsdiff.model import train
from sccountsdiff.nn import HeadInput, NegativeBinomialMixture, mlp

WITHOUT_PATTERNS = {(hiding, "RELATED_SHARE"): 0.0}
WITHOUT_THINNING = {(noising, "THINNED_SHARE"): 0.0}


class OneMean(NegativeBinomialMixture):
    """Both components around one mean."""

    def predict(self, outputs: Tensor, given: HeadInput) -> Prediction:
        """The posterior if means relative to that of all are left out."""
        first, ratios, last = outputs.tensor_split([self.n_components, 2 * self.n_components - 1])
        return super().predict(torch.cat([first, torch.zeros_like(ratios), last]), given)


VARIANTS: dict[str, tuple[dict, dict]] = {
    "default": ({}, {}),
    "no factors": ({"n_factors": 0}, {}),
    "no thinning of cells": ({}, WITHOUT_THINNING),
    "no related genes hidden": ({}, WITHOUT_PATTERNS),
    "none of the three": ({"n_factors": 0}, WITHOUT_THINNING | WITHOUT_PATTERNS),
    "40 factors": ({"n_factors": 40}, {}),
    "no dropout": ({"dropout_rate": 0.0}, {}),
    "dropout 0.3": ({"dropout_rate": 0.3}, {}),
    "512 hidden units": ({"n_hidden": 512}, {}),
    "256 hidden units": ({"n_hidden": 256}, {}),
    "64 hidden units": ({"n_hidden": 64}, {}),
    "1 layer": ({"n_layers": 1}, {}),
    "as many weights for spread as for means": ({}, {(mlp, "SHAPE_UNITS"): 128}),
    "as many weights for the status as for counts": ({}, {(mlp, "STATUS_UNITS"): 128}),
    "sums left as they come": ({}, {(calibration, "LARGEST_LEVEL"): 0.0}),
    "half of the cells at t = 1": ({}, {(noising, "LAST_TIME_SHARE"): 0.5}),
    "a tenth of the epochs to wait": ({}, {(train, "PATIENCE"): 0.1}),
    "one dispersion": ({"head": "nb"}, {}),
    "two dispersions around one mean": ({"head": OneMean}, {}),
    "mixture of gammas": ({"head": "gamma_mixture"}, {}),
}
"""Arguments of the model, and constants of training, by name."""

METRICS = ["rmse", "mae", "poisson_loss", "spearman", "ratio_of_sums", "energy_distance", "sliced_wasserstein"]
METRICS += ["crps", "pit_ks", "coverage_gap"]
PREPARATION = {"n_genes": 1000, "gene_ranking": "variance", "n_cells": 4000}
COMPARED_SEEDS = (10, 11, 12)
"""As in ``six_data_sets.py``."""

PATTERNS = ["mcar", "panel", "panel_correlated"]


@contextmanager
def changed(constants: dict) -> Iterator[None]:
    """Constants of modules have other values."""
    before = {key: getattr(*key) for key in constants}
    for place, value in constants.items():
        setattr(*place, value)
    try:
        yield
    finally:
        for place, value in before.items():
            setattr(*place, value)


def scores(dataset: bm.datasets.Dataset, variant: str, seed: int) -> pd.DataFrame:
    """All metrics of the one-pass mean and of draws, on validation cells."""
    arguments, constants = VARIANTS[variant]
    head = arguments.get("head", "nb_mixture")
    model_kwargs = {name: value for name, value in arguments.items() if name != "head"}
    methods = [kind(head=head, model_kwargs=model_kwargs) for kind in (CountsDiff, CountsDiffMean)]
    with changed(constants):
        table = bm.run(
            dataset,
            PATTERNS,
            methods,
            [seed],
            metrics=METRICS,
            min_cells=0,
            test_share=0.2,
            n_bootstrap=0,
            silent=True,
        )
    answer = table["method"].str.partition("(")[0] + " " + table["n_samples"].astype(str)
    columns = ["missingness", "answer", "metric", "value", "fit_seconds"]
    return table.assign(answer=answer)[columns].assign(data=dataset.name, variant=variant, seed=seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+", help=".h5ad files with raw counts in X")
    parser.add_argument("--label", default="cell_type", help="covariate, if cells have it")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--save", type=Path, required=True, help="the table")
    options = parser.parse_args()
    torch.set_num_threads(1)
    table = pd.read_csv(options.save) if options.save.exists() else pd.DataFrame()
    for seed in options.seeds:
        for path in options.data:
            dataset = bm.datasets.load_dataset(path)
            if options.label in dataset.adata.obs:
                dataset = bm.datasets.load_dataset(path, covariates=[options.label], label=options.label)
            dataset = training_cells(dataset, COMPARED_SEEDS, 0.25, **PREPARATION)
            for variant in options.variants:
                keys = {"data": dataset.name, "variant": variant, "seed": seed}
                if len(table) and (table[list(keys)] == list(keys.values())).all(axis=1).any():
                    continue
                found = scores(dataset, variant, seed)
                table = found if table.empty else pd.concat([table, found])
                partial = options.save.with_suffix(".partial")
                table.to_csv(partial, index=False, float_format="%.5g")
                partial.replace(options.save)
                shown = found[(found["missingness"] == "mcar") & (found["answer"] == "countsdiff_mean 1")]
                print(keys, shown.set_index("metric")["value"].round(4).to_dict(), flush=True)


if __name__ == "__main__":
    main()
