"""The comparison on six data sets: wins, ties and losses of CountsDiff, from ``tier1_<data set>.csv`` and, of slow
methods and all genes, ``tier2_<data set>.csv``.

Nothing is written while there are no such files. The table of blocks that are missing as a whole is from ``blocks.csv``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from results import RESULTS

from sccountsdiff.benchmark.metrics import get_metric
from sccountsdiff.benchmark.outcomes import OUTCOMES, count_outcomes, head_to_head

OURS = ("countsdiff", "countsdiff_mean", "countsdiff_log_mean")
FAMILIES = {
    "gaussian_regression_draw": "gaussian_regression",
    "scvi_refined": "scvi",
    "scvi_draw": "scvi",
    "remdm_mean": "remdm",
}
KINDS = {
    "single entries": ("rmse", "mae", "poisson_loss", "spearman", "log_mse"),
    "totals": ("ratio_of_sums",),
    "distribution": ("energy_distance", "mmd", "sliced_wasserstein", "scfid"),
    "draws": ("crps", "pit_ks", "pit_ks_thirds", "coverage_gap"),
    "denoising": ("molecule_poisson", "molecule_mse"),
}
"""Metrics by what they are about."""

DRAWING = ("remdm", "scvi", "gaussian_regression", "scidpms", "blackout", "countsdiff_paper")
"""Rivals with an answer that is one draw. The others have means, which are far from any distribution of counts: to win by that
counts for nothing."""

BLIND = ("magic", "alra")
"""Rivals that take hidden entries for zeros, and have no answer for a gene that all test cells lack."""

NAMES = {
    "pbmc3k": "PBMC 3k",
    "kang_ifnb_pbmc": "Kang",
    "onek1k_subset": "OneK1K",
    "mouse_bladder_mca_2100": "bladder",
    "zeisel_cortex_subset_ercc": "cortex",
    "sc_mixology_rnamix": "mixtures",
    "mouse_bladder_mca_2100_all_genes": "bladder, all genes",
}
"""Data sets as headings of columns."""

TASKS = {
    "Half of all entries": ("all", "mcar"),
    "Half of the genes": ("all", "panel"),
    "Half of the genes, correlated": ("all", "panel_correlated"),
    "Molecules": ("all", "molecules"),
    "Paper's protocol": ("paper", "mcar"),
}
SHOWN = ("rmse", "mae", "poisson_loss", "spearman", "energy_distance", "mmd", "sliced_wasserstein", "scfid", "crps")
SHOWN += ("pit_ks", "pit_ks_thirds", "ratio_of_sums", "molecule_poisson", "molecule_mse")
"""Metrics of the tables."""


def tables(folder: Path = RESULTS) -> pd.DataFrame | None:
    """All saved tables of the comparison, one below the other, with their tier; ``None`` if there are none."""
    paths = sorted(folder.glob("tier[12]_*.csv"))
    parts = [pd.read_csv(path).assign(tier=path.name.partition("_")[0]) for path in paths]
    return pd.concat(parts, ignore_index=True) if parts else None


def comparisons(results: pd.DataFrame, ours: Sequence[str] = OURS) -> pd.DataFrame:
    """CountsDiff, in some of its answers, against each other method of each tier that has an answer, with the kind of each metric."""
    metrics = [metric for metrics in KINDS.values() for metric in metrics]
    of_tiers = [part for _, part in results.groupby("tier")]
    table = pd.concat(
        [head_to_head(part, ours, families=FAMILIES, metrics=metrics) for part in of_tiers], ignore_index=True
    )
    kind_of = {metric: kind for kind, metrics in KINDS.items() for metric in metrics}
    table = table.assign(kind=table["metric"].map(kind_of))
    has_none = (table["kind"] == "distribution") & ~table["rival"].isin(DRAWING)
    has_none |= table["rival"].isin(BLIND) & table["missingness"].str.startswith("panel")
    return table[~has_none].reset_index(drop=True)


def counts(table: pd.DataFrame) -> str:
    """Wins, ties and losses against each method by kind of metric, in Markdown."""
    kinds = [kind for kind in KINDS if kind in set(table["kind"])]
    lines = ["| against | " + " | ".join([*kinds, "all"]) + " |", "|---" * (len(kinds) + 2) + "|"]
    for rival, part in table.groupby("rival", sort=False):
        numbers = count_outcomes(part, "kind").reindex(kinds, fill_value=0)
        cells = [*numbers.to_numpy().tolist(), numbers.sum().tolist()]
        shown = ["/".join(map(str, cell)) if any(cell) else "–" for cell in cells]
        lines.append(f"| {rival} | " + " | ".join(shown) + " |")
    return "\n".join([*lines, ""])


def losses(table: pd.DataFrame) -> str:
    """All losses, in Markdown: where, by which metric, to whom."""
    lost = table[table["outcome"] == OUTCOMES[-1]]
    columns = ["data", "protocol", "hidden", "metric", "CountsDiff", "better", "SE of difference"]
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    for row in lost.itertuples():
        cells = [
            NAMES.get(row.dataset, row.dataset),
            row.protocol,
            row.missingness,
            row.metric,
            f"{row.value:.3g} (`{row.answer}`)",
        ]
        cells += [f"{row.rival_value:.3g} (`{row.rival_answer}`)", f"{row.se:.1g}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def values(results: pd.DataFrame) -> str:
    """A tab for each task, a table for each metric: each method's best answer on each data set, with the seeds of ours.

    The second tier, which ran with another seed, has a tab of its own.
    """
    table = results[results["metric"].notna() & (results["group"] != "reference")]
    split = ["tier", "dataset", "protocol", "seed"]
    ours = table.loc[table["method"].str.startswith(OURS[0]), split].drop_duplicates()
    table = table.merge(ours, on=split)
    names = table["method"].str.partition("(")[0]
    table = table.assign(player=names.replace(FAMILIES | dict.fromkeys(OURS, OURS[0])), answer=names)
    task = ["tier", "protocol", "missingness", "metric"]
    means = table.groupby([*task, "dataset", "player", "answer", "n_samples"])["value"].mean()
    lines = ["::::{tab-set}", ""]
    tabs = {title: ("tier1", *task) for title, task in TASKS.items()}
    for title, task in (tabs | {"Slow methods, and all genes": ("tier2", "all", "mcar")}).items():
        shown = [metric for metric in SHOWN if (*task, metric) in means.index]
        if shown:
            tables = [line for metric in shown for line in _metric_table(means.loc[(*task, metric)], metric)]
            lines += [f":::{{tab-item}} {title}", "", *tables, ":::", ""]
    return "\n".join([*lines, "::::", ""])


def _metric_table(means: pd.Series, metric: str) -> list[str]:
    """Best answers by method and data set; the best of each data set is bold."""
    loss = get_metric(metric).loss(means)
    best = loss.groupby(["player", "dataset"]).idxmin()
    shown = best.map(means).unstack("dataset")
    order = best.map(loss).unstack("dataset").rank().mean(axis=1).sort_values().index
    winners = best.map(loss).unstack("dataset").idxmin()
    headings = [NAMES.get(name, name) for name in shown.columns]
    lines = [f"| {metric} | " + " | ".join(headings) + " |", "|---" * (len(headings) + 1) + "|"]
    for player in order:
        cells = ["" if pd.isna(v) else f"{v:.4g}" for v in shown.loc[player]]
        cells = [f"**{c}**" if winners[name] == player else c for c, name in zip(cells, shown.columns, strict=True)]
        lines.append(f"| {player} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def runs(results: pd.DataFrame) -> str:
    """With how many seeds each method ran on each data set: all entries, and the paper's protocol."""
    table = results[results["metric"].notna()]  # a method that failed has none
    table = table.assign(player=table["method"].str.partition("(")[0])
    table = table[~table["player"].isin([*FAMILIES, *OURS[1:], "truth"])]
    # Some ran in the second tier as well.
    table = table[table["tier"] == table.groupby(["player", "dataset"])["tier"].transform("min")]
    seeds = (
        table.groupby(["player", "protocol", "dataset"])["seed"]
        .nunique()
        .unstack(["dataset", "protocol"], fill_value=0)
    )
    datasets = sorted(table["dataset"].unique())
    lines = ["| seeds | " + " | ".join(NAMES.get(name, name) for name in datasets) + " |"]
    lines.append("|---" * (len(datasets) + 1) + "|")
    for player, row in seeds.iterrows():
        cells = [" + ".join(str(row.get((name, protocol), 0)) for protocol in ("all", "paper")) for name in datasets]
        lines.append(f"| {player} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def blocks(folder: Path = RESULTS) -> str | None:
    """Blocks that are missing in some cells of the training data; means over seeds. ``None`` without results."""
    path = folder / "blocks.csv"
    if not path.exists():
        return None
    table = pd.read_csv(path)
    values = table.groupby(["block", "method", "metric"], sort=False)["value"]
    means, errors = values.mean(), values.sem()
    seeds = table.groupby(["block", "method"])["seed"].nunique()
    columns = ["rmse", "ratio_of_sums", "spearman_per_gene", "coverage_90"]
    lines = ["| missing | method | RMSE | ratio of sums | Spearman | in 90 % interval |", "|---" * 6 + "|"]
    for block, method in means.index.droplevel("metric").unique():
        keys = [(block, method, metric) for metric in columns]
        cells = ["" if key not in means.index else f"{means[key]:.3g}" for key in keys]
        if not pd.isna(error := errors.get(keys[1])):
            cells[1] += f" ± {error:.2g}"
        lines.append(f"| {block} ({seeds[block, method]} seeds) | {method} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def latent(folder: Path = RESULTS) -> str | None:
    """Embeddings of cells: how well types are kept and batches mixed; means over seeds. ``None`` without results."""
    path = folder / "latent.csv"
    if not path.exists():
        return None
    table = pd.read_csv(path)
    means = table.pivot_table(index=["dataset", "method"], columns="metric", values="value", sort=False)
    seeds = table.groupby(["dataset", "method"])["seed"].nunique()
    columns = ["type_accuracy", "type_silhouette", "same_batch"]
    lines = ["| data | embedding | accuracy of types | silhouette of types | same batch, relative to chance |"]
    lines.append("|---" * 5 + "|")
    for (dataset, method), row in means.iterrows():
        cells = ["" if pd.isna(row[name]) else f"{row[name]:.3f}" for name in columns]
        lines.append(f"| {dataset} ({seeds[dataset, method]} seeds) | {method} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


ABLATED = {
    "RMSE": ("countsdiff_mean 1", "rmse", ".4g"),
    "Poisson loss": ("countsdiff_mean 1", "poisson_loss", ".4f"),
    "Spearman": ("countsdiff_mean 1", "spearman", ".4f"),
    "energy distance": ("countsdiff 1", "energy_distance", ".4f"),
    "CRPS": ("countsdiff 5", "crps", ".4f"),
    "PIT": ("countsdiff 5", "pit_ks", ".4f"),
}
"""Columns of the ablation: answer, metric and format."""


def ablation(folder: Path = RESULTS) -> str | None:
    """The default model with one part changed, half of all entries hidden; means over seeds. ``None`` without results."""
    path = folder / "ablation.csv"
    if not path.exists():
        return None
    table = pd.read_csv(path)
    table = table[table["missingness"] == "mcar"]
    means = table.groupby(["data", "variant", "answer", "metric"], sort=False)["value"].mean()
    lines = ["| data | model | " + " | ".join(ABLATED) + " |", "|---" * (len(ABLATED) + 2) + "|"]
    for data, variant in table[["data", "variant"]].drop_duplicates().itertuples(index=False):
        cells = [format(means[data, variant, answer, metric], spec) for answer, metric, spec in ABLATED.values()]
        lines.append(f"| {NAMES.get(data, data)} | {variant} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def steps(folder: Path = RESULTS) -> str | None:
    """What draws in different steps keep of correlations, and their energy distance; means over seeds. ``None`` without results."""
    path = folder / "steps.csv"
    if not path.exists():
        return None
    table = pd.read_csv(path)
    means = table.groupby(["spacing", "n_steps", "task"], sort=False).mean(numeric_only=True)
    tasks = table["task"].unique()
    headings = [NAMES.get(task, f"all {task}") for task in tasks]
    lines = ["| steps | " + " | ".join(headings) + " |", "|---" * (len(headings) + 1) + "|"]
    for spacing, n_steps in table[["spacing", "n_steps"]].drop_duplicates().itertuples(index=False):
        rows = [means.loc[spacing, n_steps, task] for task in tasks]
        cells = [f"{row['correlation_kept']:.2f}; {row['energy_distance']:.3f}" for row in rows]
        lines.append(f"| {n_steps} {spacing} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def averaging(folder: Path = RESULTS) -> str | None:
    """Errors of draws that are averaged, relative to those of one pass; means over seeds. ``None`` without results."""
    path = folder / "averaging.csv"
    if not path.exists():
        return None
    table = pd.read_csv(path)
    table = table.pivot_table(index=["data", "seed", "answer"], columns="metric", values="value", sort=False)
    first = table.index.get_level_values("answer")[0]
    relative = (table / table.xs(first, level="answer")).groupby(["answer", "data"], sort=False).mean()
    datasets = relative.index.unique("data")
    headings = [f"RMSE, {NAMES.get(name, name)}" for name in datasets]
    n_seeds = table.index.unique("seed").size
    first = f"answer ({n_seeds} {'seed' if n_seeds == 1 else 'seeds'})"
    lines = [f"| {first} | " + " | ".join([*headings, "time"]) + " |", "|---" * (len(headings) + 2) + "|"]
    for answer in relative.index.unique("answer"):
        cells = [f"{relative.loc[(answer, name), 'rmse']:.3f}" for name in datasets]
        cells.append(f"{relative.loc[answer, 'cpu_seconds'].mean():.0f} x")
        lines.append(f"| {answer} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def analyses(folder: Path = RESULTS) -> str | None:
    """Twelve analyses: what each found, and how long it took; ``None`` without results."""
    path = folder / "analyses.csv"
    if not path.exists():
        return None
    lines = ["| analysis | found | CPU time |", "|---|---|---|"]
    for name, part in pd.read_csv(path).groupby("analysis", sort=False):
        figures = part.set_index("figure")["value"]
        found = "; ".join(f"{figure}: {value:.3g}" for figure, value in figures.items() if "seconds" not in figure)
        lines.append(f"| `{name}` | {found} | {figures['CPU seconds']:.0f} s |")
    return "\n".join([*lines, ""])


def largest_draws(folder: Path = RESULTS) -> str | None:
    """How far the largest draws go beyond the counts of their gene in training; ``None`` without results."""
    path = folder / "largest_draws.csv"
    if not path.exists():
        return None
    lines = [
        "| data | draws | largest count in training | largest draw | largest true count | draws above three times |"
    ]
    lines.append("|---" * 6 + "|")
    for row in pd.read_csv(path).itertuples():
        ratios = f"{row.largest_ratio:.2f} x | {row.true_largest_ratio:.2f} x"
        lines.append(
            f"| {NAMES.get(row.data, row.data)} | {row.draws:,} | {row.largest_count:,} | {ratios} | {row.above_three_times} |"
        )
    return "\n".join([*lines, ""])
