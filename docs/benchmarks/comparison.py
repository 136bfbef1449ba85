"""All methods of the paper's tables, and those that users know, on one data set.

2,000 cells, the 300 genes with the largest variance. Half of all entries of the test cells are hidden at random; then,
under the protocol of the paper, half of the observed ones at random, and a quarter of them with a bias to low and to
high counts. Cheap methods run with all seeds, slow ones with the first. A run that was interrupted continues where it
stopped.

    python docs/benchmarks/comparison.py kang_ifnb_pbmc.h5ad --output comparison/kang \
        --save docs/benchmarks/results/comparison_kang.csv --figure docs/_static/comparison_kang.png
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

import sccountsdiff.benchmark as bm
from sccountsdiff.benchmark import baselines as methods
from sccountsdiff.benchmark.preprocessing import split_cells
from sccountsdiff.benchmark.runner import TEST_SHARE, prepare

CHEAP = [
    methods.Zero(),
    methods.GeneMean(),
    methods.ConditionalMean(),
    methods.ScaledConditionalMean(),
    methods.KNNMean(),
    methods.MAGIC(),
    methods.ALRA(),
    methods.KNNSmoothing(),
    methods.SklearnKNN(),
    methods.GaussianRegression(),
    methods.SCVIBaseline(),
    methods.SCVIRefined(),
    methods.CountsDiffMean(),
    methods.CountsDiff(),
]
SLOW = [
    methods.DCA(),
    methods.GAIN(),
    methods.HIVAEPoisson(),
    methods.HIVAEGaussian(),
    methods.SklearnIterative(),
    methods.ScIDPMs(),
    methods.SCGPT(),
    methods.SCGPTPretrained(),  # fails without the released weights (weights_path=), and is shown as failed
    methods.XTrimoGene(),
    # Trees for each level and gene: a fraction of the original's budget, as its own would take days with 300 genes.
    methods.ForestDiffusion(n_t=8, n_copies=4, n_trees=10, max_depth=4),
    methods.ReMDM(),
    # The paper's transformer takes a thousand times as long; its process is shown with our network.
    methods.Blackout(backbone="mlp"),
    methods.CountsDiffPaper(backbone="mlp"),
]
PREPARATION = {"n_genes": 300, "gene_ranking": "variance", "n_cells": 2000}
SETTINGS = [("all", ["mcar"]), ("paper", ["mcar", "mnar_low:0.25", "mnar_high:0.25"])]


def embedder(dataset: bm.datasets.Dataset, seed: int, output: Path) -> Path:
    """The scVI model of the training cells that scFID uses; one for all methods, protocols and patterns of a split."""
    os.environ["SCCOUNTSDIFF_ALLOW_PICKLE"] = "1"  # it is made here
    folder = output / f"embedder-{seed}"
    if not folder.exists():
        cells = prepare(dataset, **PREPARATION)
        train = split_cells(cells, (1 - TEST_SHARE, TEST_SHARE), seed=seed)[0]
        partial = folder.with_suffix(".partial")  # a run that is killed leaves no half-written model behind
        bm.metrics.train_embedder(cells[train].copy(), seed=seed).save(partial, overwrite=True)
        partial.rename(folder)
    return folder


def draw(table: pd.DataFrame, path: Path) -> None:
    """Pointwise against distributional quality under each protocol, with the seed that all methods ran with."""
    table = table[table["seed"] == table["seed"].min()]
    table = table.assign(method=table["method"].str.partition("(")[0])  # without settings
    titles = {"all": "all entries", "paper": "observed entries"}
    protocols = [protocol for protocol in titles if protocol in set(table["protocol"])]
    figure, axes = plt.subplots(
        len(protocols), 1, figsize=(11, 8.8 * len(protocols)), layout="constrained", squeeze=False
    )
    for ax, protocol in zip(axes.flat, protocols, strict=True):
        bm.pl.quality(table, protocol=protocol, missingness="mcar", ax=ax, show=False)
        ax.set(title=f"Half of {titles[protocol]} hidden at random", xscale="log", yscale="log")
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help=".h5ad file with raw counts in X")
    parser.add_argument("--label", default="cell_type", help="column with the type of a cell, also the covariate")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--methods", nargs="+", help="only these")
    parser.add_argument("--protocols", nargs="+", choices=[name for name, _ in SETTINGS], help="only these")
    parser.add_argument("--output", type=Path, required=True, help="folder for result files")
    parser.add_argument("--save", type=Path, required=True, help="the table")
    parser.add_argument("--figure", type=Path, help="pointwise against distributional quality")
    arguments = parser.parse_args()
    if unknown := set(arguments.methods or ()) - {method.name for method in [*CHEAP, *SLOW]}:
        parser.error(f"unknown methods {sorted(unknown)}")

    dataset = bm.datasets.load_dataset(arguments.data, covariates=[arguments.label], label=arguments.label)
    tables = []
    first, others = arguments.seeds[:1], arguments.seeds[1:]
    # All methods with the first seed, so that an interrupted run has something to show.
    for group, seeds in ((CHEAP, first), (SLOW, first), (CHEAP, others)):
        for protocol, patterns in SETTINGS:
            chosen = [method for method in group if arguments.methods is None or method.name in arguments.methods]
            if not chosen:
                continue
            for seed in seeds if arguments.protocols is None or protocol in arguments.protocols else []:
                table = bm.run(
                    dataset,
                    patterns,
                    chosen,
                    [seed],
                    protocol=protocol,
                    embedder=embedder(dataset, seed, arguments.output),
                    n_bootstrap=0,
                    output=arguments.output,
                    **PREPARATION,
                )
                tables.append(table)
                finished = pd.concat(tables).drop_duplicates(
                    ["protocol", "missingness", "method", "n_samples", "seed", "metric"]
                )
                finished.to_csv(arguments.save, index=False, float_format="%.5g")
    if arguments.figure:
        draw(finished, arguments.figure)


if __name__ == "__main__":
    main()
