"""Benchmarks on held-out cells, and denoising."""

from __future__ import annotations

import numpy as np
import pandas as pd
from results import by_method, ranking, read

from statements.registry import NUMBERS, claim, names, value

ONE_PASS, ONE_DRAW = "CountsDiff, one-pass mean", "CountsDiff, 1 draw"  # rows of the benchmark on held-out cells
OTHERS = ["cell-type mean x depth", "scVI", "scVI, refined"]


@claim
def draws_are_calibrated(tables: str, below: str) -> bool:
    """The Kolmogorov distance of the PIT is below a bound on average over the splits, in all thirds of genes."""
    columns = ["pit_ks", "pit_ks_low", "pit_ks_middle", "pit_ks_high"]
    for name in names(tables):
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
    return [str(i + 1) for i in np.flatnonzero(is_closer)] == names(splits)


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


def _denoising(metric: str) -> pd.Series:
    rows = read("denoising_pbmc3k")
    return rows[rows["metric"] == metric].groupby("method")["value"].mean().sort_values()


@claim
def denoising_order(metric: str, methods: str) -> bool:
    """The first methods by a metric, in order."""
    return list(_denoising(metric).index[: len(names(methods))]) == names(methods)


@claim
def most_methods_are_worse_than_no_denoising() -> bool:
    """By the squared error."""
    errors = _denoising("molecule_mse")
    return bool((errors > errors["zero"]).sum() > len(errors) / 2)
