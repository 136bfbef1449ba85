"""Times of steps and calls."""

from __future__ import annotations

from results import number, read, select

from statements.registry import claim, value


@value
def transformer_takes(task: str) -> str:
    """Time of the paper's transformer over that of the default network, to two digits."""
    median = read("speed").query("task == @task").groupby("method")["ms_per_cell"].median()
    ratio = median["transformer"] / median["countsdiff"]
    return f"{float(f'{ratio:.2g}'):,.0f}"


@value
def products_over_scvi(task: str, method: str = "countsdiff") -> str:
    """Time of the products of matrices of a method over the whole time of scVI."""
    return f"{_times(task, method)[0]:.1f}"


@value
def rest_over_scvi(task: str, method: str = "countsdiff") -> str:
    """Time of all that a method does beside products of matrices over the whole time of scVI."""
    return f"{_times(task, method)[1]:.1f}"


def _times(task: str, method: str) -> tuple[float, float]:
    """Products and all else, in the time of scVI."""
    ratio = number("speed_2000_ratios", "median", task=task, method=method)
    share = number("speed_2000", "matmul_share", "mean", task=task, method=method)
    return ratio * share, ratio * (1 - share)


@claim
def half_the_units_are_as_good() -> bool:
    """Poisson loss of the mean, and CRPS of five draws, with half of all entries hidden, on each of four data sets."""
    table = select("ablation_width", missingness="mcar")
    for answer, metric, bound in (("countsdiff_mean 1", "poisson_loss", 1e-3), ("countsdiff 5", "crps", 0.015)):
        scores = table[table["answer"].eq(answer) & table["metric"].eq(metric)]
        scores = scores.pivot_table(index="data", columns="variant", values="value")
        worse = scores["default"] - scores["256 hidden units"]
        if len(worse) != 4 or not (worse < bound * scores["default"].abs()).all():
            return False
    return True


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
