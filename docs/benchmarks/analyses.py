"""Twelve analyses as users make them, each with its time and what it found; small enough for a laptop.

    python docs/benchmarks/analyses.py --data FOLDER --save docs/benchmarks/results/analyses.csv

Each analysis reads a file of FOLDER, trains a model with default settings, and holds something back to compare with. Analyses that
are in the table already are left out; ``--only`` names some.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import anndata
import mudata
import numpy as np
import pandas as pd
import scipy.sparse as sp
import scvi
from sklearn.neighbors import NearestNeighbors

from sccountsdiff import CountsDiffImputer
from sccountsdiff.benchmark import metrics
from sccountsdiff.files import replacing

Figures = dict[str, float]


def read(data: Path, name: str, n_cells: int, n_genes: int, **where: str) -> anndata.AnnData:
    """Some cells, at random, and the genes that vary most among them."""
    adata = anndata.read_h5ad(data / name)
    for column, value in where.items():
        adata = adata[adata.obs[column] == value]
    rng = np.random.default_rng(0)
    adata = adata[np.sort(rng.permutation(adata.n_obs)[:n_cells])].to_memory()
    variance = adata.X.multiply(adata.X).mean(0).A1 - adata.X.mean(0).A1 ** 2
    adata = adata[:, np.sort(np.argsort(-variance)[:n_genes])].copy()
    for column in adata.obs.select_dtypes("category"):
        adata.obs[column] = adata.obs[column].cat.remove_unused_categories()
    return adata


def fitted(adata: anndata.AnnData, **setup) -> CountsDiffImputer:
    """A trained model."""
    CountsDiffImputer.setup_anndata(adata, **setup)
    model = CountsDiffImputer(adata)
    model.train(enable_progress_bar=False)
    return model


def with_nan(counts: np.ndarray, hidden: np.ndarray) -> np.ndarray:
    """The counts, missing where they are hidden."""
    return np.where(hidden, np.nan, counts).astype(np.float32)


def against_gene_mean(truth: np.ndarray, found: np.ndarray, hidden: np.ndarray) -> Figures:
    """RMSE relative to that of the mean of each gene where it is not hidden, and the ratio of sums."""
    mean = np.nanmean(np.where(hidden, np.nan, truth), axis=0)
    mean = np.broadcast_to(mean, truth.shape)
    relative = metrics.rmse(truth, found, hidden) / metrics.rmse(truth, mean, hidden)
    return {"RMSE / that of gene means": relative, "ratio of sums": found[hidden].sum() / truth[hidden].sum()}


def held(
    adata: anndata.AnnData, truth: np.ndarray, hidden: np.ndarray, low="imputed_q0.05", high="imputed_q0.95"
) -> float:
    """Share of hidden counts within the interval between two quantiles, both ends included."""
    low, high = (_dense(adata.layers[name])[hidden] for name in (low, high))
    return float(((truth[hidden] >= low) & (truth[hidden] <= high)).mean())


def _dense(matrix) -> np.ndarray:
    return matrix.toarray() if sp.issparse(matrix) else np.asarray(matrix)


def zeros_of_a_sample(data: Path) -> Figures:
    """Fill in all zeros of one sample, and check on a tenth of its entries."""
    adata = read(data, "pbmc3k.h5ad", 1500, 500)
    model = fitted(adata, labels_key="cell_type")
    filled = model.impute(seed=0, silent=True)
    truth = adata.X.toarray()
    hidden = np.random.default_rng(1).random(adata.shape) < 0.1
    found = model.impute(sites=hidden, key_added=None, silent=True).toarray()
    return {"entries filled in": float((filled != truth).mean()), **against_gene_mean(truth, found, hidden)}


def gene_panel(data: Path) -> Figures:
    """Cells of half of the donors lack a panel of genes."""
    adata = read(data, "kang_ifnb_pbmc.h5ad", 2000, 400)
    truth = adata.X.toarray()
    lacking = adata.obs["donor"].isin(sorted(adata.obs["donor"].unique())[::2]).to_numpy()
    panel = np.random.default_rng(0).random(adata.n_vars) < 0.3
    hidden = lacking[:, None] & panel
    adata.X = with_nan(truth, hidden)
    model = fitted(adata, categorical_covariate_keys=["cell_type", "condition"])
    found = model.impute(quantiles=[0.05, 0.95], silent=True)
    return {**against_gene_mean(truth, found, hidden), "in 90 % interval": held(adata, truth, hidden)}


def samples_in_a_pipeline(data: Path) -> Figures:
    """One model, then sample after sample; nothing is missing in the last one, and it comes back as it is."""
    adata = read(data, "onek1k_subset.h5ad", 2000, 400)
    truth = adata.X.toarray()
    donors = adata.obs["donor"].to_numpy()
    hidden = (np.random.default_rng(0).random(adata.shape) < 0.2) & (donors != donors[0])[:, None]
    adata.X = with_nan(truth, hidden)
    model = fitted(adata, categorical_covariate_keys=["cell_type"])
    changed = 0
    for donor in adata.obs["donor"].unique():
        sample = adata[adata.obs["donor"] == donor].copy()
        found = model.impute(sample, silent=True)
        known = ~hidden[donors == donor]
        changed += int((found[known] != truth[donors == donor][known]).sum())
    return {"samples": adata.obs["donor"].nunique(), "observed counts that changed": changed}


def replaced_condition(data: Path) -> Figures:
    """Monocytes of the control, as if they had been stimulated, against those that were."""
    adata = read(data, "kang_ifnb_pbmc.h5ad", 4000, 600)
    model = fitted(adata, batch_key="condition", labels_key="cell_type")
    monocytes = adata.obs["cell_type"].str.contains("Mono").to_numpy()
    conditions = adata.obs["condition"].astype(str)
    control, stimulated = sorted(conditions.unique(), key=lambda name: not name.lower().startswith("c"))
    cells = np.flatnonzero(monocytes & (conditions == control).to_numpy())
    seen = model.get_normalized_expression(indices=cells, silent=True).mean()
    moved = model.get_normalized_expression(indices=cells, transform_batch=stimulated, silent=True).mean()
    real = adata[monocytes & (conditions == stimulated).to_numpy()]
    scaled = real.X.toarray() / real.X.sum(1).A * 1e4
    own = adata[cells].X.toarray() / adata[cells].X.sum(1).A * 1e4
    change = np.log1p(scaled.mean(0)) - np.log1p(own.mean(0))
    predicted = (np.log1p(moved) - np.log1p(seen)).to_numpy()
    genes = np.argsort(-change)[:15]
    still = np.abs(change) < 0.1
    return {
        "log fold change, share predicted": predicted[genes].sum() / change[genes].sum(),
        "correlation over genes": np.corrcoef(predicted, change)[0, 1],
        "genes that do not change, mean shift": np.abs(predicted[still]).mean(),
    }


def cells_of_one_batch(data: Path) -> Figures:
    """Expression as if all cells were of the first donors: how mixed donors are among neighbours, and cell types kept."""
    adata = read(data, "onek1k_subset.h5ad", 1500, 500)
    some = adata.obs["donor"].value_counts().index[:8]
    adata = adata[adata.obs["donor"].isin(some)].copy()
    adata.obs["donor"] = adata.obs["donor"].cat.remove_unused_categories()
    model = fitted(adata, batch_key="donor", labels_key="cell_type")
    as_is = model.get_normalized_expression(silent=True, return_numpy=True)
    as_one = model.get_normalized_expression(transform_batch=some[0], silent=True, return_numpy=True)
    figures = {}
    for name, expression in (("as they are", as_is), ("as one donor", as_one)):
        near = NearestNeighbors(n_neighbors=31).fit(np.log1p(expression)).kneighbors(return_distance=False)[:, 1:]
        for column, what in (("donor", "neighbours of the same donor"), ("cell_type", "neighbours of the same type")):
            codes = adata.obs[column].cat.codes.to_numpy()
            figures[f"{what}, {name}"] = float((codes[near] == codes[:, None]).mean())
    return figures


def query_with_fewer_genes(data: Path) -> Figures:
    """A model of some donors, and cells of others that lack a fifth of the genes and have no cell types."""
    adata = read(data, "kang_ifnb_pbmc.h5ad", 2500, 400)
    is_query = adata.obs["donor"].isin(sorted(adata.obs["donor"].unique())[:2]).to_numpy()
    reference, query = adata[~is_query].copy(), adata[is_query].copy()
    model = fitted(reference, labels_key="cell_type")
    truth = query.X.toarray()
    lacking = np.random.default_rng(0).random(adata.n_vars) < 0.2
    few = query[:, ~lacking].copy()
    del few.obs["cell_type"]
    CountsDiffImputer.prepare_query_anndata(few, model)
    found = model.impute(few, what="missing", key_added=None, unseen_to_null=True, silent=True)
    order = few.var_names.get_indexer(query.var_names)
    hidden = np.broadcast_to(lacking, truth.shape)
    mean = np.broadcast_to(reference.X.mean(0).A1, truth.shape)
    relative = metrics.rmse(truth, _dense(found)[:, order], hidden) / metrics.rmse(truth, mean, hidden)
    return {"RMSE / that of gene means": relative}


def cells_of_a_new_donor(data: Path) -> Figures:
    """Training goes on with a donor that the model has not seen."""
    adata = read(data, "onek1k_subset.h5ad", 2500, 400)
    new = adata.obs["donor"].value_counts().index[0]
    is_new = (adata.obs["donor"] == new).to_numpy()
    reference, query = adata[~is_new].copy(), adata[is_new].copy()
    for part in (reference, query):
        part.obs["donor"] = part.obs["donor"].astype(str).astype("category")
    model = fitted(reference, batch_key="donor", labels_key="cell_type")
    n_test = query.n_obs // 3
    test, rest = query[:n_test].copy(), query[n_test:].copy()
    truth = test.X.toarray()
    hidden = np.random.default_rng(0).random(test.shape) < 0.5
    before = model.impute(test, sites=hidden, key_added=None, unseen_to_null=True, silent=True)
    again = CountsDiffImputer.load_query_data(rest, model)
    again.train(max_epochs=20, enable_progress_bar=False)
    after = again.impute(test, sites=hidden, key_added=None, silent=True)
    loss = lambda found: metrics.poisson_loss(truth, _dense(found), hidden)
    return {"Poisson loss before": loss(before), "Poisson loss after": loss(after)}


def _modality(data: Path, file: str, name: str, n_genes: int, n_features: int) -> Figures:
    mdata = mudata.read_h5mu(data / file)
    rng = np.random.default_rng(0)
    parts = {}
    for modality, n in (("rna", n_genes), (name, n_features)):
        part = mdata.mod[modality]
        variance = part.X.multiply(part.X).mean(0).A1 - part.X.mean(0).A1 ** 2
        parts[modality] = part[:, np.sort(np.argsort(-variance)[:n])].copy()
    lacks = rng.random(mdata.n_obs) < 0.3
    truth = _dense(parts[name].X)[lacks]
    mean = np.broadcast_to(_dense(parts[name].X)[~lacks].mean(0), truth.shape)
    joint = mudata.MuData({"rna": parts["rna"], name: parts[name][~lacks].copy()})
    CountsDiffImputer.setup_mudata(joint, modalities={"layer": ["rna", name]})
    model = CountsDiffImputer(joint)
    model.train(enable_progress_bar=False)
    model.impute(quantiles=[0.05, 0.95], silent=True)
    cells = joint.obs_names.get_indexer(parts["rna"].obs_names[lacks])
    found, low, high = (_dense(joint.obsm[f"imputed{suffix}_{name}"])[cells] for suffix in ("", "_q0.05", "_q0.95"))
    everything = np.ones(truth.shape, dtype=bool)
    return {
        "RMSE / that of feature means": metrics.rmse(truth, found, everything) / metrics.rmse(truth, mean, everything),
        "ratio of sums": found.sum() / truth.sum(),
        "in 90 % interval": float(((truth >= low) & (truth <= high)).mean()),
    }


def proteins_from_rna(data: Path) -> Figures:
    """Proteins are missing in three of ten cells."""
    return _modality(data, "eccite_pbmc_citefuse.h5mu", "prot", 500, 49)


def peaks_from_rna(data: Path) -> Figures:
    """Peaks are missing in three of ten cells."""
    return _modality(data, "pbmc_multiome_500.h5mu", "atac", 500, 300)


def deeper_sequencing(data: Path) -> Figures:
    """Half of the molecules, denoised to what the other half should be."""
    adata = read(data, "zeisel_cortex_subset_ercc.h5ad", 1464, 500)
    rng = np.random.default_rng(0)
    counts = adata.X.toarray().astype(int)
    half = rng.binomial(counts, 0.5)
    adata.X = sp.csr_matrix(half.astype(np.float32))
    model = fitted(adata, labels_key="cell_type")
    expected = model.denoise(depth=2, unseen=True, silent=True)
    other, everything = counts - half, np.ones(counts.shape, dtype=bool)
    denoised, as_it_is = (
        metrics.poisson_loss(other, guess, everything) for guess in (expected, np.maximum(half, 0.05))
    )
    return {"Poisson loss of the other half": denoised, "of the first half itself": as_it_is}


def uncertainty_to_a_file(data: Path) -> Figures:
    """Hidden counts and their intervals, block by block into a file on disk."""
    adata = read(data, "mouse_bladder_mca_2100.h5ad", 2100, 500)
    model = fitted(adata, labels_key="cell_type")
    truth = adata.X.toarray()
    hidden = np.random.default_rng(0).random(adata.shape) < 0.3
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "imputed.h5ad")
        model.impute(sites=hidden, quantiles=[0.05, 0.95], out=path, seed=0, silent=True)
        stored = anndata.read_h5ad(path)
    found = _dense(stored.layers["imputed"])
    return {**against_gene_mean(truth, found, hidden), "in 90 % interval": held(stored, truth, hidden)}


def more_cells_of_a_rare_type(data: Path) -> Figures:
    """Cells of the rarest type, generated, against the real ones."""
    adata = read(data, "kang_ifnb_pbmc.h5ad", 4000, 400)
    model = fitted(adata, labels_key="cell_type")
    rare = adata.obs["cell_type"].value_counts().index[-1]
    real = adata[adata.obs["cell_type"] == rare].X.toarray()
    made = _dense(model.generate(500, {"cell_type": rare}, seed=0, silent=True).X)
    rest = adata.X.toarray()
    log = lambda counts: np.log1p(counts.mean(0))
    return {
        "real cells": len(real),
        "correlation of gene means": np.corrcoef(log(made), log(real))[0, 1],
        "of all cells with them": np.corrcoef(log(rest), log(real))[0, 1],
        "share of zeros": float((made == 0).mean()),
        "of the real ones": float((real == 0).mean()),
    }


ANALYSES = {
    function.__name__: function
    for function in (
        zeros_of_a_sample,
        gene_panel,
        samples_in_a_pipeline,
        replaced_condition,
        cells_of_one_batch,
        query_with_fewer_genes,
        cells_of_a_new_donor,
        proteins_from_rna,
        peaks_from_rna,
        deeper_sequencing,
        uncertainty_to_a_file,
        more_cells_of_a_rare_type,
    )
}


def main() -> None:
    """Run what is not there yet, and save after each analysis."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--save", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=list(ANALYSES), default=list(ANALYSES))
    arguments = parser.parse_args()
    table = pd.read_csv(arguments.save) if arguments.save.exists() else pd.DataFrame(columns=["analysis"])
    for name in arguments.only:
        if (table["analysis"] == name).any():
            continue
        scvi.settings.seed = 0
        start, cpu = time.perf_counter(), time.process_time()
        figures = ANALYSES[name](arguments.data)
        figures |= {"seconds": time.perf_counter() - start, "CPU seconds": time.process_time() - cpu}
        print(name, {key: round(float(value), 3) for key, value in figures.items()}, flush=True)
        rows = pd.DataFrame([{"analysis": name, "figure": key, "value": value} for key, value in figures.items()])
        table = pd.concat([table, rows], ignore_index=True)
        with replacing(arguments.save) as beside:
            table.to_csv(beside, index=False)


if __name__ == "__main__":
    main()
