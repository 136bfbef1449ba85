"""Parts of the page on the paper's tables: the settings of every row, and the paper's model trained to convergence."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure
from results import RESULTS

from sccountsdiff.benchmark.paper import FETUS, HEART, settings_table

METRICS = {
    "rmse": "RMSE ↓",
    "bias": "bias →0",
    "spearman": "Spearman ↑",
    "energy_distance": "energy distance ↓",
    "sliced_wasserstein": "sliced Wasserstein ↓",
}
PAPER_S = "CountsDiff, the paper's"


def settings() -> str:
    """Tabs with the settings of all rows at full size, one for each atlas."""
    parts = ["::::{tab-set}", ""]
    for title, atlas in {"Fetal atlas": FETUS, "Heart atlas": HEART}.items():
        table = settings_table(atlas)
        columns = list(dict.fromkeys(table.columns.get_level_values(0)))
        lines = ["| row | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
        for name, row in table.iterrows():
            cells = [row["differs", ""] if c == "differs" else _pair(row[c, "ours"], row[c, "paper"]) for c in columns]
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
        parts += [f":::{{tab-item}} {title}", "", *lines, "", ":::", ""]
    return "\n".join([*parts, "::::", ""])


def _pair(ours: str, paper: str) -> str:
    """Our value, and the paper's if it is another one."""
    return ours if paper in ("", ours) else f"{ours or '–'} *({paper})*"


def scores() -> str | None:
    """Scores of the models that were trained to convergence, of one draw and of the mean of five: means over seeds."""
    path = RESULTS / "paper_model.csv"
    if not path.exists():
        return None
    table = pd.read_csv(path)
    lines = [
        "| genes | model | draws | seeds | parameters | " + " | ".join(METRICS.values()) + " |",
        "|---" * (len(METRICS) + 5) + "|",
    ]
    for (genes, model, n), rows in table.groupby(["genes", "model", "n_samples"], sort=False):
        values = rows.groupby("metric")["value"].agg(["mean", "sem"])
        cells = [_with_error(*values.loc[metric]) for metric in METRICS]
        about = f"| {genes} | {model} | {n} | {rows['seed'].nunique()} | {rows['n_parameters'].iloc[0]:,} | "
        lines.append(about + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def _with_error(mean: float, error: float) -> str:
    """A mean over seeds with its standard error, if there are several."""
    return f"{mean:.3f}" if pd.isna(error) else f"{mean:.3f} ± {error:.2g}"


def save_figure(path: Path) -> None:
    """Validation losses by epoch, and counts that models expect to come when few are lost."""
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    if (RESULTS / "paper_model_losses.csv").exists():
        losses = pd.read_csv(RESULTS / "paper_model_losses.csv")
        losses = losses[losses["model"].isin([PAPER_S, "ReMDM"]) & (losses["seed"] == 0)]
        for (genes, model), part in losses.groupby(["genes", "model"], sort=False):
            fall = part["validation_loss"] - part["validation_loss"].min()
            left.plot(part["epoch"] + 1, fall / fall.iloc[0], label=f"{model} ({genes})")
        coming = pd.read_csv(RESULTS / "paper_model_last_steps.csv")
        for model, part in coming[(coming["genes"] == "common") & (coming["seed"] == 0)].groupby("model", sort=False):
            right.plot(part["lost"], part["predicted"], label=model)
        right.plot(part["lost"], part["expected"], "k:", label="truth")
    left.set(xlabel="epoch", ylabel="share of the fall of the loss still to come")
    right.set(xlabel="share of counts lost", ylabel="mean count still to come", xscale="log", yscale="log")
    for ax in (left, right):
        if ax.lines:
            ax.legend(fontsize=7)
    figure.savefig(path, dpi=150)
