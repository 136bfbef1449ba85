"""Figures of the study."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from sccountsdiff.benchmark.simulated.rounding import REGIMES
from sccountsdiff.pl.figure import BLUE, GREEN, ORANGE

COLOURS = {"truth": "#444444", "gaussian": BLUE, "masked": ORANGE, "countsdiff": GREEN}
LABELS = {"truth": "truth", "gaussian": "Gaussian", "masked": "masked", "countsdiff": "CountsDiff"}
BINS = (0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89)
"""First count of each bin of the histograms; single counts where most of them are."""


def _panels(
    n_rows: int, n_columns: int, size: tuple[float, float], x: str, y: str, *, framed: bool = False, **shared
) -> tuple[Figure, np.ndarray]:
    """A figure of panels, labelled at the left and below only."""
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(n_rows, n_columns, squeeze=False, **shared)
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(framed)
        ax.set(xlabel=x if ax in axes[-1] else "", ylabel=y if ax in axes[:, 0] else "")
    return figure, axes


def variances(marginal: pd.DataFrame) -> Figure:
    """Variance of the samples over the true one: a point for each dimension and seed, a line at their median.

    Parameters
    ----------
    marginal
        Table of :class:`~sccountsdiff.benchmark.simulated.Study`.

    Returns
    -------
    The figure; a notebook shows it if it is the last line of a cell.

    Examples
    --------
    >>> table = pd.DataFrame({"setting": "wide", "seed": 0, "dimension": [0, 1], "model": "masked"})
    >>> variances(table.assign(variance=2.0, true_variance=1.0)).axes[0].get_title()
    'wide'
    """
    settings = list(dict.fromkeys(marginal["setting"]))
    size = (4.0 * len(settings) + 0.6, 3.6)
    figure, axes = _panels(1, len(settings), size, "", "Variance of samples / true variance", sharey=True)
    rng = np.random.default_rng(0)  # spreads points sideways
    for ax, setting in zip(axes[0], settings, strict=True):
        part = marginal[marginal["setting"] == setting]
        models = [model for model in COLOURS if model in set(part["model"])]
        for place, model in enumerate(models):
            rows = part[part["model"] == model]
            ratio = (rows["variance"] / rows["true_variance"]).clip(lower=1e-2)
            x = place + rng.uniform(-0.22, 0.22, len(ratio))
            ax.scatter(x, ratio, s=22, color=COLOURS[model], alpha=0.75, linewidths=0)
            ax.hlines(ratio.median(), place - 0.32, place + 0.32, color="black", linewidth=1.6, zorder=3)
        ax.axhline(1, color="#888888", linewidth=0.8, zorder=0)
        ax.set(yscale="log", title=setting)
        ax.set_xticks(range(len(models)), [LABELS[model] for model in models])
    return figure


def histograms(samples: dict[str, np.ndarray]) -> Figure:
    """Share of samples by count, a panel for each dimension, on a logarithmic scale.

    Parameters
    ----------
    samples
        Counts ``(samples, dimensions)`` by name, the truth among them.

    Returns
    -------
    The figure; a notebook shows it if it is the last line of a cell.

    Examples
    --------
    >>> x = np.random.default_rng(0).poisson(1.0, (50, 10))
    >>> len(histograms({"truth": x, "masked": x}).axes)
    10
    """
    n_dimensions = samples["truth"].shape[1]
    n_columns = min(5, n_dimensions)
    n_rows = -(-n_dimensions // n_columns)
    size = (2.7 * n_columns, 2.5 * n_rows + 0.4)
    figure, axes = _panels(n_rows, n_columns, size, "Count", "Share of samples", sharex=True, sharey=True)
    edges = [*BINS, np.inf]
    names = [str(a) if b - a == 1 else f"{a}–{b - 1}" for a, b in zip(BINS, BINS[1:], strict=False)] + [f"{BINS[-1]}+"]
    used = max(int(np.searchsorted(edges, x.max(), side="right")) for x in samples.values())
    places = np.arange(used)
    floor = 0.5 / max(map(len, samples.values()))
    for dimension, ax in enumerate(axes.flat[:n_dimensions]):
        for name, x in samples.items():
            share = np.histogram(x[:, dimension], edges)[0][:used] / len(x)
            if name == "truth":
                ax.bar(places, share, width=0.95, color="#cccccc", label=LABELS[name])
            else:
                shown = share > 0
                style = {"color": COLOURS[name], "marker": "o", "markersize": 3.5, "linewidth": 1.2}
                ax.plot(places[shown], share[shown], label=LABELS[name], **style)
        ax.set(yscale="log", ylim=(floor, 1.5), title=f"Dimension {dimension}")
        ax.set_xticks(places, names[:used], rotation=60)
    handles = axes[0, 0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper center", ncols=len(samples), frameon=False)
    return figure


def joint_density(samples: dict[str, np.ndarray], bandwidth: float = 0.3) -> Figure:
    """Kernel density of dimensions 0 and 1 on the ``log1p`` scale: each model (dashed) over the truth (filled).

    Parameters
    ----------
    samples
        Counts by name, the truth among them.
    bandwidth
        Standard deviation of the kernel, the same for all.

    Returns
    -------
    The figure; a notebook shows it if it is the last line of a cell.

    Examples
    --------
    >>> x = np.random.default_rng(0).poisson(1.0, (50, 2))
    >>> joint_density({"truth": x, "masked": x}).axes[0].get_title()
    'masked (dashed), truth (filled)'
    """
    models = [name for name in samples if name != "truth"]
    top = np.log1p(max(x[:, :2].max() for x in samples.values())) + 3 * bandwidth
    grid = np.linspace(-3 * bandwidth, top, 120)
    true_density = _density(samples["truth"], grid, bandwidth)
    levels = true_density.max() * np.geomspace(1e-4, 0.5, 7)
    labels, size = ("Count in dimension 0", "Count in dimension 1"), (3.6 * len(models) + 0.4, 4.0)
    figure, axes = _panels(1, len(models), size, *labels, framed=True, sharex=True, sharey=True)
    ticks = [count for count in (0, 1, 2, 5, 10, 20, 50, 100) if np.log1p(count) <= top]
    for ax, name in zip(axes[0], models, strict=True):
        filled, dashed = {"cmap": "Greys", "norm": "log", "alpha": 0.8}, {"linestyles": "dashed", "linewidths": 1.2}
        ax.contourf(grid, grid, true_density.T, levels=[*levels, true_density.max()], **filled)
        density = _density(samples[name], grid, bandwidth)
        ax.contour(grid, grid, density.T, levels=levels, colors=COLOURS[name], **dashed)
        ax.set_title(f"{LABELS[name]} (dashed), truth (filled)")
        ax.set_xticks(np.log1p(ticks), ticks)
        ax.set_yticks(np.log1p(ticks), ticks)
    return figure


def _density(samples: np.ndarray, grid: np.ndarray, bandwidth: float) -> np.ndarray:
    """Density of the first two dimensions on grid x grid; the table of pairs of counts is small, samples are many."""
    pairs, numbers = np.unique(np.log1p(samples[:, :2]), axis=0, return_counts=True)
    kernel = lambda values: np.exp(-0.5 * ((grid[:, None] - values) / bandwidth) ** 2)
    scale = 2 * np.pi * bandwidth**2 * len(samples)
    return (kernel(pairs[:, 0]) * numbers) @ kernel(pairs[:, 1]).T / scale


def roundings(rounded: dict[tuple[str, int, str], np.ndarray]) -> Figure:
    """Samples of each rounding (bars) and the law they should have (dots), for the largest number of steps.

    Parameters
    ----------
    rounded
        Samples from :func:`~sccountsdiff.benchmark.simulated.rounding_study`.

    Returns
    -------
    The figure; a notebook shows it if it is the last line of a cell.

    Examples
    --------
    >>> from sccountsdiff.benchmark.simulated import rounding_study
    >>> len(roundings(rounding_study(100, (5,))[1]).axes)
    8
    """
    n_steps = max(steps for _, steps, _ in rounded)
    kinds = list(dict.fromkeys(kind for _, _, kind in rounded))
    shared = {"sharex": "row", "sharey": "row"}
    figure, axes = _panels(len(REGIMES), len(kinds), (2.8 * len(kinds), 5.0), "Count", "Share of samples", **shared)
    for row, (name, regime) in zip(axes, REGIMES.items(), strict=True):
        n_counts = int(regime.mean + 4 * regime.variance**0.5) + 3
        for ax, kind in zip(row, kinds, strict=True):
            drawn = rounded[name, n_steps, kind]
            share = np.bincount(drawn.astype(int), minlength=n_counts)[:n_counts] / len(drawn)
            ax.bar(np.arange(n_counts), share, width=0.9, color=COLOURS["countsdiff"], alpha=0.6, label="samples")
            ax.plot(np.arange(n_counts), regime.pmf(n_counts), "o", color="black", markersize=3, label="true law")
            ax.set_title(f"{kind}, {name}", fontsize=10)
    axes[0, -1].legend(frameon=False)
    return figure
