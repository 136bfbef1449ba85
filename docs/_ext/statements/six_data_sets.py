"""Six data sets, and blocks of genes that are missing as a whole."""

from __future__ import annotations

import pandas as pd
import tiers
from results import read, select

from statements.registry import claim, value


def _of_blocks(metric: str, block: str) -> pd.Series:
    """Values of CountsDiff by seed where a modality is missing as a whole."""
    return select("blocks", block=block, method="countsdiff", metric=metric)["value"]


def _six_data_sets() -> pd.DataFrame:
    return tiers.comparisons(tiers.tables())


@value
def share_lost() -> str:
    """Share of the comparisons on six data sets that CountsDiff lost."""
    return f"{(_six_data_sets()['outcome'] == 'loss').mean():.1%}".replace("%", " %")


@value
def lost_without_log_mean() -> str:
    """Comparisons that CountsDiff would have lost in addition if its answer for log counts did not count."""
    *others, log_mean = tiers.OURS
    table = tiers.tables()
    without = tiers.comparisons(table[~table["method"].str.startswith(log_mean)], others)
    return f"{(without['outcome'] == 'loss').sum() - (_six_data_sets()['outcome'] == 'loss').sum()} more"


@claim
def tuning_hardly_moves_countsdiff() -> bool:
    """Poisson loss of the mean on validation cells, in the default setting and in the best one, on each data set."""
    table = select("settings_six_data_sets", method="countsdiff_mean")
    default = table[table["setting"] == "countsdiff_mean"].set_index("dataset")["value"]
    best = table.groupby("dataset")["value"].min()
    return len(best) == 6 and bool((default - best < 5e-3 * best.abs()).all())


@claim
def totals_are_close_to_one() -> bool:
    """All ratios of sums by which a comparison was lost are within 5 % of 1."""
    table = _six_data_sets().query("metric == 'ratio_of_sums' and outcome == 'loss'")
    return bool((table["value"] - 1).abs().max() < 0.05)


@value
def remdm_is_closer() -> str:
    """In how many of the tasks that both ran in a draw of ReMDM has the smaller energy distance."""
    outcomes = _six_data_sets().query("rival == 'remdm' and metric == 'energy_distance'")["outcome"]
    return f"{(outcomes == 'loss').sum()} of {len(outcomes)} tasks"


def _against_remdm(metric: str, protocol: str = "paper") -> pd.DataFrame:
    """Means over seeds of both with half of the entries hidden, by data set."""
    table = _six_data_sets().query(
        "rival == 'remdm' and protocol == @protocol and missingness == 'mcar' and metric == @metric"
    )
    return table.set_index("dataset")[["value", "rival_value"]]


@value
def distance_over_remdm_s(dataset: str, protocol: str = "paper") -> str:
    """Energy distance of a draw over that of ReMDM's, in the mean over seeds."""
    ours, theirs = _against_remdm("energy_distance", protocol).loc[dataset]
    return f"{ours / theirs:.2f}"


@claim
def remdm_has_larger_crps_by_the_paper() -> bool:
    """In the mean over seeds, on each of five data sets."""
    table = _against_remdm("crps")
    return len(table) == 5 and bool((table["rival_value"] > table["value"]).all())


@claim
def paper_laws_are_calibrated() -> bool:
    """Under the paper's protocol: distance of the PIT of draws from uniform, on each of five data sets."""
    table = _against_remdm("pit_ks")
    return len(table) == 5 and bool((table["value"] < 0.015).all())


@claim
def remdm_has_larger_errors() -> bool:
    """Of single entries, and in CRPS, with all entries."""
    table = _six_data_sets().query("rival == 'remdm' and protocol == 'all'")
    of_entries = table["metric"].isin(["rmse", "mae", "poisson_loss", "spearman", "crps"])
    return bool((table.loc[of_entries, "outcome"] == "win").all())


@claim
def draws_lose_by_little() -> bool:
    """Distances from calibration by which a comparison was lost to ReMDM."""
    table = _six_data_sets().query("rival == 'remdm' and outcome == 'loss'")
    of_draws = table["metric"].isin(["pit_ks", "pit_ks_thirds", "coverage_gap"])
    return bool(table.loc[of_draws, "value"].abs().max() < 0.025)


@value
def error_of_one_seed(block: str) -> str:
    """Standard error of a ratio of sums of one seed, by resampling its cells: the mean over seeds."""
    return f"{_of_blocks('ratio_of_sums_se', block).mean():.0%}".replace("%", " %")


@claim
def blocks_add_up() -> bool:
    """The mean over seeds lies between 0.95 and 1.05, of each block."""
    return bool(_means_of_blocks("ratio_of_sums").between(0.95, 1.05).all())


@claim
def intervals_of_blocks_hold_what_they_say() -> bool:
    """Between 87 and 93 % of the counts are in 90 % intervals, in the mean over seeds."""
    return bool(_means_of_blocks("coverage_90").between(0.87, 0.93).all())


def _errors_of_blocks() -> pd.DataFrame:
    """RMSE of each method, of blocks and seeds that CountsDiff ran with."""
    rows = (
        read("blocks").query("metric == 'rmse'").pivot_table(index=["block", "seed"], columns="method", values="value")
    )
    return rows.dropna(subset="countsdiff")


@claim
def blocks_are_predicted_best() -> bool:
    """CountsDiff has the lowest RMSE of each block in the mean over seeds."""
    return bool((_errors_of_blocks().groupby("block").mean().idxmin(axis=1) == "countsdiff").all())


@value
def blocks_predicted_best() -> str:
    """In how many runs CountsDiff has the lowest RMSE."""
    is_best = _errors_of_blocks().idxmin(axis=1) == "countsdiff"
    return f"{is_best.sum()} of {len(is_best)} runs"


def _means_of_blocks(metric: str) -> pd.Series:
    """Of CountsDiff, over seeds, for each block."""
    return select("blocks", method="countsdiff", metric=metric).groupby("block")["value"].mean()
