"""How sure imputation is of each cell, on an embedding."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from anndata import AnnData
from matplotlib.axes import Axes

from sccountsdiff.pl.figure import HEAT, finish, own_axes
from sccountsdiff.pl.layers import gene_values, spread_of


def uncertainty(
    adata: AnnData,
    gene: str | None = None,
    *,
    basis: str = "X_umap",
    key: str = "imputed",
    ax: Axes | None = None,
    show: bool | None = None,
    save: str | Path | None = None,
) -> Axes:
    """Standard deviation of imputed counts on an embedding of the cells; the most uncertain cells are drawn last.

    Parameters
    ----------
    adata
        Data with the layers that :meth:`~sccountsdiff.CountsDiffImputer.impute` writes, unless ``n_samples`` is 1.
    gene
        Gene; default: the mean over all genes, in which observed entries count as certain.
    basis
        Key of ``adata.obsm``; the first two columns are drawn.
    key
        ``key_added`` of the imputation.
    ax, show, save
        As in :func:`history`.

    Returns
    -------
    The axes that were drawn into.

    Examples
    --------
    >>> import sccountsdiff
    >>> imputed = model.impute(n_samples=2, silent=True)
    >>> adata.obsm["X_first"] = adata.X[:, :2].toarray()
    >>> ax = sccountsdiff.pl.uncertainty(adata, basis="X_first", show=False)
    >>> ax.get_xlabel()
    'first 1'
    """
    if basis not in adata.obsm:
        raise KeyError(f"basis={basis!r} is not in adata.obsm, which has {', '.join(adata.obsm) or 'none'}.")
    sd = spread_of(adata, key)
    values = np.asarray(sd.mean(1)).ravel() if gene is None else gene_values(adata, sd, gene)
    x, y = np.asarray(adata.obsm[basis])[:, :2].T
    order = np.argsort(values, kind="stable")
    ax, is_own = own_axes(ax)
    points = ax.scatter(x[order], y[order], c=values[order], s=np.clip(12_000 / len(x), 1, 40), cmap=HEAT, linewidths=0)
    ax.figure.colorbar(points, ax=ax, label="Standard deviation")
    name = basis.removeprefix("X_")
    ax.set(
        xlabel=f"{name} 1", ylabel=f"{name} 2", xticks=[], yticks=[], title="mean over genes" if gene is None else gene
    )
    return finish(ax, is_own, show, save)
