"""Imputation of data in a Dask array: layers that are computed when they are needed, on any Dask cluster."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd
import scipy.sparse as sp
import torch
from anndata import AnnData

from sccountsdiff.data.reading import DaskMatrix
from sccountsdiff.data.source import CellSource, CountMatrix
from sccountsdiff.model.plan import Plan
from sccountsdiff.model.results import mean_dtype_of
from sccountsdiff.module import CountsDiffModule

if TYPE_CHECKING:
    import dask.array

_DEVICE_LOCK = threading.Lock()

CHUNK_CELLS = 4096
"""Cells that are filled in by one task, or a few less, so that it has whole batches."""


@dataclass(frozen=True)
class SourcePart(CellSource):
    """Some consecutive cells of a source, in memory, which go by their rows in all of it.

    So each block has the same number, and the same random numbers, as if all cells were there.
    """

    start: int
    n_cells_in_all: int

    @property
    def n_cells(self) -> int:
        """Number of cells, those that are elsewhere included."""
        return self.n_cells_in_all

    def read(self, rows: np.ndarray) -> tuple[np.ndarray, dict]:
        """As of all cells."""
        return super().read(rows - self.start)


def impute_lazily(module: CountsDiffModule, plan: Plan) -> dict[str, dask.array.Array]:
    """Layers of all cells, by their suffixes, as Dask arrays; nothing is computed yet.

    The model goes to each worker once. Counts are checked when they are read.
    """
    import dask
    import dask.array as da

    source = plan.source
    step = max(CHUNK_CELLS // plan.batch_size, 1) * plan.batch_size
    bounds = [(start, min(start + step, source.n_cells)) for start in range(0, source.n_cells, step)]
    counts = _row_chunks(source.counts, step)
    mask = [None] * len(bounds) if source.matrix.mask is None else _row_chunks(source.matrix.mask, step)
    # What is shared is one task, so that it is sent once; the data is not part of it.
    # A copy, as the model may be trained further before anything is computed; on the host, as not every worker need have a GPU.
    sent = copy.deepcopy(module).cpu()
    shared = dask.delayed(
        (sent, module.device.type, replace(plan, source=cast("CellSource", None)), source.columns),
        pure=False,
        traverse=False,
    )
    names = source.matrix.adata.obs_names, pd.DataFrame(index=source.matrix.adata.var_names)
    blocks: dict[str, list] = {suffix: [] for suffix in plan.layers}
    for (start, stop), own_counts, own_mask in zip(bounds, counts, mask, strict=True):
        rows = slice(start, stop)
        covariates = source.categories[rows], source.continuous[rows]
        table = AnnData(obs=pd.DataFrame(index=names[0][rows]), var=names[1])
        layers = source.matrix.layer, source.matrix.mask_layer
        made = dask.delayed(_fill_chunk, pure=False)(
            shared, own_counts, own_mask, table, layers, covariates, start, source.n_cells
        )
        for suffix, layer in plan.layers.items():
            form = sp.csr_matrix((0, 0), dtype=layer.dtype) if plan.is_sparse[suffix] else np.empty((0, 0), layer.dtype)
            shape = (stop - start, plan.shape[1])
            blocks[suffix].append(da.from_delayed(made[suffix], shape, dtype=layer.dtype, meta=form))
    return {suffix: da.concatenate(parts) for suffix, parts in blocks.items()}


def _row_chunks(matrix: Any, step: int) -> Iterator[Any]:
    """The matrix in parts of so many rows, each a task of Dask, or in memory if the matrix is."""
    if isinstance(matrix, DaskMatrix):
        yield from matrix.array.rechunk((step, -1)).to_delayed()[:, 0]
    else:
        for start in range(0, matrix.shape[0], step):
            yield matrix[start : start + step]


@contextmanager
def _on_device(module: CountsDiffModule, device_type: str) -> Iterator[None]:
    """Where a worker has a device as the model was on, that is where its copy stays, and one task at a time uses it."""
    if device_type != "cuda" or not torch.cuda.is_available():
        yield
        return
    with _DEVICE_LOCK:
        module.to(device_type)
        yield


def _fill_chunk(
    shared: tuple[CountsDiffModule, str, Plan, np.ndarray],
    counts: np.ndarray | sp.csr_matrix,
    mask: np.ndarray | sp.csr_matrix | None,
    table: AnnData,
    layers: tuple[str | None, str | None],
    covariates: tuple[np.ndarray, np.ndarray],
    start: int,
    n_cells: int,
) -> dict[str, np.ndarray | sp.csr_matrix]:
    """Layers of some cells, of which the first is in row ``start`` of all."""
    module, device_type, plan, columns = shared
    source = SourcePart(CountMatrix(table, *layers, counts, mask), columns, *covariates, start, n_cells)
    part = replace(plan, source=source)
    largest = source.largest(np.arange(counts.shape[0]))
    if not plan.layers[""].is_whole and mean_dtype_of(largest).itemsize > plan.layers[""].dtype.itemsize:
        raise ValueError(f"A count of {largest:g} does not fit into single precision: impute the data in memory.")
    first, last = start // plan.batch_size, (start + counts.shape[0] - 1) // plan.batch_size
    rows: dict[str, list] = {suffix: [] for suffix in plan.layers}
    with _on_device(module, device_type):
        for block in part.blocks(module, is_done=lambda number: not first <= number <= last):
            for suffix, made in part.layers_of(block).items():
                rows[suffix].append(sp.csr_matrix(made) if part.is_sparse[suffix] else made)
    return {
        suffix: sp.vstack(parts, format="csr") if part.is_sparse[suffix] else np.concatenate(parts)
        for suffix, parts in rows.items()
    }
