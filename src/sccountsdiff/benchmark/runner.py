"""A whole comparison: data sets, missingness patterns, methods and seeds."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import anndata
import numpy as np
import pandas as pd
from anndata import AnnData
from tqdm.auto import tqdm

from sccountsdiff import __version__
from sccountsdiff.benchmark.baselines import Baseline
from sccountsdiff.benchmark.datasets import Dataset, DataSource
from sccountsdiff.benchmark.metrics import Metric
from sccountsdiff.benchmark.plan import Plan
from sccountsdiff.benchmark.preprocessing import Ranking, filter_genes, split_test, top_genes
from sccountsdiff.benchmark.resources import Usage, measured
from sccountsdiff.benchmark.results import (
    ResultStore,
    code_digest,
    describe,
    digest_of,
    fingerprint,
    fingerprint_of_groups,
)
from sccountsdiff.benchmark.scoring import Split, attempt
from sccountsdiff.benchmark.tasks import Pattern, Task
from sccountsdiff.files import write_table

JOB_COLUMNS = ["dataset", "protocol", "missingness", "method", "group", "n_samples", "seed"]
COST_COLUMNS = ["fit_seconds", "impute_seconds", "peak_memory_mb"]
COLUMNS = [*JOB_COLUMNS, "metric", "value", "se", *COST_COLUMNS, "error"]
TEST_SHARE = 0.1
TRUE_CELLS = "truth"
"""Name, among the methods, of the true answers."""


def run(
    datasets: DataSource | Sequence[DataSource] = "pbmc68k",
    missingness: str | Pattern | Sequence[str | Pattern] = "mcar",
    methods: str | Baseline | Sequence[str | Baseline] | None = None,
    seeds: Sequence[int] = (0,),
    *,
    metrics: Sequence[str] | None = None,
    n_samples: int | Sequence[int] = (1, 5),
    n_genes: int | None = None,
    gene_ranking: Ranking = "cv",
    min_cells: int = 10,
    n_cells: int | None = None,
    test_share: float = TEST_SHARE,
    protocol: Literal["all", "paper"] = "all",
    embedder: str | Path | None = None,
    n_bootstrap: int = 10,
    bootstrap_cells: int | None = None,
    quick: bool = False,
    output: str | Path | None = None,
    retry_failed: bool = False,
    trained: dict[Any, Any] | None = None,
    silent: bool = False,
) -> pd.DataFrame:
    """Hide entries of test cells, have them filled in by all methods, and score the answers; or denoise test cells.

    For each seed the cells are split, by default 90/10. Methods are fitted once to the complete larger part (those that
    stop early hold out some of it themselves) and fill in the smaller part under each missingness pattern; all see the same
    cells, the same sites and the same covariates. Methods that differ only in how they sample share one trained model.
    Everything is checked before work starts. A method that fails is recorded with its error and does not stop the others.

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
        Keep this many of the most variable genes, see :func:`~sccountsdiff.benchmark.preprocessing.top_genes`; of each
        modality, if the data set says which gene is of which.
    min_cells
        Leave out genes found in fewer cells.
    n_cells
        Keep at most this many cells, chosen at random.
    test_share
        Share of the cells that are test cells.
    protocol
        ``"all"``: all entries are observed. ``"paper"``: those named by
        :func:`~sccountsdiff.benchmark.missingness.valid_sites` are, all others are missing: not hidden, not scored, and
        not observed for methods that can learn from incomplete cells. What such methods are told comes from the training
        cells alone: they say which genes are silent in a type.
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
    trained
        A dictionary, empty at first, in which trained methods are kept for the next call with the same dictionary: one that
        does not look at what is missing need not be trained again for another protocol on the same split.
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
    compared = {"datasets": datasets, "missingness": missingness, "methods": methods, "seeds": seeds}
    asked = {"n_samples": n_samples, "protocol": protocol, "quick": quick}
    scored = {"metrics": metrics, "embedder": embedder, "n_bootstrap": n_bootstrap, "bootstrap_cells": bootstrap_cells}
    plan = Plan(**compared, **asked, **scored)
    if not 0 < test_share < 1:
        raise ValueError(f"test_share must be between 0 and 1, found {test_share}.")
    if quick:
        n_cells, n_genes = n_cells or 2000, n_genes or 1000
    store = ResultStore(output, retry_failed)
    n_jobs = len(plan.datasets) * len(plan.seeds) * (len(plan.methods) + 1) * len(plan.tasks)
    rows: list[dict] = []
    with tqdm(total=n_jobs, desc="Benchmark", unit="job", disable=silent) as progress:
        for dataset in plan.datasets:
            cells = prepare(dataset, n_genes=n_genes, gene_ranking=gene_ranking, min_cells=min_cells, n_cells=n_cells)
            for seed in plan.seeds:
                rows += _run_seed(
                    plan, dataset, cells, test_share, seed, store, {} if trained is None else trained, progress
                )
    table = pd.DataFrame(rows, columns=COLUMNS)
    if output is not None:
        write_table(Path(output) / "results.csv", table)
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
    if n_genes is None:
        return cells
    if dataset.modality is None:
        return top_genes(cells, n_genes, by=gene_ranking)
    of_genes = cells.var[dataset.modality].astype(str)
    parts = [top_genes(cells[:, of_genes == name], n_genes, by=gene_ranking) for name in of_genes.unique()]
    return anndata.concat(parts, axis=1, merge="first")


def _run_seed(
    plan: Plan,
    dataset: Dataset,
    cells: AnnData,
    test_share: float,
    seed: int,
    store: ResultStore,
    trained: dict,
    progress: tqdm,
) -> list[dict]:
    """All methods and tasks on one split."""
    train, test = split_test(cells, test_share, seed=seed, testable=dataset.testable)
    groups = {"batch": dataset.batch, "modality": dataset.modality}
    split = Split(cells[train].copy(), cells[test].copy(), dataset.label, seed, plan.protocol, plan.embedder, **groups)
    # As many cells as there are is the same as all, and must not change where results are found.
    is_limited = plan.bootstrap_cells is not None and plan.bootstrap_cells < split.test.n_obs
    resamples = {"n_bootstrap": plan.n_bootstrap} | ({"bootstrap_cells": plan.bootstrap_cells} if is_limited else {})
    common = resamples | {
        "version": __version__,
        "dataset": dataset.name,
        "data": fingerprint(cells, list(dict.fromkeys(filter(None, [*dataset.covariates, dataset.label])))),
        "covariates": dataset.covariates,
        "label": dataset.label,
        "shares": (1 - test_share, test_share),
        "protocol": plan.protocol,
        "embedder": None if plan.embedder is None else digest_of(plan.embedder),
        "seed": seed,
    }
    if dataset.testable is not None:
        common["testable"] = fingerprint_of_groups(cells, dataset.testable, None)
    of_split = tuple(str(common[key]) for key in ("data", "covariates", "shares", "seed", "testable") if key in common)
    rows = []
    for name, method in {TRUE_CELLS: None, **plan.methods}.items():
        progress.set_postfix_str(f"{dataset.name}, seed {seed}, {name}")
        labels = {"dataset": dataset.name, "protocol": plan.protocol, "method": name, "seed": seed}
        labels["group"] = "reference" if method is None else method.group
        fitted = None
        for task in plan.tasks.values():
            metrics = plan.metrics_for(dataset, task, is_truth=method is None)
            n_samples = task.numbers_of_samples(method, plan.n_samples)
            job = common | {
                "missingness": describe(task.pattern),
                "method": TRUE_CELLS if method is None else {"name": method.name, **describe(method)},
                "n_samples": n_samples,
                "metrics": [_name_and_code(metric) for metric in metrics],
            }
            if task.uses_groups or dataset.modality is not None:  # only then do results depend on them
                job["groups"] = {**groups, "values": fingerprint_of_groups(cells, dataset.batch, dataset.modality)}
            found = store.load(job)
            if metrics and found is None:
                if fitted is None:
                    fitted = _Fitted(None) if method is None else _fit(method, dataset, split, of_split, trained)
                scored = _ask_and_score(fitted, task, split, n_samples, metrics, resamples)
                found = [{**labels, "missingness": task.name, **row} for row in scored]
                store.save(job, found)
            rows += found or []
            progress.update()
    return rows


def _name_and_code(metric: Metric) -> str:
    """Of a metric of the user's own, the code too: other code, other scores."""
    return " ".join(filter(None, [metric.name, code_digest(metric.function)]))


@dataclass(frozen=True)
class _Fitted:
    """A method after training, what that took, and the error if it failed; no method stands for the truth."""

    method: Baseline | None
    usage: Usage = field(default_factory=Usage)
    error: str | None = None


def _fit(
    method: Baseline, dataset: Dataset, split: Split, of_split: tuple[str, ...], trained: dict[Any, _Fitted]
) -> _Fitted:
    """Fit a method, unless one that is trained alike was, or failed to be."""
    method = deepcopy(method)
    key = (*of_split, split.protocol if method.uses_mask else None, method.training_key)
    is_shared = method.training_key is not None
    if is_shared and key in trained:
        earlier = trained[key]
        return replace(earlier, method=method if earlier.error else method.take_over(earlier.method))
    with attempt(f"Method {method.name}: fitting") as outcome, measured() as usage:
        known = {"covariates": dataset.covariates, "observed": split.observed[0], "modality": dataset.modality}
        method.fit(split.train, **known, seed=split.seed)
    fitted = _Fitted(method, usage, outcome.error)
    if is_shared:
        trained[key] = fitted
    return fitted


def _ask_and_score(
    fitted: _Fitted, task: Task, split: Split, n_samples: Sequence[int], metrics: Sequence[Metric], resamples: dict
) -> list[dict[str, Any]]:
    """Rows of one method in one task; the first failure ends them."""
    method, error = fitted.method, fitted.error
    hidden = task.hide(split) if error is None else None
    rows: list[dict[str, Any]] = []
    for n in n_samples:
        usage = Usage()
        if error is None:
            with attempt(f"Method {TRUE_CELLS if method is None else method.name}: answering") as outcome:
                with measured() as usage:
                    answer = task.truth(split, hidden) if method is None else task.ask(method, split, hidden, n)
                scores = split.scores(metrics, answer, **resamples)
            error = outcome.error
        peak = max(fitted.usage.peak_memory_mb, usage.peak_memory_mb)
        costs = dict(zip(COST_COLUMNS, (fitted.usage.seconds, usage.seconds, peak), strict=True)) | {"n_samples": n}
        if error is not None:
            return [*rows, costs | {"metric": None, "value": np.nan, "se": np.nan, "error": error}]
        rows += [costs | row for row in scores]
    return rows
