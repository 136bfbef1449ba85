"""The overview of the comparison of all methods: one figure and one table, from the first seed of the saved results.

All methods ran with the first seed. A ratio to the best is 1 for the best answer of any method. Spearman correlation goes
into ratios as one minus the correlation; the Poisson loss has no natural zero, so it counts for ranks only.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from results import HIGHER_IS_BETTER, read

POINTWISE = {"rmse": "RMSE", "mae": "MAE", "spearman": "Spearman", "poisson_loss": "Poisson loss"}
DISTRIBUTIONAL = {
    "energy_distance": "energy distance",
    "mmd": "MMD",
    "sliced_wasserstein": "sliced Wasserstein",
    "scfid": "scFID",
}
DRAWS = {"crps": "CRPS"}
METRICS = POINTWISE | DISTRIBUTIONAL | DRAWS
DATA = {"pbmc3k": "PBMC 3k", "kang": "Kang", "onek1k": "OneK1K"}
SETTINGS = {"all": "all entries", "observed": "observed", "low": "observed, low", "high": "observed, high"}
COLUMNS = [
    (setting, data) for setting in SETTINGS for data in DATA if setting in set(read(f"comparison_{data}")["setting"])
]
OURS = ("countsdiff_mean", "countsdiff", "countsdiff (5)")


def values(metric: str, seed: int = 0) -> pd.DataFrame:
    """One metric: a row for each answer of a method, a column for each setting and data set."""
    columns = {}
    for setting, data in COLUMNS:
        table = read(f"comparison_{data}")
        rows = table[(table["setting"] == setting) & (table["seed"] == seed)]
        columns[setting, data] = rows.set_index("method")[metric]
    return pd.DataFrame(columns)


def losses(metric: str) -> pd.DataFrame:
    """The same with lower values being better."""
    table = values(metric)
    if metric in HIGHER_IS_BETTER:
        return 1 - table
    return table


def ratios(metrics) -> pd.DataFrame:
    """Ratio to the best answer, as geometric mean over metrics."""
    logs = [np.log(losses(metric) / losses(metric).min()) for metric in metrics if metric != "poisson_loss"]
    return np.exp(sum(logs) / len(logs))


def ranks(metrics) -> pd.DataFrame:
    """Rank among all answers, as mean over metrics; 1 is best."""
    return sum(losses(metric).rank() for metric in metrics) / len(metrics)


def order() -> pd.Series:
    """Mean rank of each answer over all columns, pointwise and distributional metrics counting the same; best first."""
    return ((ranks(POINTWISE) + ranks(DISTRIBUTIONAL)) / 2).mean(axis=1).sort_values()


def method_of(answer: str) -> str:
    """Name of the method that an answer is of: all three answers of the default model are CountsDiff."""
    return "CountsDiff" if answer in OURS else answer.removesuffix(" (5)")


def winners(metric: str) -> dict[tuple[str, str], tuple[str, int]]:
    """For each setting and data set, the best method, and the place of CountsDiff among methods.

    Each method counts with the best of its answers: a mean, a draw or the mean of five draws.
    """
    table = losses(metric)
    best = table.groupby([method_of(answer) for answer in table.index]).min()
    return {
        column: (best[column].idxmin(), int((best[column] < best.loc["CountsDiff", column]).sum()) + 1)
        for column in best
    }


def table() -> str:
    """Who is best by each metric, in Markdown."""
    lines = [
        "| data: hidden | " + " | ".join(METRICS.values()) + " |",
        "|---" * (len(METRICS) + 1) + "|",
    ]
    found = {metric: winners(metric) for metric in METRICS}
    for setting, data in COLUMNS:
        cells = []
        for metric in METRICS:
            best, place = found[metric][setting, data]
            cells.append("**1**" if place == 1 else f"{place} ({best.replace('_', ' ')})")
        lines.append(f"| {DATA[data]}: {SETTINGS[setting]} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def n_methods() -> int:
    """Number of methods in the overview, CountsDiff counting once."""
    return len({method_of(answer) for answer in values("rmse").index})


def count_firsts(metrics, setting: str | None = None) -> tuple[int, int]:
    """In how many combinations of data set, setting and metric CountsDiff is first, and how many there are."""
    places = [
        place
        for metric in metrics
        for (name, _), (_, place) in winners(metric).items()
        if setting is None or name == setting
    ]
    return places.count(1), len(places)


def figure() -> Figure:
    """Heat map of ratios to the best: answers by settings and data sets."""
    with mpl.rc_context({"font.size": 8, "font.family": "sans-serif"}):
        return _figure()


def _figure() -> Figure:
    answers = order()
    panels = {
        "Single entries\n(RMSE, MAE, 1 − Spearman)": ratios(POINTWISE),
        "Distribution (energy, MMD,\nsliced Wasserstein, scFID)": ratios(DISTRIBUTIONAL),
        "Five draws (CRPS;\nmethods that draw)": ratios(DRAWS),
    }
    fig = Figure(figsize=(8.2, 9.2), layout="constrained")
    axes = fig.subplots(1, len(panels), sharey=True)
    colours, norm = mpl.colormaps["cividis_r"], LogNorm(1, 10)
    for ax, (title, panel) in zip(axes, panels.items(), strict=True):
        panel = panel.reindex(answers.index)
        image = ax.imshow(panel, cmap=colours, norm=norm, aspect="auto")
        ax.set_facecolor("white")
        for (i, j), ratio in np.ndenumerate(panel.to_numpy()):
            if np.isnan(ratio):
                continue
            is_best = ratio == np.nanmin(panel.iloc[:, j])
            text = f"{ratio:.{2 if ratio < 1.995 else 1 if ratio < 9.95 else 0}f}"
            dark = norm(min(ratio, 10)) > 0.5
            ax.text(
                j, i, text, ha="center", va="center", fontsize=6.8,
                color="white" if dark else "black", weight="bold" if is_best else "normal",
            )  # fmt: skip
            if is_best:
                ax.add_patch(
                    Rectangle((j - 0.46, i - 0.46), 0.92, 0.92, fill=False, edgecolor="#d55e00", linewidth=1.6)
                )
        ax.set_title(title, fontsize=8.5, weight="bold", pad=30)
        ax.set_xticks(range(len(COLUMNS)), [DATA[data] for _, data in COLUMNS], rotation=90)
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        _settings(ax)
    axes[0].set_yticks(range(len(answers)), answers.index)
    for label in axes[0].get_yticklabels():
        if label.get_text() in OURS:
            label.set_weight("bold")
    bar = fig.colorbar(image, ax=axes, location="bottom", shrink=0.4, aspect=30, pad=0.02, extend="max")
    bar.set_ticks([1, 1.5, 2, 3, 5, 10], labels=["1 (best)", "1.5", "2", "3", "5", "10"])
    bar.minorticks_off()
    bar.set_label("ratio to the best (geometric mean over metrics)")
    return fig


def _settings(ax) -> None:
    """Name groups of columns above them, and draw lines between them."""
    names = [setting for setting, _ in COLUMNS]
    titles = {"all": "random", "observed": "random", "low": "low", "high": "high"}
    starts = [names.index(setting) for setting in titles]
    ends = [*starts[1:], len(names)]
    for title, start, end in zip(titles.values(), starts, ends, strict=True):
        ax.text((start + end - 1) / 2, -0.7, title, ha="center", va="bottom", fontsize=7)
        if start:
            ax.axvline(start - 0.5, color="white", linewidth=3)
    for title, start, end in (("all entries", 0, starts[1]), ("observed entries", starts[1], len(names))):
        ax.text((start + end - 1) / 2, -1.55, title, ha="center", va="bottom", fontsize=7.5)


def save(path: Path) -> None:
    """Draw the figure into a file."""
    figure().savefig(path, dpi=200)
