"""Simulated counts."""

from __future__ import annotations

import pandas as pd
from results import number, read, select

from statements.registry import claim, value


def _ratio() -> pd.DataFrame:
    table = read("simulated_marginal")
    return table.assign(ratio=table["variance"] / table["true_variance"])


def _closest(setting: str, seed: int | None = None) -> pd.Series:
    """In how many dimensions each of the three models has the closest variance."""
    table = _ratio()
    table = table[(table["setting"] == setting) & table["model"].isin(["gaussian", "masked", "countsdiff"])]
    if seed is not None:
        table = table[table["seed"] == seed]
    off = (table["variance"] - table["true_variance"]).abs()
    return table.loc[off.groupby([table["seed"], table["dimension"]]).idxmin(), "model"].value_counts()


@claim
def same_size_within_3_percent() -> bool:
    """Networks of the three models, in each run."""
    table = read("simulated_joint")
    sizes = table[table["model"].isin(["gaussian", "masked", "countsdiff"])].groupby(["setting", "seed"])[
        "n_parameters"
    ]
    return bool((sizes.max() / sizes.min() < 1.03).all())


@claim
def lowest_sliced_distance_in_every_run() -> bool:
    """CountsDiff, of the three models, for all settings and seeds."""
    table = read("simulated_joint").pivot(index=["setting", "seed"], columns="model", values="joint_swd")
    return len(table) == 9 and bool((table[["gaussian", "masked", "countsdiff"]].idxmin(axis=1) == "countsdiff").all())


@value
def closest_by_seed(setting: str, model: str) -> str:
    """In how many of ten dimensions the variance is the closest, for each seed."""
    first, second, third = (_closest(setting, seed).get(model, 0) for seed in (0, 1, 2))
    return f"{first}, {second} and {third}"


@value
def dimensions_too_large(setting: str, model: str) -> str:
    """In how many of 30 dimensions the variance is too large."""
    table = _ratio()
    return str(int((table[(table["setting"] == setting) & (table["model"] == model)]["ratio"] > 1).sum()))


@claim
def too_small_everywhere(setting: str, model: str) -> bool:
    """The largest ratio of variances is below 1."""
    return bool(number("simulated_summary", "largest", setting=setting, model=model) < 1)


@claim
def runs_away() -> bool:
    """With the wider means some samples of plain DDPM are far above all true counts."""
    return bool(number("simulated_summary", "joint_swd", setting="wide", model="gaussian, plain") > 1000)


@claim
def softplus_fails() -> bool:
    """The bare softplus head is more than a hundred times further from the truth."""
    swd = select("simulated_summary", setting="wide").set_index("model")["joint_swd"]
    return bool(swd["countsdiff, bare softplus"] > 100 * swd["countsdiff"])


@claim
def masked_has_lowest_joint_mmd() -> bool:
    """With fast learning, of the three models."""
    mmd = select("simulated_summary", setting="wide, fast learning").set_index("model")["joint_mmd"]
    return mmd[["gaussian", "masked", "countsdiff"]].idxmin() == "masked"


@value
def paper_variance_ratio(model: str) -> str:
    """Median of the variances over the true ones in the table of the paper."""
    table = read("simulated_variance_paper")
    return f"{(table[model] / table['truth']).median():.2f}"


@value
def largest_possible_variance() -> str:
    """Variance of a negative binomial with the largest mean and dispersion of the text of the paper."""
    from sccountsdiff.benchmark.simulated import NegativeBinomialToy

    return f"{NegativeBinomialToy([0.5], [0.2]).covariance[0, 0]:.1f}"


@claim
def nearest_leaves_only_zeros() -> bool:
    """At low counts, with any number of steps."""
    rows = select("simulated_rounding", regime="low counts", rounding="nearest")
    return bool((rows["zeros"] == 1).all())
