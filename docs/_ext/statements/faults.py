"""What was tried under faults."""

from __future__ import annotations

from results import read

from statements.registry import claim


@claim
def no_kill_did_harm(kills: str) -> bool:
    """At least so many kills, of all kinds of work with all signals, and none of them a problem."""
    table = read("kills")
    return len(table) >= int(kills) and table.groupby(["work", "signal"]).ngroups == 18 and not table["problems"].any()


@claim
def no_random_input_did_harm(examples: str) -> bool:
    """At least so many examples, and no property that failed."""
    table = read("fuzz")
    return table["examples"].sum() >= int(examples) and not table["failed"].any()


@claim
def killed_file_is_the_same() -> bool:
    """Work from a file to a file that was killed midway and done again ended as work that was not."""
    row = read("disk_to_disk").iloc[0]
    return bool(row["the same file"] == 1 and row["blocks kept after a kill"] > 0)
