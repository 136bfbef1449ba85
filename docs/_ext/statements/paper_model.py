"""The paper's model, trained to convergence on a small problem."""

from __future__ import annotations

import pandas as pd
from results import read, select

from statements.registry import NUMBERS, claim, value

PAPER_S = "CountsDiff, the paper's"


def _paper_model(metric: str, n_samples: int = 1) -> pd.Series:
    """Mean over seeds of each model that was trained to convergence on a small problem."""
    rows = select("paper_model", genes="common", metric=metric, n_samples=n_samples)
    return rows.groupby("model")["value"].mean()


def _still_falling() -> pd.Series:
    """By how much of its whole fall the best validation loss of each training falls in the last tenth of the epochs."""
    shares = {}
    for training, part in read("paper_model_losses").groupby(["model", "genes", "seed"]):
        best = part["validation_loss"].cummin()
        in_the_end = best.iloc[-len(part) // 10 - 1] - best.iloc[-1]
        # Where the first epoch is the best, nothing falls.
        shares[training] = in_the_end / (best.iloc[0] - best.iloc[-1]) if in_the_end > 0 else 0.0
    return pd.Series(shares)


@claim
def paper_model_converged() -> bool:
    """By less than 2 %, with every seed, for all models but ReMDM, of which the page says how far it is."""
    return bool((_still_falling().drop("ReMDM") < 0.02).all())


@value
def remdm_still_falls() -> str:
    """The most of all seeds."""
    return f"{_still_falling()['ReMDM'].max():.0%}".replace("%", " %")


def _excess(metric: str, model: str, other: str) -> pd.Series:
    """By how much single draws of one model are above those of another on common genes, for each seed."""
    rows = select("paper_model", genes="common", metric=metric, n_samples=1)
    rows = rows.pivot_table(index="seed", columns="model", values="value")
    return rows[model] - rows[other]


def _depends_on_seed(metric: str, model: str, other: str) -> bool:
    excess = _excess(metric, model, other)
    return bool(excess.min() < 0 < excess.max())


@claim
def paper_model_is_near_remdm() -> bool:
    """Which of the two is closer to the truth as a whole depends on the seed."""
    return all(_depends_on_seed(metric, PAPER_S, "ReMDM") for metric in ("energy_distance", "sliced_wasserstein"))


@claim
def paper_model_errs_less_than_remdm() -> bool:
    """Single draws have the lower RMSE with every seed."""
    return bool((_excess("rmse", PAPER_S, "ReMDM") < 0).all())


@claim
def paper_model_imputes_markers() -> bool:
    """The mean of five draws has a rank correlation above 0.7 with the truth in each cell, and so has ReMDM's."""
    rows = select("paper_model", genes="markers", metric="spearman", n_samples=5).groupby("model")["value"].min()
    return bool((rows[["CountsDiff, the paper's", "ReMDM"]] > 0.7).all())


@claim
def default_draws_markers_best() -> bool:
    """By all metrics of single draws but bias."""
    rows = select("paper_model", genes="markers", n_samples=1)
    rows = rows.pivot_table(index="model", columns="metric", values="value")  # the mean over seeds
    lowest = rows[["rmse", "energy_distance", "sliced_wasserstein"]].idxmin()
    return {*lowest, rows["spearman"].idxmax()} == {"CountsDiff, our default"}


@claim
def blackout_adds_counts() -> bool:
    """With every seed its draws are too high, and exceed those of the paper's model by a quarter of the mean count of a site."""
    mean = 2 * read("paper_model_last_steps").query("genes == 'common'")["expected"].max()
    bias = select("paper_model", genes="common", metric="bias", n_samples=1)
    bias = bias.pivot_table(index="seed", columns="model", values="value").dropna()
    return bool((bias["Blackout"] > 0).all() and (bias["Blackout"] - bias[PAPER_S] > 0.25 * mean).all())


@claim
def likelihood_weight_mends_blackout() -> bool:
    """The energy distance of single draws is less than half of that with the weight -p', and they are no longer too high."""
    energy, bias = _paper_model("energy_distance"), _paper_model("bias")
    mended = "Blackout, likelihood weight"
    return bool(energy[mended] < energy["Blackout"] / 2 and bias[mended] < 0 < bias["Blackout"])


@claim
def blackout_catches_up() -> bool:
    """With the other weight, whether it or the paper's model has the smaller energy distance depends on the seed."""
    return _depends_on_seed("energy_distance", "Blackout, likelihood weight", PAPER_S)


@value
def steps_with_little_lost(schedule: str) -> str:
    """How many of 19 steps start where less than 1 % of the counts is lost."""
    from sccountsdiff.diffusion import get_schedule

    lost = [1 - float(get_schedule(schedule).survival(k / 19)) for k in range(1, 20)]
    return NUMBERS[sum(share < 0.01 for share in lost)]


@value
def paper_model_residue(column: str, model: str = "CountsDiff, the paper's") -> str:
    """Mean count that is still to come where a thousandth is lost at most, as a model says or in truth."""
    rows = select("paper_model_last_steps", genes="common", model=model)
    return f"{rows.loc[rows['lost'] < 1e-3, column].max():.4f}"
