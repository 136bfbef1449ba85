"""The settings of each method, chosen from a few on cells that are neither trained on nor tested with."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sccountsdiff.benchmark.baselines import Baseline, get_baseline
from sccountsdiff.benchmark.datasets import Dataset, DataSource, load_dataset
from sccountsdiff.benchmark.metrics import get_metric
from sccountsdiff.benchmark.preprocessing import Ranking, split_test
from sccountsdiff.benchmark.results import label
from sccountsdiff.benchmark.runner import TEST_SHARE, prepare, run
from sccountsdiff.benchmark.tasks import Pattern
from sccountsdiff.checks import whole_number
from sccountsdiff.files import write_text

Settings = Mapping[str, Any]

GRIDS: dict[str, tuple[Settings, ...]] = {
    "knn_mean": ({"n_neighbors": 10}, {"n_neighbors": 30}, {"n_neighbors": 100}),
    "gaussian_regression": ({"n_factors": 10}, {"n_factors": 20}, {"n_factors": 40}),
    # The number of neighbours it chooses itself, also on held-out cells.
    "magic": ({"t": 1}, {"t": 3}, {"t": 6}),
    "alra": ({}, {"rank": 10}, {"rank": 20}, {"quantile": 0.01}),
    "scvi": ({}, {"n_latent": 30}),
    "remdm": ({}, {"n_hidden": 512}),
    # Settings of network and training; those of a model of ours that does not have its own are added here.
    "countsdiff_mean": ({}, {"model_kwargs": {"dropout_rate": 0.3}}, {"model_kwargs": {"n_hidden": 512}}),
    "countsdiff": ({}, {"model_kwargs": {"dropout_rate": 0.3}}, {"model_kwargs": {"n_hidden": 512}}),
}
"""Settings to choose from, by method; those that are not named are the default ones."""

CRITERIA = dict.fromkeys(("remdm", "countsdiff", "countsdiff_paper"), "energy_distance")
"""Metric that is decisive for methods whose single answer is a draw."""

CRITERION = "poisson_loss"
"""Metric that is decisive for all others, whose answer is a mean."""


def tune(
    dataset: DataSource,
    methods: str | Baseline | Sequence[str | Baseline] | None = None,
    *,
    missingness: str | Pattern = "mcar",
    seed: int | Sequence[int] = 0,
    metric: str | None = None,
    grids: Mapping[str, Sequence[Settings]] | None = None,
    validation_share: float = 0.2,
    test_share: float = TEST_SHARE,
    n_genes: int | None = None,
    gene_ranking: Ranking = "cv",
    min_cells: int = 10,
    n_cells: int | None = None,
    protocol: Literal["all", "paper"] = "all",
    output: str | Path | None = None,
    silent: bool = False,
) -> dict[str, Baseline]:
    """Choose the settings of methods on validation cells, a part of the training cells of a comparison.

    The cells are split as by :func:`~sccountsdiff.benchmark.run` with the same seed, and the test cells put away. Of the
    others, a part are validation cells: entries of them are hidden and filled in by each method in each of its settings,
    fitted to the rest. The settings with the best score are returned, for ``run(methods=...)``.

    Decisive is by default the Poisson loss of the hidden entries for methods whose answer is a mean, and the energy
    distance for those whose single answer is a draw (ReMDM, CountsDiff), as a loss of single entries would choose the draws
    with the least spread.

    Parameters
    ----------
    dataset
        Name, file or data set, as for :func:`~sccountsdiff.benchmark.run`.
    methods
        Names of methods, or methods with settings of your own, which the grid is then added to. Default: all that have a
        grid. A method without one is returned as it is.
    missingness
        Pattern in which entries of the validation cells are hidden.
    seed
        Seed of the comparison. Several seeds give one choice for all of them: made with the cells that are training cells
        with each, so that no test cell is seen.
    metric
        Name of the metric that is decisive for all methods. Default: see above.
    grids
        Settings to choose from, by method: dictionaries of arguments. Default: ``tuning.GRIDS``.
    validation_share
        Share of the training cells that are validation cells.
    test_share, n_genes, gene_ranking, min_cells, n_cells, protocol
        As in the comparison.
    output
        Folder for the results of each setting, which are found again as those of :func:`~sccountsdiff.benchmark.run`, and
        for a file ``tuned_<data set>_<method>_<seed>.json`` with the choice and all scores.
    silent
        Show no progress bar.

    Returns
    -------
    Methods with the chosen settings, by name.

    Examples
    --------
    >>> import sccountsdiff.benchmark as bm
    >>> grid = {"knn_mean": [{"n_neighbors": 1}, {"n_neighbors": 30}]}
    >>> bm.tune("pbmc68k", "knn_mean", grids=grid, n_genes=50, silent=True)["knn_mean"].n_neighbors
    30
    """
    grids = GRIDS if grids is None else grids
    given = list(grids) if methods is None else [methods] if isinstance(methods, str | Baseline) else list(methods)
    bases = [get_baseline(method)() if isinstance(method, str) else method for method in given]
    if len({base.name for base in bases}) < len(bases) or not bases:
        raise ValueError(f"methods must name at least one, each once, found {[base.name for base in bases]}.")
    if not 0 < validation_share < 1:
        raise ValueError(f"validation_share must be between 0 and 1, found {validation_share}.")
    variants = {base.name: _variants(base, grids.get(base.name, ())) for base in bases}
    criteria = {name: metric or CRITERIA.get(name, CRITERION) for name in variants}
    for criterion in criteria.values():
        get_metric(criterion)  # an unknown one is refused before any work

    seeds = (seed,) if isinstance(seed, int) else tuple(seed)
    options = {"n_genes": n_genes, "gene_ranking": gene_ranking, "min_cells": min_cells, "n_cells": n_cells}
    cells = training_cells(load_dataset(dataset), seeds, test_share, **options)
    shared = {"min_cells": 0, "test_share": validation_share, "n_samples": 1, "n_bootstrap": 0, "protocol": protocol}
    chosen = {}
    for base in bases:
        settings = variants[base.name]
        if len(settings) < 2:
            chosen[base.name] = next(iter(settings.values()))
            continue
        criterion = get_metric(criteria[base.name])
        table = run(
            cells, missingness, list(settings.values()), seeds[:1], metrics=[criterion.name], **shared, output=output, silent=silent
        )  # fmt: skip
        table = table[table["method"].isin(settings)].drop_duplicates("method").set_index("method")
        losses = criterion.loss(table["value"]).reindex(list(settings))
        if losses.isna().all():
            raise RuntimeError(f"{base.name} failed in all settings: {table['error'].iloc[0]}")
        chosen[base.name] = settings[losses.idxmin()]
        if output is not None:
            scores = {name: None if np.isnan(value) else value for name, value in table["value"].items()}
            record = {"dataset": cells.name, "method": base.name, "chosen": losses.idxmin(), "metric": criterion.name}
            record |= {"missingness": table["missingness"].iloc[0], "seeds": seeds, "scores": scores}
            name = f"tuned_{cells.name}_{base.name}_{'_'.join(map(str, seeds))}.json"
            write_text(Path(output) / name, json.dumps(record, indent=1))
    return chosen


def training_cells(dataset: Dataset, seeds: Sequence[int], test_share: float, **preparation: Any) -> Dataset:
    """The cells of a data set that are training cells in a comparison, with each of several seeds.

    Parameters
    ----------
    dataset
        The data set; not changed.
    seeds
        Seeds of the comparison.
    test_share, **preparation
        As in :func:`~sccountsdiff.benchmark.run`.

    Returns
    -------
    The same data set with these cells, and with the genes of the comparison.

    Examples
    --------
    >>> training_cells(load_dataset("pbmc68k"), [0], 0.1, n_genes=20).adata.shape
    (630, 20)
    """
    if not seeds:
        raise ValueError("seed must name at least one.")
    if not 0 < test_share < 1:
        raise ValueError(f"test_share must be between 0 and 1, found {test_share}.")
    cells = prepare(dataset, **preparation)
    always = np.ones(cells.n_obs, dtype=bool)
    for seed in seeds:
        seed = whole_number("seed", seed, least=0)
        test = split_test(cells, test_share, seed=seed, testable=dataset.testable)[1]
        always[test] = False
    if always.sum() < 2:
        raise ValueError(f"No cells are training cells with all of the seeds {list(seeds)}; give fewer.")
    # Any of them may be a validation cell.
    return dataclasses.replace(dataset, adata=cells[always].copy(), testable=None)


def _variants(base: Baseline, grid: Sequence[Settings]) -> dict[str, Baseline]:
    """The method in each of the settings, by its name in tables; the same settings twice count once."""
    if not grid:
        return {label(base, base.name): base}
    if not dataclasses.is_dataclass(base):
        raise TypeError(f"{base.name!r} has no settings that could be chosen; leave it out of grids.")
    known = {setting.name for setting in dataclasses.fields(base)}
    for settings in grid:
        if unknown := set(settings) - known:
            raise ValueError(f"grids: {base.name!r} has no settings {sorted(unknown)}; it has {sorted(known)}.")
    variants = [dataclasses.replace(base, **settings) for settings in grid]
    return {label(variant, variant.name): variant for variant in variants}
