"""A whole comparison: data sets, missingness patterns, methods and seeds."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from anndata import AnnData
from tqdm.auto import tqdm

from sccountsdiff.benchmark.baselines import Baseline
from sccountsdiff.benchmark.datasets import Dataset
from sccountsdiff.benchmark.missingness import SEEN_SHARE, Missingness, Molecules
from sccountsdiff.benchmark.plan import Plan, make_plan
from sccountsdiff.benchmark.preprocessing import Ranking, filter_genes, split_cells, top_genes
from sccountsdiff.benchmark.resources import Usage, measured
from sccountsdiff.benchmark.results import ResultStore, describe, digest_of, fingerprint
from sccountsdiff.benchmark.scoring import Split, message

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
    missingness: str | Missingness | Molecules | Sequence[str | Missingness | Molecules] = "mcar",
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
    bootstrap_cells: int | None = None,
    quick: bool = False,
    output: str | Path | None = None,
    retry_failed: bool = False,
    silent: bool = False,
) -> pd.DataFrame:
    """Hide entries of test cells, have them filled in by all methods, and score the answers; or denoise test cells.

    For each seed the cells are split 90/10. Methods are fitted once to the complete larger part (those that stop early hold
    out some of it themselves) and fill in the smaller part under each missingness pattern; all see the same cells, the same
    sites and the same covariates. Methods that differ only in how they sample share one trained model. Everything is
    checked before work starts. A method that fails is recorded with its error and does not stop the others.

    ``missingness="molecules"`` hides molecules instead of entries: of each test cell a tenth of them, at random (the
    Open Problems protocol). Methods denoise the rest, and what they expect is scored on the hidden molecules.

    With ``output``, every combination of data set, pattern, method and seed is one result file there, found again by a
    hash of all that it depends on: a run that was interrupted continues where it stopped, and one that is extended
    computes only what is new.

    Parameters
    ----------
    datasets
        Names of registered data sets, paths of ``.h5ad`` files or :class:`~sccountsdiff.benchmark.datasets.Dataset`
        objects (see :func:`~sccountsdiff.benchmark.datasets.load_dataset` for files with covariates and labels).
    missingness
        Names of patterns, with a rate after a colon if it is not the default one (``"mcar:0.3"``), or patterns. Several
        share one fit of each method. ``"molecules"`` is for methods that denoise, see
        :func:`~sccountsdiff.benchmark.list_methods`, and is scored by metrics of its own.
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
    bootstrap_cells
        Cells in each resample, if there are more: the standard error is then that of a value from so many cells. Metrics
        whose time grows with the square of the number of cells (MMD) are computed of as many cells, chosen at random.
        Default: all.
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
        bootstrap_cells=bootstrap_cells,
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
        "embedder": None if plan.embedder is None else digest_of(plan.embedder),
        "seed": seed,
        "n_bootstrap": plan.n_bootstrap,
    }
    limit = plan.bootstrap_cells
    if limit is not None and limit < split.test.n_obs:
        common["bootstrap_cells"] = limit
    else:
        limit = None  # all cells, which changes nothing: neither results nor where they are found
    trained: dict[str, _Fitted] = {}
    rows = []
    for name, method in {TRUTH: None, **plan.methods}.items():
        metrics = {
            key: plan.metrics_for(dataset, pattern, is_truth=method is None) for key, pattern in plan.patterns.items()
        }
        jobs = {
            key: common
            | {
                "missingness": describe(pattern),
                "method": TRUTH if method is None else {"name": method.name, **describe(method)},
                "n_samples": _numbers_of_samples(method, pattern, plan),
                "metrics": [metric.name for metric in metrics[key]],
            }
            for key, pattern in plan.patterns.items()
        }
        pending = [key for key, job in jobs.items() if metrics[key] and _is_pending(store.load(job), retry_failed)]
        labels = {"dataset": dataset.name, "protocol": plan.protocol, "method": name, "seed": seed}
        labels["group"] = "reference" if method is None else method.group
        progress.set_postfix_str(f"{dataset.name}, seed {seed}, {name}")
        progress.update(len(jobs) - len(pending))
        if pending:
            fitted = _Fitted(None) if method is None else _fit(method, dataset, split, trained)
        for key in pending:
            ask = _task(plan.patterns[key], split)
            score = partial(split.scores, metrics[key], n_bootstrap=plan.n_bootstrap, bootstrap_cells=limit)
            answer = _ask_and_score(fitted, jobs[key]["n_samples"], ask, score)
            store.save(jobs[key], [{**labels, "missingness": key, **row} for row in answer])
            progress.update()
        rows += [row for job in jobs.values() for row in store.load(job) or []]
    return rows


def _numbers_of_samples(method: Baseline | None, pattern: Missingness | Molecules, plan: Plan) -> tuple[int, ...]:
    draws = method is not None and method.draws and not isinstance(pattern, Molecules)
    return plan.n_samples if draws else (1,)


def _is_pending(rows: list[dict] | None, retry_failed: bool) -> bool:
    return rows is None or (retry_failed and any(row["error"] for row in rows))


@dataclass(frozen=True)
class _Fitted:
    """A method after training, what that took, and the error if it failed; no method stands for the truth."""

    method: Baseline | None
    usage: Usage = field(default_factory=Usage)
    error: str | None = None


def _fit(method: Baseline, dataset: Dataset, split: Split, trained: dict[str, _Fitted]) -> _Fitted:
    """Fit a method, unless one that is trained alike was, or failed to be."""
    method = deepcopy(method)
    key = method.training_key
    if key is not None and key in trained:
        earlier = trained[key]
        return replace(earlier, method=method if earlier.error else method.take_over(earlier.method))
    error, usage = None, Usage()
    try:
        with measured() as usage:
            method.fit(split.train, covariates=dataset.covariates, observed=split.observed[0], seed=split.seed)
    except Exception as exception:
        error = message(exception)
        logger.warning("Method %s failed to fit. %s", method.name, error)
        logger.debug("", exc_info=True)
    fitted = _Fitted(method, usage, error)
    if key is not None:
        trained[key] = fitted
    return fitted


Ask = Callable[[Baseline | None, int], dict[str, np.ndarray]]


def _task(pattern: Missingness | Molecules, split: Split) -> Ask:
    """What is asked of a method, with a number of samples: a function whose result metrics can score."""
    if isinstance(pattern, Molecules):
        cells, held_out = split.molecules(pattern)

        def denoise(method: Baseline, n: int) -> dict[str, np.ndarray]:
            return {"denoised": method.denoise(cells, SEEN_SHARE, seed=split.seed), "held_out": held_out}

        return denoise

    sites = split.sites(pattern)

    def impute(method: Baseline | None, n: int) -> dict[str, np.ndarray]:
        if method is None:
            return {"imputed": split.truth, "sites": sites}
        answer = method.impute(split.test, sites, n, seed=split.seed, observed=split.observed[1])
        if n == 1:
            return {"imputed": answer, "sites": sites}
        return {"imputed": answer.mean(axis=0), "sites": sites, "draws": answer[:, sites]}

    return impute


def _ask_and_score(
    fitted: _Fitted, n_samples: Sequence[int], ask: Ask, score: Callable[[dict[str, np.ndarray]], list[dict]]
) -> list[dict[str, Any]]:
    """Rows of one method under one pattern; the first failure ends them."""
    if fitted.error is not None:
        return [_costs(n_samples[0], fitted.usage, Usage()) | _failure(fitted.error)]
    rows = []
    for n in n_samples:
        usage = Usage()
        try:
            with measured() as usage:
                answer = ask(fitted.method, n)
            scores = score(answer)
        except Exception as exception:
            error = message(exception)
            name = TRUTH if fitted.method is None else fitted.method.name
            logger.warning("Method %s failed to answer. %s", name, error)
            logger.debug("", exc_info=True)
            return [*rows, _costs(n, fitted.usage, usage) | _failure(error)]
        rows += [_costs(n, fitted.usage, usage) | row for row in scores]
    return rows


def _failure(error: str) -> dict[str, Any]:
    return {"metric": None, "value": np.nan, "se": np.nan, "error": error}


def _costs(n_samples: int, fit: Usage, answer: Usage) -> dict[str, Any]:
    return {
        "n_samples": n_samples,
        "fit_seconds": fit.seconds,
        "impute_seconds": answer.seconds,
        "peak_memory_mb": max(fit.peak_memory_mb, answer.peak_memory_mb),
    }
