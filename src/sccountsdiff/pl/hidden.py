from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from sccountsdiff.pl._figure import HEAT, finish, own_axes


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
    ax, is_own = own_axes(ax)
    x, y = np.asarray(truth)[sites] + 1.0, np.asarray(imputed)[sites] + 1.0
    top = max(x.max(), y.max(), 2.0) * 1.1
    edges = np.geomspace(0.95, top, 40)
    mesh = ax.hist2d(x, y, bins=[edges, edges], norm="log", cmap=HEAT, rasterized=True)[3]
    ax.plot([0.95, top], [0.95, top], color="black", linewidth=0.8)
    ax.set(
        xscale="log", yscale="log", xlabel="True count + 1", ylabel="Imputed count + 1", title="Hidden entries"
    )  # fmt: skip
    ax.figure.colorbar(mesh, ax=ax, label="Entries")
    return finish(ax, is_own, show, save)
