"""What a comparison was made of, for its report: data, what was hidden, seeds, versions and the command."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from sccountsdiff.benchmark.datasets import DataSource, load_dataset
from sccountsdiff.benchmark.preprocessing import split_test
from sccountsdiff.benchmark.runner import TEST_SHARE, prepare
from sccountsdiff.benchmark.scoring import Split
from sccountsdiff.benchmark.tasks import Pattern, Task, make_task
from sccountsdiff.files import set_aside, write_text

FILE = "about.json"
PACKAGES = ("sccountsdiff", "scvi-tools", "torch", "anndata", "scanpy", "numpy", "scikit-learn")


def describe_run(
    datasets: DataSource | Sequence[DataSource],
    missingness: str | Pattern | Sequence[str | Pattern] = "mcar",
    seeds: Sequence[int] = (0,),
    *,
    n_genes: int | None = None,
    n_cells: int | None = None,
    test_share: float = TEST_SHARE,
    protocol: str = "all",
    quick: bool = False,
    command: str | None = None,
    **preparation: Any,
) -> dict[str, str]:
    """Cells, genes and hidden shares of a comparison, with seeds, versions, date and command.

    Parameters
    ----------
    datasets, missingness, seeds, n_genes, n_cells, test_share, protocol, quick, **preparation
        As given to :func:`~sccountsdiff.benchmark.run`. What is hidden is counted for the first seed.
    command
        Command or call that the comparison was made by.

    Returns
    -------
    Texts by what they are about, for :func:`~sccountsdiff.benchmark.report`.

    Examples
    --------
    >>> about = describe_run("pbmc68k", "mcar:0.3", n_genes=100)
    >>> about["Data set pbmc68k"]
    '700 cells, 100 genes; 70 cells are test cells'
    >>> about["Hidden in pbmc68k by mcar(rate=0.3)"].startswith("30.")
    True
    """
    if quick:
        n_cells, n_genes = n_cells or 2000, n_genes or 1000
    is_one = lambda things: isinstance(things, str | Path) or not isinstance(things, Sequence)
    about = {}
    for source in [datasets] if is_one(datasets) else datasets:
        dataset = load_dataset(source)
        cells = prepare(dataset, n_genes=n_genes, n_cells=n_cells, **preparation)
        train, test = split_test(cells, test_share, seed=seeds[0], testable=dataset.testable)
        groups = {"batch": dataset.batch, "modality": dataset.modality}
        split = Split(cells[train].copy(), cells[test].copy(), dataset.label, seeds[0], protocol, **groups)
        about[f"Data set {dataset.name}"] = (
            f"{cells.n_obs:,} cells, {cells.n_vars:,} genes; {split.test.n_obs:,} cells are test cells"
        )
        for task in map(make_task, [missingness] if is_one(missingness) else missingness):
            about[f"Hidden in {dataset.name} by {task.name}"] = _hidden_share(task, split)
    about["Entries that may be hidden"] = (
        "all" if protocol == "all" else "those of genes that the cell's type expresses"
    )
    about["Seeds"] = ", ".join(map(str, seeds))
    return about | ({} if command is None else {"Command": command}) | surroundings()


def surroundings() -> dict[str, str]:
    """Versions and date.

    Examples
    --------
    >>> list(surroundings())
    ['Versions', 'Date']
    """
    found = {"Python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    versions = ", ".join(f"{name} {number}" for name, number in found.items())
    return {"Versions": versions, "Date": datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")}


def save(about: Mapping[str, str], folder: str | Path) -> None:
    """Keep the texts beside the results, where the report finds them.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     save({"Seeds": "0"}, folder)
    ...     load(folder)
    {'Seeds': '0'}
    """
    write_text(Path(folder, FILE), json.dumps(dict(about), indent=1))


def load(folder: str | Path) -> dict[str, str]:
    """What was kept in a folder; nothing if nothing was, or if it is damaged, which is said."""
    path = Path(folder, FILE)
    if not path.is_file():
        return {}
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(about, dict) or not all(isinstance(text, str) for text in about.values()):
            raise ValueError("it holds something else")
        return about
    except (RecursionError, ValueError) as error:
        set_aside(path, error)
        return {}


def _hidden_share(task: Task, split: Split) -> str:
    hidden = task.hide(split)
    if task.denoises:
        _, held_out = hidden
        share, of_what = held_out.sum() / max(split.truth.sum(), 1), f"{split.truth.sum():,.0f} molecules"
    else:
        share, of_what = np.mean(hidden), f"{hidden.size:,} entries"
    return f"{100 * share:.1f} % of the {of_what} of test cells"
