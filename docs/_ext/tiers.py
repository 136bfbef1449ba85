"""The comparison on six data sets: wins, ties and losses of CountsDiff, from ``tier1_<data set>.csv``.

Nothing is written while there are no such files.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from results import RESULTS

from sccountsdiff.benchmark.outcomes import OUTCOMES, count_outcomes, head_to_head

OURS = ("countsdiff", "countsdiff_mean")
FAMILIES = {"gaussian_regression_draw": "gaussian_regression", "scvi_refined": "scvi", "scvi_draw": "scvi"}
KINDS = {
    "single entries": ("rmse", "mae", "poisson_loss", "spearman", "log_mse"),
    "totals": ("ratio_of_sums",),
    "distribution": ("energy_distance", "mmd", "sliced_wasserstein", "scfid"),
    "draws": ("crps", "pit_ks", "pit_ks_thirds", "coverage_gap"),
    "denoising": ("molecule_poisson", "molecule_mse"),
}
"""Metrics by what they are about."""


def tables(folder: Path = RESULTS) -> pd.DataFrame | None:
    """All saved tables of the comparison, one below the other; ``None`` if there are none."""
    paths = sorted(folder.glob("tier1_*.csv"))
    return pd.concat(map(pd.read_csv, paths), ignore_index=True) if paths else None


def comparisons(results: pd.DataFrame) -> pd.DataFrame:
    """CountsDiff against each other method, with the kind of each metric."""
    metrics = [metric for metrics in KINDS.values() for metric in metrics]
    table = head_to_head(results, OURS, families=FAMILIES, metrics=metrics)
    kind_of = {metric: kind for kind, metrics in KINDS.items() for metric in metrics}
    return table.assign(kind=table["metric"].map(kind_of))


def counts(table: pd.DataFrame) -> str:
    """Wins, ties and losses against each method by kind of metric, in Markdown."""
    kinds = [kind for kind in KINDS if kind in set(table["kind"])]
    lines = ["| against | " + " | ".join([*kinds, "all"]) + " |", "|---" * (len(kinds) + 2) + "|"]
    for rival, part in table.groupby("rival", sort=False):
        numbers = count_outcomes(part, "kind").reindex(kinds, fill_value=0)
        cells = [*numbers.to_numpy().tolist(), numbers.sum().tolist()]
        lines.append(f"| `{rival}` | " + " | ".join(" / ".join(map(str, cell)) for cell in cells) + " |")
    return "\n".join([*lines, ""])


def losses(table: pd.DataFrame) -> str:
    """All losses, in Markdown: where, by which metric, to whom."""
    lost = table[table["outcome"] == OUTCOMES[-1]]
    columns = ["data", "protocol", "hidden", "metric", "CountsDiff", "better", "SE of difference"]
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    for row in lost.itertuples():
        cells = [row.dataset, row.protocol, row.missingness, row.metric, f"{row.value:.3g} (`{row.answer}`)"]
        cells += [f"{row.rival_value:.3g} (`{row.rival_answer}`)", f"{row.se:.1g}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])
