"""What imputation does to the relation between two genes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from anndata import AnnData
from matplotlib.axes import Axes

from sccountsdiff.data.counts import get_matrix
from sccountsdiff.pl.figure import BLUE, GREY, ORANGE, finish
from sccountsdiff.pl.layers import gene_values, note_of, spread_of


def gene_pair(
    adata: AnnData,
    x: str,
    y: str,
    *,
    key: str = "imputed",
    layer: str | None = None,
    ax: Sequence[Axes] | None = None,
    show: bool | None = None,
    save: str | Path | None = None,
) -> np.ndarray:
    """Two genes against each other, before and after imputation; bars are standard deviations.

    Before, large points stand for many cells with the same counts. After, cells are coloured in which one of the two
    was filled in with another count than it had, or with one that is uncertain. A relation that is only
    seen after imputation is one that the model has put there.

    Parameters
    ----------
    adata
        Data with the layers that :meth:`~sccountsdiff.CountsDiffImputer.impute` writes, unless ``n_samples`` is 1.
    x, y
        Names of genes.
    key
        ``key_added`` of the imputation.
    layer
        Layer with the counts; default: the one that was imputed, as noted in ``adata.uns``, or else ``X``.
    ax
        Two axes to draw into; default: a new figure.
    show, save
        As in :func:`history`.

    Returns
    -------
    The two axes.

    Examples
    --------
    >>> import sccountsdiff
    >>> imputed = model.impute(n_samples=2, silent=True)
    >>> before, after = sccountsdiff.pl.gene_pair(adata, *adata.var_names[:2], show=False)
    >>> before.get_title(), after.get_title()
    ('Before', 'After')
    """
    layer = note_of(adata, key).get("layer") if layer is None else layer
    layers = get_matrix(adata, layer), get_matrix(adata, key, "key"), spread_of(adata, key)
    (x_before, x_after, x_sd), (y_before, y_after, y_sd) = (
        [gene_values(adata, matrix, gene) for matrix in layers] for gene in (x, y)
    )
    if (mask_layer := note_of(adata, key).get("mask_layer")) in adata.layers:
        masks = [gene_values(adata, adata.layers[mask_layer], gene).astype(bool) for gene in (x, y)]
        x_before, y_before = (np.where(*pair, np.nan) for pair in zip(masks, (x_before, y_before), strict=True))
    is_own = ax is None
    if is_own:
        ax = plt.subplots(1, 2, figsize=(8, 3.8), layout="constrained")[1]
    before, after = ax
    seen = ~(np.isnan(x_before) | np.isnan(y_before))  # NaN is missing: there is nothing to draw before
    points, n_cells = np.unique(np.stack([x_before, y_before])[:, seen], axis=1, return_counts=True)
    before.scatter(*points, s=12 * np.sqrt(n_cells), color=BLUE, alpha=0.6, linewidths=0)
    # What can be told from the layers; a zero of which all draws are zero looks like one that was left alone.
    filled = (x_before != x_after) | (y_before != y_after) | (x_sd > 0) | (y_sd > 0)
    after.scatter(x_after[~filled], y_after[~filled], s=12, color=BLUE, linewidths=0, label="unchanged")
    bars = after.errorbar(
        x_after[filled],
        y_after[filled],
        xerr=_bars(x_after, x_sd)[:, filled],
        yerr=_bars(y_after, y_sd)[:, filled],
        fmt="o",
        markersize=3,
        color=ORANGE,
        ecolor=GREY,
        elinewidth=0.6,
        label="filled in",
    )
    bars.lines[0].set_alpha(0.6)
    for lines in bars.lines[2]:
        lines.set_alpha(0.15)  # there may be hundreds
    after.legend(loc="upper left", framealpha=0.9)
    for panel, title in ((before, "Before"), (after, "After")):
        # Linear up to one count, logarithmic above.
        panel.set_xscale("symlog", linthresh=1)
        panel.set_yscale("symlog", linthresh=1)
        panel.set(xlabel=x, ylabel=y, title=title)
        panel.set(xlim=_limits(x_before, x_after + x_sd), ylim=_limits(y_before, y_after + y_sd))
    return finish(np.array([before, after]), is_own, show, save)


def _bars(mean: np.ndarray, sd: np.ndarray) -> np.ndarray:
    """Lengths of the bars down and up: there are no negative counts."""
    return np.stack([np.minimum(sd, mean), sd])


def _limits(*values: np.ndarray) -> tuple[float, float]:
    return -0.3, 1.3 * max(1.0, *(float(np.nanmax(value)) for value in values))
