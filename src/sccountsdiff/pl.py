"""Plots: each draws into one matplotlib axes and returns it; ``ax``, ``show`` and ``save`` as in scanpy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

if TYPE_CHECKING:
    from sccountsdiff.model import CountsDiffImputer


def history(
    model: CountsDiffImputer, *, ax: Axes | None = None, show: bool | None = None, save: str | Path | None = None
) -> Axes:
    """Training and validation loss by epoch, with the epoch whose weights were kept.

    Parameters
    ----------
    model
        A trained model.
    ax
        Axes to draw into; default: a new figure.
    show
        Show the figure; default: only if it was made here and is not saved.
    save
        File to save the figure to.

    Examples
    --------
    >>> import sccountsdiff
    >>> ax = sccountsdiff.pl.history(model, show=False)
    >>> ax.get_xlabel()
    'Epoch'
    """
    ax, is_own = _axes(ax)
    for name, label in (("train_loss", "training"), ("validation_loss", "validation")):
        if name in model.history:
            losses = model.history[name].iloc[:, 0].astype(float)
            ax.plot(losses.index, losses, label=label)
    if "validation_loss" in model.history:
        best = losses.idxmin()
        ax.plot(best, losses[best], "o", color="black", label="kept")
    ax.set(xlabel="Epoch", ylabel="Loss", title="Training")
    ax.legend(frameon=False)
    return _finish(ax, is_own, show, save)


def imputed_vs_truth(
    truth: np.ndarray,
    imputed: np.ndarray,
    sites: np.ndarray,
    *,
    ax: Axes | None = None,
    show: bool | None = None,
    save: str | Path | None = None,
) -> Axes:
    """Imputed against true counts of hidden entries, as a density on logarithmic axes.

    Parameters
    ----------
    truth, imputed
        Cells x genes.
    sites
        The hidden entries, boolean.
    ax, show, save
        As in :func:`history`.

    Examples
    --------
    >>> import numpy as np
    >>> import sccountsdiff
    >>> truth = np.arange(12.0).reshape(3, 4)
    >>> ax = sccountsdiff.pl.imputed_vs_truth(truth, truth, truth > 3, show=False)
    >>> ax.get_xlabel()
    'True count + 1'
    """
    ax, is_own = _axes(ax)
    x, y = np.asarray(truth)[sites] + 1.0, np.asarray(imputed)[sites] + 1.0
    top = max(x.max(), y.max(), 2.0) * 1.1
    edges = np.geomspace(0.95, top, 40)
    mesh = ax.hist2d(x, y, bins=[edges, edges], norm="log", cmap="viridis", rasterized=True)[3]
    ax.plot([0.95, top], [0.95, top], color="black", linewidth=0.8)
    ax.set(
        xscale="log", yscale="log", xlabel="True count + 1", ylabel="Imputed count + 1", title="Hidden entries"
    )  # fmt: skip
    ax.figure.colorbar(mesh, ax=ax, label="Entries")
    return _finish(ax, is_own, show, save)


def calibration(
    pit: np.ndarray,
    strata: np.ndarray | pd.Categorical | None = None,
    *,
    ax: Axes | None = None,
    show: bool | None = None,
    save: str | Path | None = None,
) -> Axes:
    """How often the truth falls below each quantile of the draws; the diagonal is perfect.

    Parameters
    ----------
    pit
        Randomised probability integral transform of each hidden entry, see
        :func:`sccountsdiff.benchmark.metrics.pit`.
    strata
        Name of the group of each entry; a line for each. The groups of a :class:`pandas.Categorical` keep their order.
    ax, show, save
        As in :func:`history`.

    Examples
    --------
    >>> import numpy as np
    >>> import sccountsdiff
    >>> ax = sccountsdiff.pl.calibration(np.linspace(0, 1, 50), show=False)
    >>> ax.get_ylabel()
    'Share of true counts below'
    """
    ax, is_own = _axes(ax)
    levels = np.linspace(0, 1, 101)
    ax.plot([0, 1], [0, 1], color="black", linewidth=0.8)
    if strata is None:
        groups = {"all": pit}
    else:
        names = strata.categories if isinstance(strata, pd.Categorical) else np.unique(strata)
        groups = {name: pit[np.asarray(strata == name)] for name in names}
    for name, values in groups.items():
        ax.plot(levels, np.searchsorted(np.sort(values), levels) / len(values), label=name)
    ax.set(xlabel="Quantile of the draws", ylabel="Share of true counts below", title="Calibration")
    if strata is not None:
        ax.legend(frameon=False)
    return _finish(ax, is_own, show, save)


def _axes(ax: Axes | None) -> tuple[Axes, bool]:
    return (plt.figure(layout="constrained").gca(), True) if ax is None else (ax, False)


def _finish(ax: Axes, is_own: bool, show: bool | None, save: str | Path | None) -> Axes:
    if save is not None:
        ax.figure.savefig(save)
    if show or (show is None and is_own and save is None):
        plt.show()
    return ax
