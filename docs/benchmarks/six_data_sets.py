"""All methods on six data sets, with settings chosen on validation cells.

    python docs/benchmarks/six_data_sets.py --data FOLDER --output six_data_sets

Up to 3,000 training and 1,000 test cells, and the 1,000 genes with the largest variance. Hidden are half of all entries at
random (``mcar``), half of the genes at random (``panel``) or in correlated groups (``panel_correlated``), a tenth of the
molecules (``molecules``), and half of the entries that count as observed in the protocol of the paper (``paper_mcar``). If
cells have batches, each batch lacks other genes.

Of one data set all genes are used as well, with one seed and random entries, and with the settings that were chosen for some.

Methods of the first tier run with three seeds with which nothing was chosen. Their settings are chosen for each
data set from a few (``sccountsdiff.benchmark.tuning.GRIDS``), on cells that are test cells with none of the seeds. The second
tier, slow methods in their default settings on two data sets, and all genes, runs with an earlier seed.

What is finished is kept, in the output folder and in the tables ``tier1_<data set>.csv`` and ``tier2_<data set>.csv``, and
never computed again: a clone of the repository goes on where its tables end. Options restrict what is done, so that several processes can share the work,
and each run adds what it has finished to the tables, with the settings that were chosen in ``settings_six_data_sets.csv``. Without
them, everything is completed:

    python docs/benchmarks/six_data_sets.py --data FOLDER --output six_data_sets --methods scvi remdm
    python docs/benchmarks/six_data_sets.py --data FOLDER --output six_data_sets --methods countsdiff --datasets pbmc3k --seeds 16
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from threadpoolctl import threadpool_limits

import sccountsdiff.benchmark as bm
from sccountsdiff.benchmark import baselines as methods
from sccountsdiff.benchmark.results import label
from sccountsdiff.benchmark.runner import prepare
from sccountsdiff.benchmark.tuning import GRIDS, training_cells
from sccountsdiff.files import replacing

DATASETS = {
    "pbmc3k": {"label": "cell_type"},
    "kang_ifnb_pbmc": {"label": "cell_type", "covariates": ("cell_type", "condition"), "batch": "donor"},
    "onek1k_subset": {"label": "cell_type", "batch": "donor"},
    "mouse_bladder_mca_2100": {"label": "cell_type"},
    "zeisel_cortex_subset_ercc": {"label": "cell_type"},
    "sc_mixology_rnamix": {"covariates": ("batch",), "batch": "batch"},
    "mouse_bladder_mca_2100_all_genes": {"label": "cell_type"},
}
"""Files, with the columns of their cells; the type of a cell is its only covariate if no others are named."""

WHOLE = "_all_genes"
"""What is added to the name of a file of which all genes are used."""

SEEDS = (16, 17, 18)
"""Seeds of the first tier; nothing was chosen with them."""

EARLIER_SEEDS = (10, 11, 12)
"""Seeds whose results were looked at while the model was made. Settings were chosen on cells that are training cells with all of them."""

TEST_SHARE = 0.25
PREPARATION = {"n_genes": 1000, "gene_ranking": "variance", "n_cells": 4000}

TASKS = {
    "mcar": ("all", "mcar"),
    "panel": ("all", "panel"),
    "panel_correlated": ("all", "panel_correlated"),
    "molecules": ("all", "molecules"),
    "paper_mcar": ("paper", "mcar"),
}
"""Protocol and missingness, by name."""

METRICS = ["rmse", "mae", "poisson_loss", "spearman", "log_mse", "ratio_of_sums"]
METRICS += ["energy_distance", "mmd", "sliced_wasserstein", "scfid"]
METRICS += ["crps", "pit_ks", "pit_ks_thirds", "coverage_gap"]
DENOISING = ["molecule_poisson", "molecule_mse"]
N_BOOTSTRAP = 0
EMBEDDER_STEPS, BATCH_SIZE = 1500, 128
"""Training of the model that scFID uses: less than that of a method, as it has nothing to compete with."""

OURS = "countsdiff"
FAMILIES = {
    "gaussian_regression": ("gaussian_regression", "gaussian_regression_draw"),
    "scvi": ("scvi", "scvi_refined", "scvi_draw"),
    "remdm": ("remdm", "remdm_mean"),
    OURS: ("countsdiff_mean", OURS, "countsdiff_log_mean"),
}
"""Answers of one method: settings are chosen for the first, and most share one trained model."""
HEAD_WITHOUT_ZEROS = "truncated_mixture"
"""Head of our model under the protocol of the paper, in which zeros are not believed: the default of such a model."""

KEY_OF = {member: members[0] for members in FAMILIES.values() for member in members}
CHEAP = ("gene_mean", "conditional_mean_scaled", "knn_mean", "gaussian_regression", "magic", "alra")
TRAINED = ("scvi", "remdm", OURS)
SLOW = {
    method.name: method
    for method in (
        methods.DCA(),
        methods.GAIN(),
        methods.HIVAEPoisson(),
        methods.HIVAEGaussian(),
        methods.SklearnKNN(),
        methods.SklearnIterative(),
        methods.ScIDPMs(),
        methods.SCGPT(),
        methods.XTrimoGene(),
        # Trees for each level and gene: a fraction of the original's budget, as its own would take days.
        methods.ForestDiffusion(n_t=8, n_copies=4, n_trees=10, max_depth=4),
        # The paper's transformer takes a thousand times as long; its process is shown with our network.
        methods.Blackout(backbone="mlp"),
        methods.CountsDiffPaper(backbone="mlp"),
    )
}
SLOW_DATASETS = ("pbmc3k", "kang_ifnb_pbmc")
EARLIER_SEED = EARLIER_SEEDS[0]
FEW_TASKS = ("mcar",)
"""Seed and tasks of slow methods, and with all genes."""

FOUND_SECONDS = 3
"""A job that takes less was done before, and says nothing about those to come."""

COLUMNS = ["dataset", "protocol", "missingness", "method", "group", "n_samples", "seed", "metric", "value", "se"]
COLUMNS += ["fit_seconds", "impute_seconds", "error"]


@dataclasses.dataclass(frozen=True)
class Job:
    """One method (with its mean and its draws), data set and seed, in tasks of one protocol."""

    method: str
    dataset: str
    seed: int
    protocol: str
    patterns: tuple[str, ...]


def jobs(tasks: Sequence[str]) -> Iterator[Job]:
    """All jobs: cheap methods first, then those that are trained, seed by seed, then the second tier."""
    whole = [name for name in DATASETS if name.endswith(WHOLE)]
    parts = [name for name in DATASETS if name not in whole]
    stages = [(CHEAP, parts, SEEDS), (TRAINED, parts, SEEDS)]
    # ReMDM has a probability for each count of each gene, which is slow with so many genes.
    stages += [((*CHEAP, "scvi", OURS), whole, (EARLIER_SEED,)), ((OURS, *SLOW), SLOW_DATASETS, (EARLIER_SEED,))]
    for names, datasets, seeds in stages:
        for seed in seeds:
            for dataset in datasets:
                for name in names:
                    for protocol in ("all", "paper") if "label" in DATASETS[dataset] else ("all",):
                        asked = TASKS if seed in SEEDS else FEW_TASKS
                        patterns = tuple(
                            TASKS[task][1]
                            for task in asked
                            if task in tasks
                            and TASKS[task][0] == protocol
                            and (TASKS[task][1] != "molecules" or bm.baselines.get_baseline(name).denoises)
                        )
                        if patterns:
                            yield Job(name, dataset, seed, protocol, patterns)


class Comparison:
    """Data, models and settings that jobs share; each is made when it is first needed."""

    def __init__(self, data: Path, output: Path, results: Path, tuned: bool) -> None:
        self.data, self.output, self.results, self.tuned = data, output, results, tuned
        self.fitted: tuple[tuple, dict] = ((), {})

    @cache  # noqa: B019  lives as long as the process
    def saved(self, tier: str, dataset: str) -> pd.DataFrame:
        """The table of a data set as the process found it, with the names of methods without their settings."""
        return saved_table(self.results, tier, dataset)

    def is_saved(self, job: Job) -> bool:
        """Whether all results of a job are in the table."""
        table = self.saved(tier_of(job.seed), job.dataset)
        table = table[(table["protocol"] == job.protocol) & (table["seed"] == job.seed)]
        found = set(zip(table["missingness"], table["name"], strict=True))
        return all(
            (pattern, member) in found
            for pattern, member in product(job.patterns, FAMILIES.get(job.method, (job.method,)))
            if pattern != "molecules" or bm.baselines.get_baseline(member).denoises
        )

    @cache  # noqa: B019
    def dataset(self, name: str) -> bm.datasets.Dataset:
        """A data set with the cells and genes that are compared."""
        columns = dict(DATASETS[name])
        columns.setdefault("covariates", (columns["label"],) if "label" in columns else ())
        dataset = bm.datasets.load_dataset(self.data / f"{name.removesuffix(WHOLE)}.h5ad", **columns)
        genes = {"n_genes": None} if name.endswith(WHOLE) else {}
        return dataclasses.replace(dataset, name=name, adata=prepare(dataset, **PREPARATION | genes))

    @cache  # noqa: B019
    def split(self, name: str, seed: int) -> bm.datasets.Dataset:
        """The same; with seeds of the first tier no cell that a setting was chosen with is a test cell."""
        dataset = self.dataset(name)
        if seed in EARLIER_SEEDS:
            return dataset
        used = training_cells(dataset, EARLIER_SEEDS, TEST_SHARE, min_cells=0).adata.obs_names
        cells = dataset.adata.copy()
        cells.obs["no setting was chosen with it"] = ~cells.obs_names.isin(used)
        return dataclasses.replace(dataset, adata=cells, testable="no setting was chosen with it")

    @cache  # noqa: B019
    def methods(self, name: str, dataset: str) -> list[bm.baselines.Baseline]:
        """The method in the settings that were chosen for a data set, with all genes or with some, in all its answers."""
        if name in SLOW:
            return [SLOW[name]]
        key = KEY_OF.get(name, name)
        method = bm.baselines.get_baseline(key)()
        saved = self.saved("tier1", dataset.removesuffix(WHOLE))
        chosen = saved.loc[(saved["name"] == key) & (saved["protocol"] == "all"), "method"].unique()
        variants = {label(variant, key): variant for variant in variants_of(method)}
        if len(chosen) == 1 and chosen[0] in variants:  # the other seeds ran with these settings
            method = variants[chosen[0]]
        elif self.tuned:
            options = {"seed": EARLIER_SEEDS, "test_share": TEST_SHARE, "min_cells": 0}
            where = {"output": self.output / "tuning", "silent": True}
            method = bm.tune(self.dataset(dataset), key, **options, **where)[key]
        training = [setting.name for setting in dataclasses.fields(method) if "sampling" not in setting.metadata]
        settings = {setting: getattr(method, setting) for setting in training}
        return [method, *(bm.baselines.get_baseline(other)(**settings) for other in FAMILIES.get(name, ())[1:])]

    def embedder(self, name: str) -> Path:
        """The scVI model that scFID uses: one for all methods, tasks and splits of a data set, trained on all of its cells."""
        os.environ["SCCOUNTSDIFF_ALLOW_PICKLE"] = "1"  # it is made here
        folder = self.output / "embedders" / name
        if not folder.exists():
            cells = self.dataset(name).adata
            # A process that is killed leaves no half-written model behind; of two that are at it, the first one counts.
            partial = folder.with_suffix(f".{os.getpid()}.partial")
            n_epochs = min(400, EMBEDDER_STEPS * BATCH_SIZE // cells.n_obs)
            bm.metrics.train_embedder(cells.copy(), max_epochs=n_epochs, seed=0).save(partial, overwrite=True)
            try:
                partial.rename(folder)
            except OSError:
                shutil.rmtree(partial)
        return folder

    def run(self, job: Job) -> None:
        """Do a job, unless its results are there."""
        if self.is_saved(job):
            return
        what = (job.method, job.dataset, job.seed)
        if self.fitted[0] != what:  # the protocols of one come one after the other
            self.fitted = (what, {})
        members = self.methods(job.method, job.dataset)
        if job.method == OURS and job.protocol == "paper":
            members = [dataclasses.replace(member, head=HEAD_WITHOUT_ZEROS) for member in members]
        denoising = tuple(pattern for pattern in job.patterns if pattern == "molecules")
        others = tuple(pattern for pattern in job.patterns if pattern not in denoising)
        self._run(job, members, others, METRICS)
        self._run(job, [method for method in members if method.denoises], denoising, DENOISING)

    def _run(
        self, job: Job, members: list[bm.baselines.Baseline], patterns: tuple[str, ...], metrics: list[str]
    ) -> None:
        if not patterns or not members:
            return
        bm.run(
            self.split(job.dataset, job.seed),
            list(patterns),
            members,
            [job.seed],
            protocol=job.protocol,
            metrics=metrics,
            embedder=self.embedder(job.dataset),
            min_cells=0,
            test_share=TEST_SHARE,
            n_bootstrap=N_BOOTSTRAP,
            output=self.output / "jobs",
            trained=self.fitted[1],
            silent=True,
        )

    def collect(self) -> None:
        """Add what is finished, whichever process did it, to the tables; it takes the place of what was there."""
        rows = defaultdict(list)
        for path in sorted((self.output / "jobs" / "results").glob("*.json")):
            found = json.loads(path.read_text())["rows"]
            if found and found[0]["seed"] in (*SEEDS, EARLIER_SEED) and self._is_current(**found[0]):
                rows[tier_of(found[0]["seed"]), found[0]["dataset"]] += found
        for (tier, name), found in rows.items():
            keys = ["protocol", "missingness", "seed", "method", "n_samples"]
            new = pd.DataFrame(found)[COLUMNS]
            new["name"] = new["method"].str.partition("(")[0]
            what = ["protocol", "missingness", "seed", "name"]
            old = saved_table(self.results, tier, name)
            old = old[old["seed"].isin(SEEDS if tier == "tier1" else (EARLIER_SEED,))]
            is_old = ~pd.MultiIndex.from_frame(old[what]).isin(pd.MultiIndex.from_frame(new[what]))
            table = pd.concat([part for part in (old[is_old], new) if len(part)]).sort_values(keys, kind="stable")
            write_results(self.results / f"{tier}_{name}.csv", table[COLUMNS])
        self._collect_settings()

    def _collect_settings(self) -> None:
        """Add the scores by which settings were chosen to a table of their own."""
        rows = []
        for path in sorted((self.output / "tuning").glob("tuned_*.json")):
            record = json.loads(path.read_text())
            what = {name: record[name] for name in ("dataset", "method", "metric")}
            for setting, score in record["scores"].items():
                rows.append({**what, "setting": setting, "value": score, "chosen": setting == record["chosen"]})
        if not rows:
            return
        new, path = pd.DataFrame(rows), self.results / "settings_six_data_sets.csv"
        if path.exists():
            old, what = pd.read_csv(path), ["dataset", "method"]
            new = pd.concat([old[~pd.MultiIndex.from_frame(old[what]).isin(pd.MultiIndex.from_frame(new[what]))], new])
        write_results(path, new.sort_values(["dataset", "method"], kind="stable"))

    def _is_current(self, dataset: str, method: str, protocol: str, **others: object) -> bool:
        """Whether the method has the settings that were chosen; those that nothing was chosen for may have any."""
        name, _, settings = method.partition("(")
        if name in FAMILIES[OURS] and protocol == "paper":
            return HEAD_WITHOUT_ZEROS in settings
        path = self.output / "tuning" / tuned_name(dataset, KEY_OF.get(name, name))
        return not path.exists() or json.loads(path.read_text())["chosen"].partition("(")[2] == settings


def tuned_name(dataset: str, method: str) -> str:
    """File with the settings that were chosen."""
    return f"tuned_{dataset}_{method}_{'_'.join(map(str, EARLIER_SEEDS))}.json"


def tier_of(seed: int) -> str:
    """Tier whose tables have the results of a seed."""
    return "tier1" if seed in SEEDS else "tier2"


def saved_table(folder: Path, tier: str, dataset: str) -> pd.DataFrame:
    """What is in the table of a data set, with the names of methods without their settings; empty if there is none."""
    path = folder / f"{tier}_{dataset}.csv"
    table = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=COLUMNS)
    return table.assign(name=[method.partition("(")[0] for method in table["method"]])


def write_results(path: Path, table: pd.DataFrame) -> None:
    """Write a table in the precision in which results are kept."""
    with replacing(path) as beside:
        table.to_csv(beside, index=False, float_format="%.5g")


def variants_of(method: bm.baselines.Baseline) -> list[bm.baselines.Baseline]:
    """The method in each of the settings that it can have."""
    return [dataclasses.replace(method, **settings) for settings in GRIDS.get(method.name, ({},))]


def forget(output: Path, results: Path, names: Sequence[str]) -> None:
    """Delete results of methods, in all their answers, of which the code has changed."""
    if not names:
        return
    names = [*names, *(member for name in names for member in FAMILIES.get(name, ()))]
    for path in [*output.glob("jobs/results/*.json"), *output.glob("tuning/results/*.json")]:
        method = json.loads(path.read_text())["configuration"]["method"]
        if isinstance(method, dict) and method["name"] in names:
            path.unlink()
    for name, dataset in product(names, DATASETS):
        (output / "tuning" / tuned_name(dataset, name)).unlink(missing_ok=True)
    for tier, dataset in product(("tier1", "tier2"), DATASETS):
        table = saved_table(results, tier, dataset)
        if table["name"].isin(names).any():
            write_results(results / f"{tier}_{dataset}.csv", table.loc[~table["name"].isin(names), COLUMNS])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = [*CHEAP, *TRAINED, *SLOW]
    parser.add_argument("--data", type=Path, required=True, help="folder with the .h5ad files")
    parser.add_argument("--output", type=Path, required=True, help="folder for what is finished")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results", help="folder for the tables")
    parser.add_argument("--datasets", nargs="+", choices=DATASETS, metavar="NAME", default=list(DATASETS))
    parser.add_argument("--methods", nargs="+", choices=known, metavar="METHOD", default=known, help=", ".join(known))
    parser.add_argument("--seeds", nargs="+", type=int, choices=(*SEEDS, EARLIER_SEED), default=(*SEEDS, EARLIER_SEED))
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--untuned", action="store_true", help="default settings for all methods")
    parser.add_argument("--tune-only", action="store_true", help="choose settings, and stop")
    parser.add_argument("--collect-only", action="store_true", help="write the tables of what is finished, and stop")
    parser.add_argument("--forget", nargs="+", default=(), metavar="METHOD", help="delete results of these first")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()

    torch.set_num_threads(arguments.threads)
    threadpool_limits(arguments.threads)
    for folder in ("embedders", "tuning", "jobs/results"):
        (arguments.output / folder).mkdir(parents=True, exist_ok=True)
    forget(arguments.output, arguments.results, arguments.forget)
    comparison = Comparison(arguments.data, arguments.output, arguments.results, tuned=not arguments.untuned)
    todo = [
        job
        for job in jobs(arguments.tasks)
        if job.method in arguments.methods and job.dataset in arguments.datasets and job.seed in arguments.seeds
    ]
    if arguments.tune_only:
        todo = list({(job.method, job.dataset): job for job in todo}.values())

    def work(job: Job) -> None:
        if arguments.tune_only:
            comparison.methods(job.method, job.dataset)
        else:
            comparison.run(job)
        comparison.collect()  # after each: what is in the tables outlives the folder

    if arguments.collect_only:
        comparison.collect()
    else:
        follow(todo, work)


def follow(todo: Sequence[Job], work: Callable[[Job], object]) -> None:
    """Do all jobs, and say how long the rest may take: as long as those of the same method took, or all on average."""
    seconds = defaultdict(list)
    for number, job in enumerate(todo, start=1):
        start = time.perf_counter()
        work(job)
        taken = time.perf_counter() - start
        if taken > FOUND_SECONDS:
            seconds[job.method].append(taken)
        average = np.mean([np.mean(values) for values in seconds.values()]) if seconds else 0
        left = sum(np.mean(seconds[other.method]) if other.method in seconds else average for other in todo[number:])
        where = f"{job.dataset}, seed {job.seed}, {job.protocol}, {job.method}"
        print(f"{number} of {len(todo)}: {where}: {taken:.0f} s; at most {left / 3600:.1f} h left", flush=True)


if __name__ == "__main__":
    main()
