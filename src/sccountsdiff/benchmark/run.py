"""A whole comparison: data sets, missingness patterns, methods and seeds."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from copy import deepcopy
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from anndata import AnnData
from tqdm.auto import tqdm

from sccountsdiff.benchmark._plan import Plan, make_plan
from sccountsdiff.benchmark._resources import Usage, measured
from sccountsdiff.benchmark._results import ResultStore, describe, fingerprint
from sccountsdiff.benchmark._scoring import Split, message
from sccountsdiff.benchmark.baselines import Baseline
from sccountsdiff.benchmark.datasets import Dataset
from sccountsdiff.benchmark.metrics import Metric
from sccountsdiff.benchmark.missingness import Missingness
from sccountsdiff.benchmark.preprocessing import Ranking, filter_genes, split_cells, top_genes

logger = logging.getLogger("sccountsdiff")

COLUMNS = [
    "dataset",
    "protocol",
    "missingness",
    "method",
    "group",
    "n_samples",
    "seed",
    "metric",
    "value",
    "se",
    "fit_seconds",
    "impute_seconds",
    "peak_memory_mb",
    "error",
]
SHARES = (0.9, 0.1)
TRUTH = "truth"


def run(
    datasets: str | Path | Dataset | Sequence[str | Path | Dataset] = "pbmc68k",
    missingness: str | Missingness | Sequence[str | Missingness] = "mcar",
    methods: str | Baseline | Sequence[str | Baseline] | None = None,
    seeds: Sequence[int] = (0,),
    *,
    metrics: Sequence[str] | None = None,
    n_samples: int | Sequence[int] = (1, 5),
    n_genes: int | None = None,
    gene_ranking: Ranking = "cv",
    min_cells: int = 10,
    n_cells: int | None = None,
    protocol: Literal["all", "paper"] = "all",
    embedder: str | Path | None = None,
    n_bootstrap: int = 10,
    quick: bool = False,
    output: str | Path | None = None,
    retry_failed: bool = False,
    silent: bool = False,
) -> pd.DataFrame:
    """Hide entries of test cells, have them filled in by all methods, and score the answers.

    For each seed the cells are split 90/10. Methods are fitted once to the complete larger part (those that stop early hold
    out some of it themselves) and fill in the smaller part under each missingness pattern; all see the same cells, the same
    sites and the same covariates. Methods that differ only in how they sample share one trained model. Everything is
    checked before work starts. A method that fails is recorded with its error and does not stop the others.

    With ``output``, every combination of data set, pattern, method and seed is one result file there, found again by a
    hash of all that it depends on: a run that was interrupted continues where it stopped, and one that is extended
    computes only what is new.

    Parameters
    ----------
    datasets
        Names of registered data sets, paths of ``.h5ad`` files or :class:`~sccountsdiff.benchmark.datasets.Dataset`
        objects (see :func:`~sccountsdiff.benchmark.datasets.load_dataset` for files with covariates and labels).
    missingness
        Names of patterns, with a rate after a colon if it is not the default one (``"mcar:0.3"``), or patterns.
    methods
        Names of registered methods, or methods with settings of your own. Default: averages, scVI and CountsDiff.
    seeds
        Each gives another split, other sites and other random numbers for the methods.
    metrics
        Names of metrics. Default: all that apply to the data and whose packages are installed.
    n_samples
        Numbers of samples to score methods with that draw. With one sample the method's single answer is scored, with
        more their mean, and the draws for metrics that need them.
    n_genes, gene_ranking
        Keep this many of the most variable genes, see :func:`~sccountsdiff.benchmark.preprocessing.top_genes`.
    min_cells
        Leave out genes found in fewer cells.
    n_cells
        Keep at most this many cells, chosen at random.
    protocol
        ``"all"`` takes all counts for data. ``"paper"`` believes only those named by
        :func:`~sccountsdiff.benchmark.missingness.valid_sites`: others are not hidden, not scored, and not observed for
        methods that can learn from incomplete cells. To those, the training cells alone say which genes are silent in a
        type.
    embedder
        Folder of a saved scvi-tools model to compute scFID with, such as that of the CELLxGENE census; its gene names must be
        those of the data. Default: a model trained on the training cells of each split.
    n_bootstrap
        Resamples of the test cells behind the standard error of each value; 0 for none.
    quick
        Cut the training of methods given by name to a few epochs and data to 2,000 cells and 1,000 genes, and leave out
        metrics that need a model of their own, unless they are named.
    output
        Folder for result files and the table, ``results.csv``. Default: nothing is written.
    retry_failed
        Try again what failed in an earlier run with the same ``output``.
    silent
        Show no progress bar.

    Returns
    -------
    A row for each data set, pattern, method, number of samples, seed and metric, with value, bootstrap standard error, wall
    times and peak memory of the process. A method that failed has one row, with an error and no metric. The method
    ``"truth"`` shows what the true cells score where that is not trivial (classification, clusters).

    Examples
    --------
    >>> import sccountsdiff.benchmark as bm
    >>> table = bm.run(
    ...     "pbmc68k", ["mcar", "mnar_low"], ["zero", "gene_mean"], metrics=["rmse"], n_bootstrap=0, silent=True
    ... )
    >>> best = table.pivot(index="missingness", columns="method", values="value").idxmin(axis=1)
    >>> best.to_dict()
    {'mcar': 'gene_mean', 'mnar_low': 'zero'}
    """
    plan = make_plan(
        datasets=datasets,
        missingness=missingness,
        methods=methods,
        seeds=seeds,
        metrics=metrics,
        n_samples=n_samples,
        protocol=protocol,
        embedder=embedder,
        n_bootstrap=n_bootstrap,
        quick=quick,
    )
    if quick:
        n_cells, n_genes = n_cells or 2000, n_genes or 1000
    store = ResultStore(output)
    n_jobs = len(plan.datasets) * len(plan.seeds) * (len(plan.methods) + 1) * len(plan.patterns)
    rows: list[dict] = []
    with tqdm(total=n_jobs, desc="Benchmark", unit="job", disable=silent) as progress:
        for dataset in plan.datasets:
            cells = prepare(dataset, n_genes=n_genes, gene_ranking=gene_ranking, min_cells=min_cells, n_cells=n_cells)
            for seed in plan.seeds:
                rows += _run_seed(plan, dataset, cells, seed, store, retry_failed, progress)
    table = pd.DataFrame(rows, columns=COLUMNS)
    if output is not None:
        table.to_csv(Path(output) / "results.csv", index=False)
    return table


def prepare(
    dataset: Dataset,
    *,
    n_genes: int | None = None,
    gene_ranking: Ranking = "cv",
    min_cells: int = 10,
    n_cells: int | None = None,
) -> AnnData:
    """The cells and genes of a data set that a comparison uses.

    Parameters
    ----------
    dataset
        The data set; not changed.
    n_genes, gene_ranking, min_cells, n_cells
        As in :func:`run`.

    Examples
    --------
    >>> from sccountsdiff.benchmark.datasets import load_dataset
    >>> prepare(load_dataset("pbmc68k"), n_genes=50, n_cells=200).shape
    (200, 50)
    """
    cells = dataset.adata
    if n_cells is not None and n_cells < cells.n_obs:
        cells = cells[np.sort(np.random.default_rng(0).permutation(cells.n_obs)[:n_cells])]
    cells = filter_genes(cells, min_cells)
    return cells if n_genes is None else top_genes(cells, n_genes, by=gene_ranking)


def _run_seed(
    plan: Plan, dataset: Dataset, cells: AnnData, seed: int, store: ResultStore, retry_failed: bool, progress: tqdm
) -> list[dict]:
    """All methods and patterns on one split."""
    train, test = split_cells(cells, SHARES, seed=seed)
    split = Split(cells[train].copy(), cells[test].copy(), dataset.label, seed, plan.protocol, plan.embedder)
    columns = list(dict.fromkeys([*dataset.covariates, *([dataset.label] if dataset.label else [])]))
    common = {
        "version": version("sccountsdiff"),
        "dataset": dataset.name,
        "data": fingerprint(cells, columns),
        "covariates": dataset.covariates,
        "label": dataset.label,
        "shares": SHARES,
        "protocol": plan.protocol,
        "embedder": str(plan.embedder),
        "seed": seed,
        "n_bootstrap": plan.n_bootstrap,
    }
    trained: dict[str, tuple[Baseline, Usage]] = {}
    rows = []
    for name, method in {TRUTH: None, **plan.methods}.items():
        metrics = plan.metrics_for(dataset, is_truth=method is None)
        jobs = {
            pattern_name: common
            | {
                "missingness": describe(pattern),
                "method": TRUTH if method is None else {"name": method.name, **describe(method)},
                "n_samples": plan.n_samples if method is not None and method.draws else (1,),
                "metrics": [metric.name for metric in metrics],
            }
            for pattern_name, pattern in plan.patterns.items()
        }
        pending = [key for key, job in jobs.items() if metrics and _is_pending(store.load(job), retry_failed)]
        labels = {"dataset": dataset.name, "protocol": plan.protocol, "method": name, "seed": seed}
        labels["group"] = "reference" if method is None else method.group
        progress.set_postfix_str(f"{dataset.name}, seed {seed}, {name}")
        progress.update(len(jobs) - len(pending))
        fitted = _fit(method, dataset, split, trained) if pending and method is not None else (None, Usage())
        for key in pending:
            answer = _impute_and_score(fitted, jobs[key]["n_samples"], plan.patterns[key], plan, metrics, split)
            store.save(jobs[key], [{**labels, "missingness": key, **row} for row in answer])
            progress.update()
        rows += [row for job in jobs.values() for row in store.load(job) or []]
    return rows


def _is_pending(rows: list[dict] | None, retry_failed: bool) -> bool:
    return rows is None or (retry_failed and any(row["error"] for row in rows))


def _fit(
    method: Baseline, dataset: Dataset, split: Split, trained: dict[str, tuple[Baseline, Usage]]
) -> tuple[Baseline | Exception, Usage]:
    """The fitted method, or the error that it raised."""
    method = deepcopy(method)
    key = method.training_key
    if key in trained:
        other, usage = trained[key]
        return method.take_over(other), usage
    usage = Usage()
    try:
        with measured() as usage:
            method.fit(split.train, covariates=dataset.covariates, believed=split.believed[0], seed=split.seed)
    except Exception as error:
        logger.warning("Method %s failed to fit. %s", method.name, message(error))
        logger.debug("", exc_info=True)
        return error, usage
    if key is not None:
        trained[key] = method, usage
    return method, usage


def _impute_and_score(
    fitted: tuple[Baseline | Exception | None, Usage],
    n_samples: Sequence[int],
    pattern: Missingness,
    plan: Plan,
    metrics: Sequence[Metric],
    split: Split,
) -> list[dict[str, Any]]:
    """Rows of one method under one pattern."""
    method, fit_usage = fitted
    sites = split.sites(pattern)
    rows = []
    for n in n_samples:
        usage = Usage()
        draws, failure = None, None
        try:
            if isinstance(method, Exception):
                raise method
            with measured() as usage:
                imputed = (
                    split.truth
                    if method is None
                    else method.impute(split.test, sites, n, seed=split.seed, believed=split.believed[1])
                )
            if n > 1:
                draws, imputed = imputed, imputed.mean(axis=0)
            scores = split.scores(metrics, imputed, sites, draws, plan.n_bootstrap)
        except Exception as error:
            failure = message(error)
            if not isinstance(method, Exception):
                logger.warning("Method %s failed to impute. %s", method.name if method else TRUTH, failure)
            logger.debug("", exc_info=True)
            scores = [{"metric": None, "value": np.nan, "se": np.nan, "error": failure}]
        cost = {
            "n_samples": n,
            "fit_seconds": fit_usage.seconds,
            "impute_seconds": usage.seconds,
            "peak_memory_mb": max(fit_usage.peak_memory_mb, usage.peak_memory_mb),
        }
        rows += [{**cost, **score} for score in scores]
        if failure:
            break
    return rows
