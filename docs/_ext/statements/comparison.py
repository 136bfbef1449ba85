"""The comparison of all methods."""

from __future__ import annotations

import overview
from results import COMPARISONS, by_method, number, ranking, read

from statements.registry import claim, value

MEAN, DRAW, DRAWS = "countsdiff_mean", "countsdiff", "countsdiff (5)"  # rows of the comparison of all methods


@value
def n_methods() -> str:
    """Number of methods in the overview; the answers of CountsDiff count as one method."""
    return str(overview.n_methods())


@value
def first_places(setting: str, family: str) -> str:
    """In how many combinations of data set and metric CountsDiff is first: "7 of 12"."""
    metrics = {"pointwise": overview.POINTWISE, "distributional": overview.DISTRIBUTIONAL | overview.DRAWS}[family]
    first, total = overview.count_firsts(metrics, setting)
    return f"{first} of {total}"


@claim
def no_answer_is_best_at_both() -> bool:
    """But where low counts are hidden, no answer has the lowest ratio for single entries and for distributions."""
    pointwise, distributional = overview.ratios(overview.POINTWISE), overview.ratios(overview.DISTRIBUTIONAL)
    is_same = pointwise.idxmin() == distributional.idxmin()
    return not is_same[["all", "observed", "high"]].any()


@claim
def best_mean_rank(method: str) -> bool:
    """This answer has the best mean rank of the overview."""
    return overview.order().index[0] == method


@claim
def knn_mean_is_within_5_percent() -> bool:
    """Nearest neighbours are close to the lowest RMSE on all data sets."""
    rmse = overview.losses("rmse")["all"]
    return bool((rmse.loc["knn_mean"] < 1.05 * rmse.min()).all())


@value
def remdm_behind() -> str:
    """Range of percents by which the RMSE of five draws of ReMDM is above that of CountsDiff, all entries."""
    rmse = overview.losses("rmse")["all"]
    ratios = rmse.loc["remdm (5)"] / rmse.loc[DRAWS] - 1
    return f"{100 * ratios.min():.0f} to {100 * ratios.max():.0f} %"


@claim
def forest_diffusion_is_among_the_last() -> bool:
    """With all entries its answers are in the last quarter by RMSE on each data set."""
    rmse = overview.losses("rmse")["all"]
    rows = rmse.rank().loc[["forest_diffusion", "forest_diffusion (5)"]]
    return bool((rows > 0.75 * len(rmse)).all(axis=None))


@claim
def blackout_is_among_the_last() -> bool:
    """With all entries its answers are in the last quarter by RMSE on PBMC 3k and on Kang."""
    rmse = overview.losses("rmse")["all"][["pbmc3k", "kang"]]
    return bool((rmse.rank().loc[["blackout", "blackout (5)"]] > 0.75 * len(rmse)).all(axis=None))


@claim
def as_good_in_energy_distance() -> bool:
    """On OneK1K, draws of ReMDM and of CountsDiff are within 5 percent."""
    energy = by_method("comparison_onek1k", "energy_distance", 0, setting="all")
    return bool(0.95 < energy["remdm"] / energy[DRAW] < 1.05)


@claim
def order_is_that_of_all_entries() -> bool:
    """By RMSE over three seeds, the first three are the same with observed entries as with all entries."""
    return all(
        list(ranking(by_method(f"comparison_{data}", "rmse", setting="all"), "rmse").index[:3])
        == list(ranking(by_method(f"comparison_{data}", "rmse", setting="observed"), "rmse").index[:3])
        for data in ("pbmc3k", "kang")
    )


@claim
def linear_draws_are_worse() -> bool:
    """On all data sets with all entries, by energy distance, CRPS and calibration, first seed."""
    for data in COMPARISONS:
        energy, crps, pit = (
            by_method(f"comparison_{data}", metric, 0, setting="all")
            for metric in ("energy_distance", "crps", "pit_ks")
        )
        names = ["gaussian_regression", "gaussian_regression (5)"]
        if not (energy[names].min() > energy[DRAW] and crps[names[1]] > crps[DRAWS] and pit[names[1]] > pit[DRAWS]):
            return False
    return True


@claim
def ahead_when_low_counts_are_hidden() -> bool:
    """DCA in the first seed, and the others over three seeds, have a lower RMSE than the one-pass mean on both."""
    names = ["alra", "magic", "scvi", "scvi_refined", "knn_mean", "knn_smoothing"]
    for data in ("pbmc3k", "kang"):
        rmse = by_method(f"comparison_{data}", "rmse", setting="low")
        first = by_method(f"comparison_{data}", "rmse", 0, setting="low")
        if not ((rmse[names] < rmse[MEAN]).all() and first["dca"] < first[MEAN]):
            return False
    return True


@value
def n_answers_with_three_seeds() -> str:
    """Number of rows that ran with all seeds."""
    return str(len(by_method("comparison_kang", "rmse", setting="low")))


@claim
def one_seed_for_slow_methods() -> bool:
    """Methods of the second block ran with one seed, the others with three; OneK1K with all entries only."""
    slow = "dca gain hivae_poisson hivae_gaussian sklearn_iterative scidpms scgpt xtrimogene forest_diffusion remdm blackout countsdiff_paper"
    for data in COMPARISONS:
        table = read(f"comparison_{data}")
        n_seeds = table.groupby(table["method"].map(lambda name: name.removesuffix(" (5)")))["seed"].nunique()
        if any(n != (1 if name in slow.split() else 3) for name, n in n_seeds.items()):
            return False
    return set(read("comparison_onek1k")["setting"]) == {"all"}


@claim
def masked_autoencoders_are_behind_neighbours() -> bool:
    """With all entries scGPT and xTrimoGene have a higher RMSE than ``knn_mean`` on all data sets."""
    rmse = overview.losses("rmse")["all"]
    return bool((rmse.loc[["scgpt", "xtrimogene"]] > rmse.loc["knn_mean"]).all(axis=None))


@claim
def means_beat_draws() -> bool:
    """One draw has a higher RMSE than five draws, here with all entries and in the tables of the paper."""
    rmse = overview.losses("rmse")["all"]
    names = [name for name in rmse.index if f"{name} (5)" in rmse.index and name in ("countsdiff", "remdm", "countsdiff_paper", "scidpms")]  # fmt: skip
    ours = all((rmse.loc[name] > rmse.loc[f"{name} (5)"]).all() for name in names)
    theirs = all(
        number(f"paper:{table}", "rmse", method=name, n_samples=1) > number(f"paper:{table}", "rmse", method=name, n_samples=5)
        for table in ("fetus_mcar", "heart_mcar")
        for name in ("CountsDiff", "ReMDM", "scIDPMs")
    )  # fmt: skip
    return ours and theirs


def _paper(table: str, metric: str) -> list[str]:
    """Rows of a table of the paper, the best first."""
    rows = read(f"paper:{table}").sort_values(metric, kind="stable")
    return [f"{name} ({n})" for name, n in zip(rows["method"], rows["n_samples"], strict=True)]


@claim
def paper_fetus_distributions() -> bool:
    """On the fetal atlas a draw of CountsDiff is first by MMD and scFID, one of ReMDM second."""
    return all(
        _paper("fetus_mcar", metric)[:2] == ["CountsDiff (1)", "ReMDM (1)"] for metric in ("log_mmd", "log_scfid")
    )


@claim
def paper_heart_distributions() -> bool:
    """On the heart atlas a draw of ReMDM is first by energy distance, MMD and scFID."""
    return all(_paper("heart_mcar", metric)[0] == "ReMDM (1)" for metric in ("energy_distance", "log_mmd", "log_scfid"))


@claim
def paper_fetus_rmse() -> bool:
    """On the fetal atlas the order by RMSE is scGPT, xTrimoGene, conditional mean, five draws of CountsDiff."""
    return _paper("fetus_mcar", "rmse")[:4] == ["scGPT (scratch) (1)", "xTrimoGene (1)", "Conditional Mean (1)", "CountsDiff (5)"]  # fmt: skip


@claim
def remdm_is_best_by_energy_crps_and_calibration() -> bool:
    """With observed entries hidden at random, in the first seed on both data sets."""
    return all(
        ranking(by_method(f"comparison_{data}", metric, 0, setting="observed"), metric).index[0] == name
        for data in ("pbmc3k", "kang")
        for metric, name in (("energy_distance", "remdm"), ("crps", "remdm (5)"), ("pit_ks", "remdm (5)"))
    )
