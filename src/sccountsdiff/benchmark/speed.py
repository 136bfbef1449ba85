"""How long training and imputing take, and what the time is spent on: methods in turns, in one run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
import torch
from anndata import AnnData
from torch.profiler import ProfilerActivity, profile

from sccountsdiff.benchmark.datasets import load_dataset
from sccountsdiff.benchmark.preprocessing import top_genes
from sccountsdiff.benchmark.quiet import quiet
from sccountsdiff.benchmark.resources import measured
from sccountsdiff.benchmark.speed_methods import SUBJECTS
from sccountsdiff.checks import one_of, whole_number
from sccountsdiff.files import replacing, write_table
from sccountsdiff.seeding import global_seed
from sccountsdiff.training import default_max_epochs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TASKS = ("training_step", "one_pass_mean", "default_mean", "one_draw", "five_draws", "training")
"""One optimiser step; the expectation of half of the entries in one pass, and of all of them with the default settings (fold by
fold); draws of half of the entries; training to the best validation loss."""

REFERENCE = "scvi"
"""Method that others are compared with."""

MATRIX_PRODUCTS = {"mm", "addmm", "bmm", "baddbmm", "_linear_pointwise", "_scaled_dot_product_flash_attention_for_cpu"}
"""Operations of torch that count as products of matrices."""

PROFILED = ("training_step", "one_pass_mean")
"""Tasks of which the share of products of matrices is measured."""

SIZES = tuple(10**k for k in range(4, 9))
"""Numbers of cells for which the cost is extrapolated."""

ASSUMED_SPEEDUP = 50.0
"""How many times as fast as one CPU core a GPU is taken to be; an assumption, not a measurement."""

MAX_EPOCHS = 20
"""Epochs of training on simulated counts."""

SHARE_OF_CELLS = {"transformer": 1 / 64}
"""Share of the cells that slow methods are given; times are those of a cell."""


def simulate_counts(n_cells: int, n_genes: int, seed: int = 0) -> AnnData:
    """Gamma-Poisson counts of five types of cells, a fifth of which are not 0, in a sparse matrix.

    Parameters
    ----------
    n_cells, n_genes
        Size.
    seed
        Seed.

    Returns
    -------
    The counts.

    Examples
    --------
    >>> simulate_counts(20, 50).shape
    (20, 50)
    """
    rng = np.random.default_rng(seed)
    profiles = np.exp(rng.normal(-1.8, 1.4, n_genes) + rng.normal(0, 0.7, (5, n_genes)))
    rates = profiles[rng.integers(5, size=n_cells)] * rng.gamma(5, 0.2, (n_cells, 1))
    counts = rng.poisson(rates * rng.gamma(2, 0.5, rates.shape)).astype(np.float32)
    return AnnData(sp.csr_matrix(counts))


def read_counts(source: str | Path, n_cells: int, n_genes: int, seed: int = 0) -> AnnData:
    """Counts of a data set: so many cells, chosen at random, and genes, those with the largest variance beyond noise.

    Parameters
    ----------
    source
        Name of a registered data set, or a file of any format that :func:`sccountsdiff.io.read` reads.
    n_cells, n_genes
        Size; all cells or genes if there are fewer.
    seed
        Seed.

    Returns
    -------
    The counts.

    Examples
    --------
    >>> read_counts("pbmc68k", 20, 5).shape
    (20, 5)
    """
    cells = load_dataset(source).adata
    rows = np.random.default_rng(seed).permutation(cells.n_obs)[:n_cells]
    cells = top_genes(cells[np.sort(rows)], n_genes, by="pearson_residuals")
    return AnnData(sp.csr_matrix(cells.X, dtype=np.float32))


def run_speed(
    output: str | Path,
    *,
    dataset: str | Path | None = None,
    n_genes: int = 2000,
    n_cells: int = 1024,
    batch_size: int = 128,
    methods: Sequence[str] | None = None,
    tasks: Sequence[str] = TASKS,
    repeats: int = 5,
    max_epochs: int | None = None,
    seed: int = 0,
) -> pd.DataFrame:
    """Time methods on the same counts, in turns and on one thread, and save table and figure.

    Times are those that the CPU spent on the process: what else the machine does lengthens them less than the time of the clock. In each repeat every method does every task once, so that the rest concerns all of them. Slow methods get
    fewer cells; times are per cell.

    Parameters
    ----------
    output
        Folder for ``speed.csv``, ``speed_ratios.csv``, ``speed_cost.csv`` and ``speed.png``.
    dataset
        Where counts are from (:func:`read_counts`); default: they are simulated.
    n_genes, n_cells
        Size of the data.
    batch_size
        Cells in a minibatch.
    methods
        Some of ``countsdiff``, ``scvi``, ``magic``, ``knn_mean`` and ``transformer`` (the paper's network). Default: all.
    tasks
        Some of :data:`TASKS`.
    repeats
        Times that each is measured.
    max_epochs
        Epochs of ``training``, which stops early as each method does by itself; those after the best validation loss do not
        count. Default: ``MAX_EPOCHS`` of simulated counts; of a file, what each method takes by default.
    seed
        Seed of counts and methods.

    Returns
    -------
    A row for each method, task and repeat: ``ms_per_cell``, ``matmul_share`` (of training steps and of means in one pass)
    and ``peak_memory_mb``.

    Examples
    --------
    >>> table = run_speed(".", n_genes=10, n_cells=8, batch_size=4, methods=["scvi"], tasks=["one_draw"], repeats=1)
    >>> table[["method", "task"]].values.tolist()
    [['scvi', 'one_draw']]
    """
    names = list(SUBJECTS) if methods is None else list(methods)
    for argument, given, known in [("methods", names, SUBJECTS), ("tasks", tasks, TASKS)]:
        for value in given:
            one_of(argument, value, tuple(known))
    repeats = whole_number("repeats", repeats)
    if dataset is None:
        adata, max_epochs = simulate_counts(n_cells, n_genes, seed), max_epochs or MAX_EPOCHS
    else:
        adata = read_counts(dataset, n_cells, n_genes, seed)
    n_cells, n_genes = adata.shape
    rows = []
    with quiet(), global_seed(seed), _one_thread():
        subjects = []
        for name in names:
            n = max(2, round(n_cells * SHARE_OF_CELLS.get(name, 1)))
            subjects.append(SUBJECTS[name](adata[:n].copy(), min(batch_size, n), max_epochs))
        jobs = [(subject, task) for task in tasks for subject in subjects if task in subject.work]
        for subject, task in jobs:
            if task != "training":
                subject.work[task]()  # warm up
        for repeat in range(repeats):
            for subject, task in jobs:
                n = subject.batch_cells if task == "training_step" else subject.n_cells
                with measured() as usage:
                    start = time.process_time()
                    result = subject.work[task]()
                    seconds = result if task == "training" else time.process_time() - start
                rows.append(
                    {
                        "method": subject.name,
                        "task": task,
                        "repeat": repeat,
                        "n_genes": n_genes,
                        "n_cells": n,
                        "ms_per_cell": 1e3 * seconds / n,
                        "peak_memory_mb": usage.peak_memory_mb,
                    }
                )
        shares = {(s.name, task): matmul_share(s.work[task]) for s, task in jobs if task in PROFILED}
    table = pd.DataFrame(rows)
    table["matmul_share"] = [shares.get(what, np.nan) for what in zip(table["method"], table["task"], strict=True)]
    _save(table, Path(output))
    return table


@contextmanager
def _one_thread() -> Iterator[None]:
    """Products of matrices on one thread: several would wait for each other, which counts as time of the CPU.

    To ask for that from outside is not enough: libraries that read the data, such as numba, share the threads and change their number.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def ratios(table: pd.DataFrame, reference: str = REFERENCE) -> pd.DataFrame:
    """Time of each method over that of a reference in the same repeat: median, smallest and largest.

    Parameters
    ----------
    table
        From :func:`run_speed`.
    reference
        Method to compare with.

    Returns
    -------
    A row for each task and method; none without the reference.

    Examples
    --------
    >>> times = pd.DataFrame({"method": ["a", "b"], "task": "one_draw", "repeat": 0, "ms_per_cell": [6.0, 2.0]})
    >>> ratios(times, reference="b")["median"].tolist()
    [3.0, 1.0]
    """
    times = table.pivot_table(index=["task", "repeat"], columns="method", values="ms_per_cell")
    if reference not in times:
        return pd.DataFrame(columns=["task", "method", "median", "min", "max"])
    relative = times.div(times[reference], axis=0).stack().rename("ratio").reset_index()
    return relative.groupby(["task", "method"])["ratio"].agg(["median", "min", "max"]).reset_index()


def cost(
    table: pd.DataFrame, sizes: Sequence[int] = SIZES, batch_size: int = 128, speedup: float = ASSUMED_SPEEDUP
) -> pd.DataFrame:
    """Hours that CountsDiff would take for more cells, at the measured time per cell and the default number of epochs.

    Parameters
    ----------
    table
        From :func:`run_speed`.
    sizes
        Numbers of cells.
    batch_size
        Cells in a minibatch, on which the number of epochs depends.
    speedup
        An assumption: how many times as fast another device is.

    Returns
    -------
    A row for each size and task: ``hours`` as measured here, ``hours_if_faster`` on the other device.

    Examples
    --------
    >>> times = pd.DataFrame({"method": ["countsdiff"], "task": "one_draw", "ms_per_cell": [3.6]})
    >>> cost(times, sizes=[10**6], speedup=10).round(3).to_dict("records")
    [{'n_cells': 1000000, 'task': 'one_draw', 'hours': 1.0, 'hours_if_faster': 0.1}]
    """
    times = table[(table["method"] == "countsdiff") & (table["task"] != "training")]
    times = times.groupby("task", sort=False)["ms_per_cell"].median()
    rows = []
    for n in sizes:
        for task, milliseconds in times.items():
            epochs = default_max_epochs(n, batch_size) if task == "training_step" else 1
            name = "training" if task == "training_step" else task
            hours = milliseconds * n * epochs / 3.6e6
            rows.append({"n_cells": n, "task": name, "hours": hours, "hours_if_faster": hours / speedup})
    return pd.DataFrame(rows)


def matmul_share(step: Callable[[], Any], n_steps: int = 3) -> float:
    """Share of the time of a piece of work that is spent in products of matrices.

    Parameters
    ----------
    step
        The work.
    n_steps
        Times that it is done.

    Returns
    -------
    The share, from 0 to 1.

    Examples
    --------
    >>> import torch
    >>> a = torch.ones(300, 300)
    >>> matmul_share(lambda: a @ a) > 0.3
    True
    """
    step()
    # The least of some, and by the clock of the thread: what else the machine does lengthens either.
    seconds = min(_seconds(step) for _ in range(n_steps))  # without the profiler, which takes time of its own
    return min(1.0, min(_seconds_in_products(step) for _ in range(n_steps)) / max(seconds, 1e-9))


def _seconds(step: Callable[[], Any]) -> float:
    start = time.thread_time()
    step()
    return time.thread_time() - start


def _seconds_in_products(step: Callable[[], Any]) -> float:
    with profile(activities=[ProfilerActivity.CPU]) as found:
        step()
    products = (event for event in found.key_averages() if event.key.partition("::")[2] in MATRIX_PRODUCTS)
    return sum(event.self_cpu_time_total for event in products) / 1e6


def plot_speed(table: pd.DataFrame) -> Figure:
    """Time per cell of each method, a panel for each task.

    Parameters
    ----------
    table
        From :func:`run_speed`.

    Returns
    -------
    The figure; bars are medians, lines go from the smallest to the largest.

    Examples
    --------
    >>> times = pd.DataFrame({"method": ["a", "b"], "task": "one_draw", "ms_per_cell": [6.0, 2.0]})
    >>> len(plot_speed(times).axes)
    1
    """
    from matplotlib.figure import Figure

    tasks = [task for task in TASKS if (table["task"] == task).any()]
    figure = Figure(figsize=(3 * len(tasks), 3), layout="constrained")
    for axes, task in zip(figure.subplots(1, len(tasks), squeeze=False)[0], tasks, strict=True):
        times = table[table["task"] == task].groupby("method", sort=False)["ms_per_cell"]
        middle = times.median()
        spread = np.abs(np.stack([times.min(), times.max()]) - middle.to_numpy())
        axes.barh(middle.index, middle, xerr=spread, color="tab:blue", height=0.6)
        axes.set(xscale="log", xlabel="ms per cell", title=task.replace("_", " "))
        axes.invert_yaxis()
    return figure


def _save(table: pd.DataFrame, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, values in {"speed": table, "speed_ratios": ratios(table), "speed_cost": cost(table)}.items():
        write_table(folder / f"{name}.csv", values, float_format="%.4g")
    with replacing(folder / "speed.png") as beside:
        plot_speed(table).savefig(beside, dpi=110)
