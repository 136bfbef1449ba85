"""Tables of replaced covariates, from ``covariates.csv``."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from results import RESULTS

FROM_OBS, CARRIED = "replaced in obs", "transform_covariates"
WAYS = {
    "counts": "counts as measured",
    "own donor": "expression, own donor",
    FROM_OBS: "expression, donor replaced in `obs`",
    CARRIED: "expression, donor replaced by `transform_batch`",
}


def stimulation(folder: Path = RESULTS) -> str | None:
    """Control cells predicted as stimulated, by cell type, in Markdown; ``None`` without results."""
    table = _read(folder, "kang")
    if table is None:
        return None
    lines = [
        "| cell type (control cells) | real change | replaced in `obs` | `transform_covariates` | correlation over genes | "
        "stable genes: real | predicted |",
        "|---" * 7 + "|",
    ]
    rows = table.set_index(["group", "way"])
    for group in rows.loc[(slice(None), CARRIED), "real_change"].sort_values(ascending=False).index.get_level_values(0):
        new, before = rows.loc[(group, CARRIED)], rows.loc[(group, FROM_OBS)]
        name = f"{group} ({int(new['n_cells'])})" + (", none stimulated in training" if new["held_out"] else "")
        cells = [f"{new['real_change']:.2f}"]
        cells += [f"{row['change']:.2f} ({row['share']:.0%})".replace("%", " %") for row in (before, new)]
        cells += [f"{new[column]:.2f}" for column in ("correlation", "stable_moved_really", "stable_moved")]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def donors(folder: Path = RESULTS) -> str | None:
    """Cells of several donors brought to one of them, in Markdown; ``None`` without results."""
    table = _read(folder, "onek1k")
    if table is None:
        return None
    lines = ["| | own donor among neighbours, over chance | own type among neighbours |", "|---|---|---|"]
    for row in table.itertuples():
        lines.append(f"| {WAYS[row.way]} | {row.same_donor:.2f} | {row.same_type:.3f} |")
    return "\n".join([*lines, ""])


def _read(folder: Path, data: str) -> pd.DataFrame | None:
    path = folder / "covariates.csv"
    if not path.exists():
        return None
    table = pd.read_csv(path)
    table = table[table["data"] == data]
    return None if table.empty else table.astype({"held_out": bool}) if data == "kang" else table
