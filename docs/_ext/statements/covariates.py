"""Covariates that are replaced."""

from __future__ import annotations

from results import select

from statements.registry import claim, value


@value
def least_share_of_a_stimulated_type() -> str:
    """Of the change of a cell type that was seen with the new condition, how much replacing it gives at least."""
    rows = select("covariates", data="kang", way="transform_covariates")
    return f"{rows.loc[~rows['held_out'].astype(bool), 'share'].min():.0%}".replace("%", " %")


@claim
def replacing_mixes_donors_less_than_obs() -> bool:
    """Whether carrying cells over mixes donors less, and keeps types apart less, than replacing the donor in ``obs``."""
    rows = select("covariates", data="onek1k").set_index("way")
    carried, in_obs = rows.loc["transform_covariates"], rows.loc["replaced in obs"]
    return bool(carried["same_donor"] > in_obs["same_donor"] and carried["same_type"] < in_obs["same_type"])
