"""Imputed against true counts, where the truth is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.sparse as sp
from matplotlib.axes import Axes

from sccountsdiff.pl.figure import HEAT, finish, own_axes


def imputed_vs_truth(
    truth: np.ndarray | sp.spmatrix,
    imputed: np.ndarray | sp.spmatrix,
    sites: np.ndarray | sp.spmatrix,
    *,
    ax: Axes | None = None,
    show: bool | None = None,
    save: str | Path | None = None,
) -> Axes:
    """Imputed against true counts of hidden entries, as a density on logarithmic axes.

    Parameters
    ----------
    truth, imputed
        Cells x genes, dense or sparse.
    sites
        The hidden entries, boolean, dense or sparse.
    ax, show, save
        As in :func:`history`.

    Returns
    -------
    The axes that were drawn into.

    Examples
    --------
    >>> import numpy as np
    >>> import sccountsdiff
    >>> truth = np.arange(12.0).reshape(3, 4)
    >>> ax = sccountsdiff.pl.imputed_vs_truth(truth, truth, truth > 3, show=False)
    >>> ax.get_xlabel()
    'True count + 1'
    """
    truth, imputed, sites = (m if sp.issparse(m) else np.asarray(m) for m in (truth, imputed, sites))
    for name, matrix in (("imputed", imputed), ("sites", sites)):
        if matrix.shape != truth.shape:
            raise ValueError(f"`{name}` has shape {matrix.shape}, but `truth` has shape {truth.shape}.")
    cells, genes = sites.nonzero()
    if len(cells) == 0:
        raise ValueError("`sites` marks no entry as hidden: there is nothing to draw.")
    x, y = (np.asarray(_csr(matrix)[cells, genes]).ravel() + 1.0 for matrix in (truth, imputed))
    ax, is_own = own_axes(ax)
    top = max(x.max(), y.max(), 2.0) * 1.1
    edges = np.geomspace(0.95, top, 40)
    mesh = ax.hist2d(x, y, bins=[edges, edges], norm="log", cmap=HEAT, rasterized=True)[3]
    ax.plot([0.95, top], [0.95, top], color="black", linewidth=0.8)
    ax.set(
        xscale="log", yscale="log", xlabel="True count + 1", ylabel="Imputed count + 1", title="Hidden entries"
    )  # fmt: skip
    ax.figure.colorbar(mesh, ax=ax, label="Entries")
    return finish(ax, is_own, show, save)


def _csr(matrix: np.ndarray | sp.spmatrix) -> np.ndarray | sp.csr_matrix:
    """Something that single entries can be taken from."""
    return matrix.tocsr() if sp.issparse(matrix) else matrix
