"""Values that pages compute from saved results, and statements that are checked against them.

``@value`` functions return the text that ``{value}`name / argument / key=value``` shows. ``@claim`` functions return whether
the text of ``{claim}`text <name / argument / key=value>``` is true. Arguments are texts; " / " separates them.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import overview
import pandas as pd
import tiers
from results import COMPARISONS, ResultError, by_method, look_up, number, ranking, read, select

VALUES: dict[str, Callable[..., str]] = {}
CLAIMS: dict[str, Callable[..., bool]] = {}

MEAN, DRAW, DRAWS = "countsdiff_mean", "countsdiff", "countsdiff (5)"  # rows of the comparison of all methods
ONE_PASS, ONE_DRAW = "CountsDiff, one-pass mean", "CountsDiff, 1 draw"  # rows of the benchmark on held-out cells
OTHERS = ["cell-type mean x depth", "scVI", "scVI, refined"]
ORDINALS = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh", "twelfth"]  # fmt: skip
NUMBERS = ["none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]


def value(function):
    """Make a function known to pages as a value."""
    VALUES[function.__name__] = function
    return function


def claim(function):
    """Make a function known to pages as a statement that can be checked."""
    CLAIMS[function.__name__] = function
    return function


def call(function: Callable, arguments: list[str]):
    """Call with arguments as pages write them: texts, or ``key=value``."""
    pairs = [argument.strip().partition("=") for argument in arguments]
    positional = [key for key, equals, _ in pairs if not equals]
    return function(*positional, **{key: text for key, equals, text in pairs if equals})


def evaluate(text: str) -> str:
    """Text of a value: the result of a function of ``statements.py``, or what is looked up in a table."""
    name, *arguments = text.split(" / ")
    if name in VALUES:
        return call(VALUES[name], arguments)
    return look_up(text)


def check(text: str) -> str:
    """Text of a statement, after a check that it is true."""
    match = re.fullmatch(r"(.*)\s<(.*)>", text, flags=re.DOTALL)
    if not match:
        raise ResultError(f"{text!r} should be 'text <name of a statement>'.")
    shown, statement = match.groups()
    name, *arguments = statement.split(" / ")
    if name not in CLAIMS:
        raise ResultError(f"There is no statement {name!r} in statements.py.")
    if not call(CLAIMS[name], arguments):
        raise ResultError(f"{shown!r} is not what the saved results say ({statement}).")
    return shown


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


# What was tried under faults


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


# For any table with columns "method" and "seed"


@claim
def best(tables: str, metrics: str, seeds: str = "mean", *, method: str, **filters: str) -> bool:
    """One method is the best by each of the metrics in each of the tables.

    ``seeds`` is "mean", "each seed", or the number of a seed. Tables and metrics are separated by commas.
    """
    return all(
        ranking(values, metric).index[0] == method
        for table in _names(tables)
        for metric in _names(metrics)
        for values in _by_seed(table, metric, seeds, filters)
    )


@claim
def better(tables: str, metrics: str, seeds: str = "mean", *, method: str, than: str, **filters: str) -> bool:
    """One method is better than another by each of the metrics in each of the tables; see :func:`best`."""
    return all(
        list(ranking(values[[method, than]], metric).index) == [method, than]
        for table in _names(tables)
        for metric in _names(metrics)
        for values in _by_seed(table, metric, seeds, filters)
    )


def _by_seed(table: str, metric: str, seeds: str, filters: dict) -> list[pd.Series]:
    if seeds == "each seed":
        return [by_method(table, metric, seed, **filters) for seed in select(table)["seed"].unique()]
    return [by_method(table, metric, seeds if seeds == "mean" else int(seeds), **filters)]


@value
def place(table: str, metric: str, seeds: str = "mean", *, method: str, **filters: str) -> str:
    """Place of a method by a metric, in words."""
    (values,) = _by_seed(table, metric, seeds, filters)
    return ORDINALS[list(ranking(values, metric).index).index(method)]


@value
def above(table: str, metric: str, seeds: str = "mean", *, method: str, than: str, **filters: str) -> str:
    """By how many percent the value of a method is above that of another."""
    (values,) = _by_seed(table, metric, seeds, filters)
    return f"{values[method] / values[than] - 1:.0%}".replace("%", " %")


# Comparison of all methods


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


# Held-out cells


@claim
def draws_are_calibrated(tables: str, below: str) -> bool:
    """The Kolmogorov distance of the PIT is below a bound on average over the splits, in all thirds of genes."""
    columns = ["pit_ks", "pit_ks_low", "pit_ks_middle", "pit_ks_high"]
    for name in _names(tables):
        table = read(name)
        of_draws = table[table["method"].isin(["CountsDiff, 10 draws", "CountsDiff, 50 draws"])]
        if not (of_draws[columns].mean() < float(below)).all():
            return False
    return True


@claim
def closer_than_others_in_splits(table: str, metric: str, splits: str) -> bool:
    """A draw is closer than the other methods (not counting those of CountsDiff) in just these splits: "2, 3"."""
    runs = read(table).pivot(index="seed", columns="method", values=metric)
    is_closer = (runs[ONE_DRAW] < runs[OTHERS].min(axis=1)).to_numpy()
    return [str(i + 1) for i in np.flatnonzero(is_closer)] == _names(splits)


@value
def splits_below(table: str, metric: str, *, method: str, than: str) -> str:
    """In how many splits the value of one method is below that of another: "one of three"."""
    runs = read(table).pivot(index="seed", columns="method", values=metric)
    return f"{NUMBERS[int((runs[method] < runs[than]).sum())]} of {NUMBERS[len(runs)]}"


@claim
def draw_has_smallest_distances() -> bool:
    """On blood cells a draw has the smallest energy and sliced Wasserstein distance on average over the splits."""
    return all(
        ranking(by_method(name, metric), metric).index[0] == ONE_DRAW
        for name in ("heldout_pbmc3k", "heldout_kang")
        for metric in ("energy_distance", "sliced_wasserstein")
    )


@claim
def refining_helps_on_blood_little_on_bladder() -> bool:
    """RMSE and sliced Wasserstein distance fall by more than 5 percent on blood cells, and change by less than 2 on the bladder."""

    def gains(name: str) -> np.ndarray:
        values = [by_method(name, metric) for metric in ("rmse", "sliced_wasserstein")]
        return np.array([1 - v["scVI, refined"] / v["scVI"] for v in values])

    on_blood = all((gains(name) > 0.05).all() for name in ("heldout_pbmc3k", "heldout_kang"))
    return on_blood and bool((np.abs(gains("heldout_bladder")) < 0.02).all())


@claim
def perfect_draw_is_hardly_closer_with_few_cells() -> bool:
    """In the simulation the ratio of distances is above 0.9 with 210 cells, and about one half with 2,100."""
    mean = read("oracle_distance").groupby("cells")[["perfect draw", "perfect mean"]].mean()
    ratio = mean["perfect draw"] / mean["perfect mean"]
    return bool(0.9 < ratio[210] < 1 and 0.4 < ratio[2100] < 0.6)


# Denoising and speed


def _denoising(metric: str) -> pd.Series:
    rows = read("denoising_pbmc3k")
    return rows[rows["metric"] == metric].groupby("method")["value"].mean().sort_values()


@claim
def denoising_order(metric: str, methods: str) -> bool:
    """The first methods by a metric, in order."""
    return list(_denoising(metric).index[: len(_names(methods))]) == _names(methods)


@claim
def most_methods_are_worse_than_no_denoising() -> bool:
    """By the squared error."""
    errors = _denoising("molecule_mse")
    return bool((errors > errors["zero"]).sum() > len(errors) / 2)


@value
def transformer_takes(task: str) -> str:
    """Time of the paper's transformer over that of the default network, to two digits."""
    median = read("speed").query("task == @task").groupby("method")["ms_per_cell"].median()
    ratio = median["transformer"] / median["countsdiff"]
    return f"{float(f'{ratio:.2g}'):,.0f}"


@claim
def small_network_is_a_little_worse() -> bool:
    """Poisson loss of the mean with half of all entries hidden is larger in each data set, and the RMSE by 4 % at most."""
    table = select("ablation_small", missingness="mcar", answer="countsdiff_mean 1")
    scores = table.pivot_table(index=["metric", "data"], columns="variant", values="value")
    small, default = scores["128 hidden units, 1 layer"], scores["default"]
    worse = small.loc["poisson_loss"] > default.loc["poisson_loss"]
    return bool(worse.all() and (small.loc["rmse"] < 1.04 * default.loc["rmse"]).all())


@claim
def three_steps_keep_correlations() -> bool:
    """Three geometric steps against fifteen even ones, in the mean over seeds: where genes are missing."""
    table = read("steps").query("task not in ['proteins', 'peaks']")
    means = table.groupby(["spacing", "n_steps", "task"])[["correlation_kept", "energy_distance"]].mean()
    three, fifteen = means.loc["geometric", 3], means.loc["even", 15]
    kept = three["correlation_kept"] > 0.98 * fifteen["correlation_kept"]
    return bool(kept.all() and three["energy_distance"].mean() < 1.02 * fifteen["energy_distance"].mean())


@value
def time_of_three_steps() -> str:
    """CPU time of three geometric steps over that of fifteen even ones."""
    seconds = read("steps").groupby(["spacing", "n_steps"])["cpu_seconds"].sum()
    return f"{seconds['geometric', 3] / seconds['even', 15]:.0%}"


@value
def days_of_training() -> str:
    """100,000 training steps of 512 cells with the transformer of the paper on one core, to two digits."""
    of_cell = number("speed", "ms_per_cell", "median", method="transformer", task="training_step") / 1000
    return f"{float(f'{of_cell * 512 * 100_000 / 86_400:.2g}'):.0f} days"


# Images


@claim
def sweeps_on_digits() -> bool:
    """Agreement rises with guidance, the inception score is higher from 1 on, the Fréchet distance smallest at 1."""
    table = read("images_digits_guidance").set_index("guidance")
    inception = table["inception_score"]
    return bool(
        table["agreement"].is_monotonic_increasing
        and inception[inception.index >= 1].min() > inception[inception.index < 1].max()
        and table["frechet"].idxmin() == 1
    )


@claim
def agreement_is_at_chance() -> bool:
    """Without guidance about one image in ten shows the digit that was asked for."""
    return bool(0.05 < number("images_digits_scores", "agreement", guidance=0) < 0.15)


@claim
def cosine_is_best_in_each_row() -> bool:
    """Smallest Fréchet distance of the three schedules, for each guidance."""
    table = read("images_digits_schedules")
    best_rows = table.loc[table.groupby("guidance")["frechet"].idxmin()]
    return len(best_rows) == 2 and bool((best_rows["schedule"] == "cosine").all())


@value
def frechet_ratio() -> str:
    """Fréchet distance at guidance 2 over that at guidance 1."""
    values = read("images_digits_scores").set_index("guidance")["frechet"]
    return f"{values[2] / values[1]:.1f}"


@claim
def digits_get_better_through_training() -> bool:
    """The held-out loss falls at every evaluation; after the first 300 steps the Fréchet distance stays below 16."""
    history = read("images_digits_history").set_index("step")
    return bool(history["heldout_loss"].is_monotonic_decreasing and (history.loc[300:, "frechet"] < 16).all())


@claim
def all_weights_but_at_most_one_changed() -> bool:
    """After two optimiser steps of each full-size model."""
    table = read("images_full_size")
    return bool((table["tensors"] - table["tensors_changed"] <= 1).all())


@claim
def network_beats_single_pixels(table: str) -> bool:
    """The held-out loss is below those of the mean of each pixel and of the linear guess."""
    if table == "images_cifar10":
        losses = read(table).iloc[0].filter(like="loss_").rename(lambda column: column.removeprefix("loss_"))
    else:
        losses = read(table).set_index("predictor")["heldout_loss"]
    return bool(losses["network"] < losses["linear_guess"] < losses["pixel_mean"])


@claim
def cifar10_resumes_and_stays_in_range() -> bool:
    """Equal weights after going on from a checkpoint, and pixels within 0 and 255."""
    row = read("images_cifar10").iloc[0]
    return bool(row["resumed_is_equal"] and row["smallest_pixel"] >= 0 and row["largest_pixel"] <= 255)


@claim
def full_size_goes_on_after_interruptions() -> bool:
    """Training continued, a finished block of images was read again, and the images are those of one run."""
    row = read("images_full").iloc[0]
    flags = ("kept_block_was_read_again", "images_are_those_of_an_uninterrupted_run", "average_differs_from_weights")
    return bool(
        0 < row["resumed_at"] < row["steps"] and row["blocks_kept_when_interrupted"] > 0 and row[list(flags)].all()
    )


@claim
def full_size_loss_falls() -> bool:
    """The held-out loss of the averaged weights falls at every evaluation, before and after the interruption."""
    return bool(read("images_full_history")["heldout_loss"].is_monotonic_decreasing)


@claim
def full_size_is_above_single_pixels() -> bool:
    """The full-size network has not learnt more than the mean of each pixel."""
    row = read("images_full").iloc[0]
    return bool(row["loss_network"] > row["loss_pixel_mean"])


# Files


@claim
def killed_file_is_the_same() -> bool:
    """Work from a file to a file that was killed midway and done again ended as work that was not."""
    row = read("disk_to_disk").iloc[0]
    return bool(row["the same file"] == 1 and row["blocks kept after a kill"] > 0)


# Simulated counts


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


@claim
def mmd_takes_less_than_two_minutes() -> bool:
    """Of 50,000 cells and 1,000 genes, in seconds of the clock and of the CPU."""
    row = select("atlas_metrics", metric="mmd").iloc[0]
    return bool(row["n_cells"] == 50_000 and row["n_genes"] == 1000 and max(row["seconds"], row["cpu_seconds"]) < 120)


@claim
def mmd_is_that_of_numpy() -> bool:
    """In single and in double precision."""
    values = read("atlas_metrics").set_index("metric")["value"]
    return bool((values[["mmd, single", "mmd, double"]] - values["mmd, plain numpy"]).abs().max() < 1e-6)


def _of_blocks(metric: str, block: str) -> pd.Series:
    """Values of CountsDiff by seed where a modality is missing as a whole."""
    return select("blocks", block=block, method="countsdiff", metric=metric)["value"]


def _six_data_sets() -> pd.DataFrame:
    return tiers.comparisons(tiers.tables())


@value
def share_lost() -> str:
    """Share of the comparisons on six data sets that CountsDiff lost."""
    return f"{(_six_data_sets()['outcome'] == 'loss').mean():.1%}".replace("%", " %")


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
