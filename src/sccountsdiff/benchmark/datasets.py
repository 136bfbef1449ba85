"""Data sets of the benchmark: counts, with the columns that describe a cell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import anndata
from anndata import AnnData

from sccountsdiff import datasets as bundled
from sccountsdiff.benchmark.matrices import DenseOrSparse, are_counts
from sccountsdiff.registry import Registry


@dataclass(frozen=True)
class Dataset:
    """Cells with raw counts and what is known about them.

    Parameters
    ----------
    name
        Name in tables.
    adata
        The cells, raw counts in ``X``, whatever layers there are.
    covariates
        Columns of ``obs`` that methods may use.
    label
        Column of ``obs`` with the type of each cell, for classification, clusters, markers and the paper's protocol.

    Examples
    --------
    >>> import numpy as np
    >>> from anndata import AnnData
    >>> cells = AnnData(np.ones((2, 3)), obs={"type": ["a", "b"]})
    >>> Dataset("mine", cells, covariates=("type",), label="type").adata.shape
    (2, 3)
    """

    name: str
    adata: AnnData
    covariates: tuple[str, ...] = ()
    label: str | None = None

    def __post_init__(self) -> None:
        obs, place = self.adata.obs, f"data set {self.name!r}"
        columns = [("covariates", key) for key in self.covariates] + ([("label", self.label)] if self.label else [])
        for argument, key in columns:
            if key not in obs:
                raise KeyError(f"{argument}: {key!r} is not a column of obs of {place}; found {list(obs.columns)}.")
            if n_missing := obs[key].isna().sum():
                raise ValueError(f"{argument}: {n_missing} cells of {place} have no {key!r}; name or drop them.")
        _require_counts(self.adata.X, f"X of {place}", "put the counts there, as in adata.X = adata.layers[...]")


DataSource: TypeAlias = str | Path | Dataset
"""Name of a registered data set, path of an ``.h5ad`` file, or a data set."""

DATASETS: Registry[Callable[[], Dataset]] = Registry("data set")


def register_dataset(name: str) -> Callable[[Callable[[], Dataset]], Callable[[], Dataset]]:
    """Decorator that makes a function that loads a data set known under a name.

    Parameters
    ----------
    name
        Name for ``dataset=`` and for :func:`load_dataset`.

    Returns
    -------
    A decorator that returns the function as it is.

    Examples
    --------
    >>> import numpy as np
    >>> from anndata import AnnData
    >>> @register_dataset("ones")
    ... def ones():
    ...     return Dataset("ones", AnnData(np.ones((4, 2))))
    >>> load_dataset("ones").adata.shape
    (4, 2)
    """
    return DATASETS.register(name)


@register_dataset("pbmc68k")
def _pbmc68k() -> Dataset:
    return Dataset("pbmc68k", bundled.pbmc68k(), covariates=("cell_type",), label="cell_type")


def load_dataset(
    source: DataSource, *, covariates: Sequence[str] | str = (), label: str | None = None, layer: str | None = None
) -> Dataset:
    """A data set, by registered name or from an ``.h5ad`` file.

    Parameters
    ----------
    source
        Name of a registered data set, path of an ``.h5ad`` file, or a data set, which is returned as it is.
    covariates
        Columns of ``obs`` that methods may use; for a file only.
    label
        Column of ``obs`` with the type of each cell; for a file only.
    layer
        Layer of the file with the counts, or ``"X"``. Default: the layer ``"counts"`` if there is one, else ``X``, as for
        :class:`~sccountsdiff.CountsDiffImputer`.

    Returns
    -------
    The data set, its counts in ``X``.

    Examples
    --------
    >>> data = load_dataset("pbmc68k")
    >>> data.label, data.adata.shape
    ('cell_type', (700, 765))
    """
    if isinstance(source, Dataset):
        return source
    if isinstance(source, str) and source in DATASETS:
        if covariates or label or layer:
            raise ValueError(
                f"Data set {source!r} has covariates and label of its own; covariates, label and layer are for files."
            )
        return DATASETS.get(source)()
    path = Path(source)
    if path.suffix != ".h5ad":
        raise KeyError(
            f"Unknown data set {str(source)!r}; give the path of an .h5ad file or one of {DATASETS.names()}."
        )
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {str(path)!r}.")
    adata = anndata.read_h5ad(path)
    if layer is None:
        layer = "counts" if "counts" in adata.layers else "X"
    if layer != "X":
        if layer not in adata.layers:
            raise KeyError(f"layer={layer!r} is not a layer of {path.name}; found {list(adata.layers)}.")
        adata.X = adata.layers[layer]
    others = ", ".join(name for name in ("X", *adata.layers) if name != layer)
    hint = f"name another with layer= (--layer): {others}" if others else "there are no layers to choose from"
    _require_counts(adata.X, f"{'X' if layer == 'X' else f'layer {layer!r}'} of {path.name}", hint)
    covariates = (covariates,) if isinstance(covariates, str) else tuple(covariates)
    return Dataset(path.stem, adata, covariates=covariates, label=label)


def _require_counts(counts: DenseOrSparse | None, place: str, hint: str) -> None:
    if counts is None:
        raise ValueError(f"There are no counts: {place} is empty; {hint}.")
    if not are_counts(counts):
        raise ValueError(
            f"Raw counts are needed, but {place} has negative, fractional, infinite or missing values; {hint}."
        )
