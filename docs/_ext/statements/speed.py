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
    ratio = number("speed_2000_ratios", "median", task=task, method=method)
    share = number("speed_2000", "matmul_share", "mean", task=task, method=method)
    return f"{ratio * share:.1f}"


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
