"""Data sets of the benchmark: counts, with the columns that describe a cell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import anndata
from anndata import AnnData
from pandas.api.types import is_bool_dtype
from scipy import sparse

from sccountsdiff import datasets as bundled
from sccountsdiff.benchmark.matrices import DenseOrSparse, are_counts
from sccountsdiff.compat import layer_names
from sccountsdiff.io import READABLE, read
from sccountsdiff.registry import Registry

if TYPE_CHECKING:
    from mudata import MuData


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
    batch
        Column of ``obs`` with the batch of each cell, for missingness that differs between batches. Methods see it only if
        it is a covariate too.
    modality
        Column of ``var`` with the modality of each gene, for missingness of whole modalities.
    testable
        Column of ``obs``, true for the cells that may be test cells: those of a donor, or those that no setting was chosen
        with. The others are always training cells. Default: any cell may be.

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
    batch: str | None = None
    modality: str | None = None
    testable: str | None = None

    def __post_init__(self) -> None:
        obs, place = self.adata.obs, f"data set {self.name!r}"
        columns = [("covariates", key) for key in self.covariates]
        columns += [(argument, getattr(self, argument)) for argument in ("label", "batch", "testable")]
        of_obs = [("obs", "cells", obs, argument, key) for argument, key in columns]
        for name, what, table, argument, key in [*of_obs, ("var", "genes", self.adata.var, "modality", self.modality)]:
            if key is None:
                continue
            if key not in table:
                raise KeyError(
                    f"{argument}: {key!r} is not a column of {name} of {place}; found {list(table.columns)}."
                )
            if n_missing := table[key].isna().sum():
                raise ValueError(f"{argument}: {n_missing} {what} of {place} have no {key!r}; name or drop them.")
        if self.testable is not None and not is_bool_dtype(obs[self.testable]):
            raise TypeError(
                f"testable: {self.testable!r} of {place} must be true or false, found {obs[self.testable].dtype}."
            )
        _require_counts(self.adata.X, f"X of {place}", "put the counts there, as in adata.X = adata.layers[...]")


DataSource: TypeAlias = str | Path | Dataset
"""Name of a registered data set, path of what :func:`sccountsdiff.io.read` reads, or a data set."""

MODALITY_COLUMN = "feature_types"
"""Column of ``var`` that has the modality of a gene, by convention."""

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
    source: DataSource,
    *,
    covariates: Sequence[str] | str = (),
    label: str | None = None,
    batch: str | None = None,
    modality: str | None = None,
    testable: str | None = None,
    layer: str | None = None,
) -> Dataset:
    """A data set, by registered name or from a file or folder of any format that :func:`sccountsdiff.io.read` reads.

    Of several modalities (``.h5mu`` or ``.zarr``) the cells are used that all modalities have, with the genes of one modality
    after those of the other, and with the columns of ``obs`` of the whole and of the modalities.

    Parameters
    ----------
    source
        Name of a registered data set, path of a file, or a data set, which is returned as it is.
    covariates
        Columns of ``obs`` that methods may use; for a file only.
    label
        Column of ``obs`` with the type of each cell; for a file only.
    batch
        Column of ``obs`` with the batch of each cell; for a file only.
    modality
        Column of ``var`` with the modality of each gene; for a file only. Default: none. For a file with
        modalities it is written, with their names, by default as ``"feature_types"``.
    testable
        Column of ``obs``, true for the cells that may be test cells; for a file only.
    layer
        Layer of the file, or of each modality, with the counts, or ``"X"``. Default: the layer ``"counts"`` if there is one,
        else ``X``, as for :class:`~sccountsdiff.CountsDiffImputer`.

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
        if covariates or label or batch or modality or testable or layer:
            raise ValueError(
                f"Data set {source!r} has covariates and label of its own; covariates, label, batch, modality, testable and "
                "layer are for files."
            )
        return DATASETS.get(source)()
    path = Path(source)
    if path.name == str(source) and not path.suffix and not path.exists():
        raise KeyError(f"Unknown data set {str(source)!r}; give a path ({READABLE}) or one of {DATASETS.names()}.")
    adata = read(path)
    if isinstance(adata, AnnData):
        _put_counts_in_x(adata, layer, path.name)
    else:
        modality = MODALITY_COLUMN if modality is None else modality
        adata = _joined(adata, path.name, layer, modality)
    covariates = (covariates,) if isinstance(covariates, str) else tuple(covariates)
    columns = {"label": label, "batch": batch, "modality": modality, "testable": testable}
    return Dataset(path.stem, adata, covariates=covariates, **columns)


def _joined(data: MuData, place: str, layer: str | None, column: str) -> AnnData:
    """The cells that all modalities have, modalities side by side; a column of ``var`` says which is which."""
    cells = data.obs_names
    for part in data.mod.values():
        cells = cells[cells.isin(part.obs_names)]
    if not len(cells):
        raise ValueError(f"No cell of {place} has all of the modalities {list(data.mod)}.")
    parts, obs = [], data.obs.loc[cells].copy()
    for name, part in data.mod.items():
        _put_counts_in_x(part, layer, f"modality {name!r} of {place}")
        part = part[cells]
        for key in part.obs.columns.difference(obs.columns):
            obs[key] = part.obs[key]
        parts.append(AnnData(sparse.csr_matrix(part.X), obs=part.obs[[]], var=part.var[[]].assign(**{column: name})))
    joined = anndata.concat(parts, axis=1, merge="first")
    joined.var_names_make_unique()
    joined.obs = obs
    return joined


def _put_counts_in_x(adata: AnnData, layer: str | None, place: str) -> None:
    if layer is None:
        layer = "counts" if "counts" in adata.layers else "X"
    if layer != "X":
        if layer not in adata.layers:
            raise KeyError(f"layer={layer!r} is not a layer of {place}; found {layer_names(adata)}.")
        adata.X = adata.layers[layer]
    others = ", ".join(name for name in ("X", *layer_names(adata)) if name != layer)
    hint = f"name another with layer= (--layer): {others}" if others else "there are no layers to choose from"
    _require_counts(adata.X, f"{'X' if layer == 'X' else f'layer {layer!r}'} of {place}", hint)


def _require_counts(counts: DenseOrSparse | None, place: str, hint: str) -> None:
    if counts is None:
        raise ValueError(f"There are no counts: {place} is empty; {hint}.")
    if not are_counts(counts):
        raise ValueError(
            f"Raw counts are needed, but {place} has negative, fractional, infinite or missing values; {hint}."
        )
