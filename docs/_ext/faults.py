"""Tables of what was tried under faults: kills, random inputs, and versions."""

from __future__ import annotations

import pandas as pd
from results import RESULTS


def kills() -> str:
    """A row for each kind of work: kills by signal, and problems."""
    table = pd.read_csv(RESULTS / "kills.csv")
    counts = table.groupby(["work", "signal"], sort=False).size().unstack()
    counts["problems"] = table.groupby("work")["problems"].sum()
    return _markdown(counts.reset_index())


def fuzz() -> str:
    """A row for each property."""
    table = pd.read_csv(RESULTS / "fuzz.csv")[["property", "examples", "worked", "refused", "failed"]]
    return _markdown(table.assign(property=table["property"].str.replace("_", " ")))


def versions() -> str:
    """A row for each set of versions that the tests of the core ran with."""
    return _markdown(pd.read_csv(RESULTS / "versions.csv", dtype=str))


def _markdown(table: pd.DataFrame) -> str:
    rows = [
        [name.replace("_", "-") for name in table.columns],
        ["---"] * table.shape[1],
        *table.astype(str).to_numpy().tolist(),
    ]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"
