"""Pages' parts that are made from the package and from saved results when the documentation is built.

They are written to ``docs/_generated``, and pages include them: a card for each imputation method, the tables of the saved
comparisons, the overview of all methods (a figure and a table), the settings of the paper's rows, the recipes of images, and what was tried under faults. Single numbers and statements are in ``values.py``.
"""

from __future__ import annotations

from pathlib import Path

import faults
import image_recipes
import overview
import pandas as pd
import papers
import replaced
import tiers
from results import COMPARISONS, HIGHER_IS_BETTER, RESULTS, read

from sccountsdiff.benchmark.baselines import get_baseline, list_methods
from sccountsdiff.benchmark.tables import summarise, to_markdown, to_table

DOCS = Path(__file__).parents[1]
SETTINGS = {
    ("all", "mcar"): "MCAR 50 %, all entries",
    ("paper", "mcar"): "MCAR 50 %, observed entries",
    ("paper", "mnar_low"): "MNAR 25 % low, observed entries",
    ("paper", "mnar_high"): "MNAR 25 % high, observed entries",
}
POINTWISE_AND_DISTRIBUTIONAL = [
    "rmse", "mae", "bias", "r2", "spearman", "pearson", "energy_distance", "mmd", "sliced_wasserstein", "scfid",
]  # fmt: skip
HELDOUT = {
    "rmse": "RMSE ↓",
    "poisson_loss": "Poisson loss ↓",
    "spearman": "Spearman ↑",
    "bias": "bias →0",
    "energy_distance": "energy distance ↓",
    "sliced_wasserstein": "sliced Wasserstein ↓",
    "pit_ks": "PIT ↓, all genes",
    "pit_ks_low": "low",
    "pit_ks_middle": "middle",
    "pit_ks_high": "high",
    "seconds": "seconds",
}
HELDOUT_TABLES = (
    "heldout_pbmc3k", "heldout_kang", "heldout_bladder", "heldout_bladder_half", "paper_setting", "paper_setting_default",
)  # fmt: skip


def cards(group: str) -> str:
    """A grid with a card for each method of a group."""
    methods = list_methods()
    parts = ["::::{grid} 1 1 2 2", ":gutter: 3", ""]
    for name, row in methods[methods["group"] == group].iterrows():
        kind = get_baseline(name)
        badges = [
            text
            for text, holds in {
                "{bdg-primary}`draws`": row["draws"],
                "{bdg-secondary}`uses covariates`": row["uses_covariates"],
                "{bdg-secondary}`learns from incomplete cells`": row["uses_mask"],
                "{bdg-secondary}`denoises`": row["denoises"],
                "{bdg-warning}`needs weights`": row["needs_weights"],
            }.items()
            if holds
        ] + [f"{{bdg-info}}`extra: {extra}`" for extra in row["requires"]]
        parts += [
            f":::{{grid-item-card}} `{name}`",
            f":link: sccountsdiff.benchmark.baselines.{kind.__name__}",
            ":link-type: any",
            "",
            row["summary"].replace("``", "`"),
            *(["", " ".join(badges)] if badges else []),
            ":::",
            "",
        ]
    return "\n".join([*parts, "::::", ""])


def comparison(name: str) -> str:
    """Tabs with the tables of one data set, one for each protocol and pattern.

    All rows of a table are of the first seed, with which all methods ran; means over seeds are in a table of their own.
    """
    results = pd.read_csv(RESULTS / f"comparison_{name}.csv")
    parts = [":::::{tab-set}", ""]
    for (protocol, pattern), title in SETTINGS.items():
        is_pattern = results["missingness"].str.partition("(")[0] == pattern
        part = results[(results["protocol"] == protocol) & is_pattern]
        if part.empty:
            continue
        first = part[part["seed"] == part["seed"].min()]
        others = [m for m in dict.fromkeys(part["metric"].dropna()) if m not in POINTWISE_AND_DISTRIBUTIONAL]
        parts += [f"::::{{tab-item}} {title}", ""]
        parts += [_table(first, POINTWISE_AND_DISTRIBUTIONAL), _table(first, others)]
        n_seeds = part.groupby("method")["seed"].transform("nunique")
        if n_seeds.max() > 1:
            parts += [f":::{{dropdown}} Means over {n_seeds.max()} seeds (standard errors)", ""]
            parts += [_table(part[n_seeds == n_seeds.max()], POINTWISE_AND_DISTRIBUTIONAL), ":::", ""]
        parts += ["::::", ""]
    return "\n".join([*parts, ":::::", ""])


def _table(results: pd.DataFrame, metrics: list[str]) -> str:
    summary = summarise(results)
    return to_markdown(to_table(summary[summary["metric"].isin(metrics)], metrics))


def heldout(name: str) -> str:
    """Means over splits of a benchmark on held-out cells, the best of each column in bold."""
    means = read(name).groupby("method", sort=False)[list(HELDOUT)].mean()
    lines = ["| method | " + " | ".join(HELDOUT.values()) + " |", "|---" * (len(HELDOUT) + 1) + "|"]
    is_ranked = len(means) > 2  # one or two rows of one method are no comparison
    for method, row in means.iterrows():
        cells = []
        for metric, number in row.items():
            best = means[metric].max() if metric in HIGHER_IS_BETTER else means[metric].min()
            is_best = (
                is_ranked and number == best and metric not in ("bias", "seconds") and not metric.startswith("pit")
            )
            decimals = (0 if number >= 10 else 1) if metric == "seconds" else 4 if abs(number) < 1 else 3
            text = "–" if pd.isna(number) else f"{number:.{decimals}f}"
            cells.append(f"**{text}**" if is_best else text)
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def denoising() -> str:
    """Means over seeds of the denoising task."""
    return _table(pd.read_csv(RESULTS / "denoising_pbmc3k.csv"), ["molecule_poisson", "molecule_mse"])


def costs(name: str) -> str:
    """Time and memory of each method, and what failed."""
    results = pd.read_csv(RESULTS / f"comparison_{name}.csv")
    done = results[results["metric"].notna() & (results["group"] != "reference")]
    columns = {"fit_seconds": "fit [s]", "impute_seconds": "impute [s]", "peak_memory_mb": "peak memory [MB]"}
    means = done.groupby(["method", "n_samples"], sort=False)[list(columns)].mean().rename(columns=columns).round(1)
    lines = ["| method | draws | " + " | ".join(columns.values()) + " |", "|---" * 5 + "|"]
    lines += [f"| {m} | {n} | " + " | ".join(f"{v:g}" for v in row) + " |" for (m, n), *row in means.itertuples()]
    failures = results[results["error"].notna() & results["metric"].isna()].drop_duplicates(["method", "error"])
    lines += ["", *(f"- `{row.method}` failed. {row.error}" for row in failures.itertuples()), ""]
    return "\n".join(lines)


def write(app=None) -> None:
    """Write all parts."""
    folder = DOCS / "_generated"
    folder.mkdir(exist_ok=True)
    texts = {f"methods_{group}.md": cards(group) for group in ("naive", "specialised", "generative")}
    texts |= {"denoising.md": denoising(), "comparison_overview.md": overview.table()}
    texts |= {"image_recipes.md": image_recipes.recipes(), "image_differences.md": image_recipes.differences()}
    texts |= {f"{name}.md": heldout(name) for name in HELDOUT_TABLES}
    for name in COMPARISONS:
        texts |= {f"comparison_{name}.md": comparison(name), f"costs_{name}.md": costs(name)}
    texts |= dict.fromkeys(
        (f"tier1_{part}.md" for part in ("outcomes", "losses", "values", "runs")), "No results yet.\n"
    )
    if (results := tiers.tables()) is not None:
        compared = tiers.comparisons(results)
        texts |= {"tier1_outcomes.md": tiers.counts(compared), "tier1_losses.md": tiers.losses(compared)}
        texts |= {"tier1_values.md": tiers.values(results), "tier1_runs.md": tiers.runs(results)}
    for name in ("blocks", "latent", "ablation", "averaging", "steps", "analyses", "largest_draws"):
        texts[f"{name}.md"] = getattr(tiers, name)() or "No results yet.\n"
    texts |= {"paper_settings.md": papers.settings(), "paper_model.md": papers.scores() or "No results yet.\n"}
    texts |= {f"faults_{name}.md": getattr(faults, name)() for name in ("kills", "fuzz", "versions")}
    for name in ("stimulation", "donors"):
        texts[f"replaced_{name}.md"] = getattr(replaced, name)() or "No results yet.\n"
    for file, text in texts.items():
        path = folder / file
        if not path.exists() or path.read_text() != text:  # what has not changed is not built again
            path.write_text(text)
    overview.save(folder / "comparison_overview.png")
    papers.save_figure(folder / "paper_model.png")


def setup(app):
    """Write the parts before pages are read."""
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True}
