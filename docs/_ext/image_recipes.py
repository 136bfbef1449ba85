"""The paper's tables and figures of images as the package repeats them, in Markdown; made from its recipes."""

from __future__ import annotations

import pandas as pd
from results import read

from sccountsdiff.benchmark.images import RECIPES, difference_table, recipe_table
from sccountsdiff.benchmark.images.recipes import OTHER_DIFFERENCES


def recipes() -> str:
    """A tab for each data set, in it a row for each row and figure of the paper."""
    table = recipe_table()
    columns = {
        "where": "in the paper", "settings": "settings", "guidance": "guidance", "attrition": "attrition",
        "images": "images", "blocks": "blocks", "parameters": "parameters", "batch": "batch", "steps": "steps",
        "lr": "learning rate", "fid": "paper's FID",
        "score": "paper's IS",
    }  # fmt: skip
    score = (
        table["paper_inception_score"].map("{:g}".format) + " ± " + table["paper_inception_score_sd"].map("{:g}".format)
    )
    table["score"] = score.where(table["paper_inception_score"].notna(), "–")
    table["fid"] = table["paper_frechet"].map("{:g}".format).where(table["paper_frechet"].notna(), "–")
    table["parameters"] = table["settings"].map(read("images_plans").set_index("settings")["parameters"])
    dataset = table["recipe"].map(lambda name: RECIPES[name].dataset)
    parts = ["::::{tab-set}", ""]
    for name, rows in table.groupby(dataset, sort=False):
        parts += [f":::{{tab-item}} {name}", "", "| recipe | " + " | ".join(columns.values()) + " |"]
        parts += ["|---" * (len(columns) + 1) + "|"]
        parts += ["| `" + "` | ".join([row["recipe"], _cells(row[list(columns)])]) + " |" for _, row in rows.iterrows()]
        parts += ["", ":::", ""]
    return "\n".join([*parts, "::::", ""])


def _cells(row: pd.Series) -> str:
    whole = {"images", "steps", "blocks", "batch", "parameters"}
    texts = []
    for name, value in row.items():
        if pd.isna(value):
            texts.append("–")
        elif name in whole:
            texts.append(f"{int(value):,}")
        else:
            texts.append(f"`{value}`" if name == "settings" else f"{value:g}" if isinstance(value, float) else value)
    return " | ".join(texts)


def differences() -> str:
    """Every setting that differs from the paper's code, and all else that does, with the reason."""
    lines = ["| settings | setting | here | paper's code | why |", "|---|---|---|---|---|"]
    for row in difference_table().itertuples(index=False):
        numbers = [f"{value:,}" if isinstance(value, int) else str(value) for value in (row[2], row[3])]
        lines.append(f"| `{row[0]}` | `{row[1]}` | {' | '.join(numbers)} | {row[4]} |")
    lines += [f"| all | {what} | | | {why} |" for what, why in OTHER_DIFFERENCES.items()]
    return "\n".join([*lines, ""])
