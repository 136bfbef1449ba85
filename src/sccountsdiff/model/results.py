"""Results of imputation: collected block by block, and written to the AnnData as layers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter, methodcaller
from typing import Any, NamedTuple, cast

import numpy as np
import scipy.sparse as sp
from anndata import AnnData
from mudata import MuData
from torch import Tensor

from sccountsdiff.data.modalities import Part
from sccountsdiff.data.source import CellTables
from sccountsdiff.diffusion import Outcome, log_mean

NOTES = "sccountsdiff"
"""Where in ``uns`` it is noted how layers were made."""


class RowCollector:
    """Cells x genes, filled block by block from the top, sparse if the counts are: never twice in memory.

    Parameters
    ----------
    shape
        Cells and genes.
    dtype
        Of the result.
    is_sparse
        Give back CSR instead of a dense array.

    Examples
    --------
    >>> import numpy as np
    >>> rows = RowCollector((3, 2), np.float32, is_sparse=True)
    >>> rows.add(np.array([[0, 1], [2, 0]]))
    >>> rows.add(np.array([[3, 4]]))
    >>> rows.finish().toarray().tolist()
    [[0.0, 1.0], [2.0, 0.0], [3.0, 4.0]]
    """

    def __init__(self, shape: tuple[int, int], dtype: np.dtype, is_sparse: bool):
        self.dtype = np.dtype(dtype)
        self._shape = shape
        self._n_done = 0
        self._dense = None if is_sparse else np.empty(shape, self.dtype)
        # The three arrays of a CSR matrix.
        self._values, self._genes = np.empty(0, self.dtype), np.empty(0, np.int32)
        self._columns = np.empty(0, np.int32)  # of each entry of a block
        self._ends = np.zeros(shape[0] + 1, np.int64)

    def add(self, block: np.ndarray) -> None:
        """Append the next rows."""
        rows = slice(self._n_done, self._n_done + len(block))
        if self._dense is not None:
            self._dense[rows] = block
        else:
            # Row by row, which takes half as long as by way of coordinates.
            n_genes = self._shape[1]
            if len(self._columns) < block.size:
                self._columns = np.tile(np.arange(n_genes, dtype=np.int32), len(block))
            at = np.flatnonzero(block != 0)
            n_before = np.searchsorted(at, np.arange(len(block) + 1) * n_genes)
            before, after = self._ends[rows.start], self._ends[rows.start] + len(at)
            if after > len(self._values):
                # Blocks are much alike: make room for all the rest.
                self._resize(math.ceil(after / rows.stop * self._shape[0]))
            values = block.astype(self.dtype, copy=False).ravel()
            for row_by_row, stored in ((values, self._values), (self._columns, self._genes)):
                np.take(row_by_row, at, out=stored[before:after], mode="clip")  # without a copy in between
            self._ends[rows.start + 1 : rows.stop + 1] = before + n_before[1:]
        self._n_done = rows.stop

    def finish(self, order: np.ndarray | None = None) -> np.ndarray | sp.csr_matrix:
        """The matrix, its rows as in ``order``."""
        matrix = self._dense
        if matrix is None:
            self._resize(self._ends[-1])
            matrix = sp.csr_matrix((self._values, self._genes, self._ends), shape=self._shape, copy=False)
        return matrix if order is None else matrix[order]

    def _resize(self, n_stored: int) -> None:
        # In place. Nobody else holds these arrays.
        self._values.resize(n_stored, refcheck=False)
        self._genes.resize(n_stored, refcheck=False)


def count_dtype_of(dtype: np.dtype) -> np.dtype:
    """The dtype of the counts, unless a draw may not fit into it."""
    if dtype.kind in "iu":
        return dtype if dtype.itemsize >= 4 else np.dtype(np.int32)
    return dtype if dtype.kind == "f" and dtype.itemsize >= 4 else np.dtype(np.float32)


def mean_dtype_of(largest: float) -> np.dtype:
    """Single precision, unless it would not hold every observed count, up to the largest, as it is."""
    return np.dtype(np.float32 if largest <= 2**24 else np.float64)


def as_dtype(draws: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Draws in another type; an error if that is too small for them."""
    if dtype.kind in "iu" and draws.size and draws.max() >= np.iinfo(dtype).max:
        raise ValueError(
            f"A draw of {draws.max():g} does not fit into the type of the counts, {dtype}. If it has run away, use less "
            "`guidance`; otherwise convert the counts to float64."
        )
    return draws.astype(dtype, copy=False)


def with_values(block: np.ndarray, places: np.ndarray, values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """A copy of the block with the values in some places, counted row by row."""
    out = block.astype(dtype, order="C")
    out.reshape(-1)[places] = as_dtype(values, dtype)
    return out


class Layer(NamedTuple):
    """A layer that is written: its type, whether it holds whole numbers, and what it holds.

    That comes from draws, ``(draws, entries)``, or from their law.
    """

    dtype: np.dtype
    is_whole: bool
    of_draws: Callable[[np.ndarray], np.ndarray]
    of_law: Callable[[Outcome], Tensor]


def result_layers(
    n_samples: int, quantiles: list[float], final: str, draw_dtype: np.dtype, mean_dtype: np.dtype
) -> dict[str, Layer]:
    """The layers that are written, by the suffix of their names.

    Parameters
    ----------
    n_samples
        Draws.
    quantiles
        Those that are asked for.
    final
        The setting of sampling: what takes the place of the last draw.
    draw_dtype, mean_dtype
        Types of counts that were drawn, and of means.
    """
    if n_samples == 1 and final == "sample":
        return {"": Layer(draw_dtype, True, lambda draws: draws[0], attrgetter("mean"))}
    centre = _centre_of_logs if final == "log_mean" else attrgetter("mean")
    layers = {
        "": Layer(mean_dtype, False, lambda draws: draws.mean(0), centre),
        "_sd": Layer(np.dtype(np.float32), False, lambda draws: draws.std(0, ddof=1), attrgetter("sd")),
    }
    for suffix, q in zip(quantile_suffixes(quantiles), quantiles, strict=True):
        layers[suffix] = Layer(draw_dtype, True, partial(_quantile, q=q), methodcaller("quantile", q))
    return layers


def layers_read(args: Mapping[str, Any], sites: object) -> dict[str, Any]:
    """Layers that imputation reads, by what they hold, from the arguments of the set-up and the entries to fill in."""
    named = {"`sites`": sites} if isinstance(sites, str) else {}
    return {"the counts": args["layer"], "their mask": args["mask_layer"], **named}


def quantile_suffixes(quantiles: Sequence[float]) -> list[str]:
    """What is added to the name of a layer for each quantile."""
    return [f"_q{q:g}" for q in quantiles]


def _centre_of_logs(law: Outcome) -> Tensor:
    return log_mean(law.births, law.n).mean(0)


def _quantile(draws: np.ndarray, q: float) -> np.ndarray:
    """The lowest draw that is not exceeded by a share of at least ``q`` of all draws: a count, never between two."""
    # Of 100 draws a share of 0.07 is 7, not the 7.000000000000001 that floating point makes of it.
    position = max(math.ceil(q * len(draws) - 1e-9) - 1, 0)
    return np.partition(draws, position, axis=0)[position]


def layers_in_use(layers: Iterable[str | Mapping[str, str | None] | None]) -> list[str | None]:
    """Names of layers, of which some may be given for each modality."""
    return [name for layer in layers for name in (layer.values() if isinstance(layer, Mapping) else [layer])]


def check_key(key: str, suffixes: list[str], in_use: Mapping[str, str | Mapping[str, str | None] | None]) -> None:
    """Refuse a name that files cannot hold, or under which the result would replace what the model reads."""
    if not isinstance(key, str) or not key:
        raise ValueError(f"`key_added` must be the name of a layer or None, not {key!r}.")
    if "/" in key or "\0" in key or not key.strip(".") or not key.isprintable():
        raise ValueError(
            f"`key_added={key!r}` cannot be the name of a layer in a file: use letters, digits and underscores."
        )
    for what, layers in in_use.items():
        for layer in set(layers_in_use([layers])) & {key + suffix for suffix in suffixes}:
            raise ValueError(
                f"`key_added={key!r}` would overwrite adata.layers[{layer!r}], which holds {what}: choose another name."
            )


def check_can_write(data: AnnData, key: str, suffixes: list[str]) -> None:
    """Refuse data to which these layers cannot be added, or whose user has others under their names."""
    if data.is_view and data.isbacked:
        raise ValueError(
            "`adata` is a view of data in a file, to which no layer can be added: pass the whole data with `indices`, "
            "or `key_added=None`, or `adata.to_memory()`."
        )
    notes = data.uns.get(NOTES, {})
    if not isinstance(notes, Mapping):
        raise ValueError(
            f"adata.uns[{NOTES!r}] is a {type(notes).__name__}, where notes on what was imputed are to go: delete or "
            "rename it."
        )
    written = {layer for name in notes for layer in _written(notes, name)}
    for name in (key + suffix for suffix in suffixes):
        if name in data.layers and name not in written:
            raise ValueError(
                f"`key_added={key!r}` would overwrite adata.layers[{name!r}], which `impute` has not written: choose "
                "another name, or delete that layer."
            )


def check_result(data: AnnData | MuData, tables: CellTables, key: str, suffixes: list[str]) -> None:
    """Refuse data to which :func:`write_result` cannot write, or in which it would replace what is the user's."""
    if tables.joined is None:
        check_can_write(tables.adata, key, suffixes)
        return
    mdata = cast("MuData", data)
    for part in tables.joined.parts:
        own = mdata.mod.get(part.name)
        if own is None:  # what is in `obsm` may be of an earlier call
            continue
        check_can_write(own, key, suffixes)
        for name in {f"{key}{suffix}" for suffix in suffixes} - _written(own.uns.get(NOTES, {}), key):
            if f"{name}_{part.name}" in mdata.obsm:
                raise ValueError(
                    f"`key_added={key!r}` would overwrite mdata.obsm['{name}_{part.name}'], which `impute` has not written: "
                    "choose another name, or delete it."
                )


def write_layers(
    data: AnnData,
    key: str,
    layers: Mapping[str, np.ndarray | sp.csr_matrix],
    note: dict,
    keep: set[str | None],
) -> None:
    """Write layers, and a note on how they were made.

    Further layers of an earlier result of that name, which would be taken as of this one, go; but not those to ``keep``.
    """
    notes = data.uns.get(NOTES, {})
    others = {layer for name in notes if name != key for layer in _written(notes, name)}
    for name, matrix in layers.items():
        data.layers[name] = matrix
    for name in _written(notes, key) - others - keep - set(layers):
        if name in data.layers:
            del data.layers[name]
    data.uns[NOTES] = {**notes, key: note | {"layers": list(layers)}}


def write_result(
    data: AnnData | MuData,
    tables: CellTables,
    key: str,
    layers: Mapping[str, np.ndarray | sp.csr_matrix],
    note: dict,
    keep: Iterable[str | Mapping[str, str | None] | None],
) -> None:
    """Write layers to where the counts of ``data`` are, which ``tables`` say: one table, or several modalities."""
    if tables.joined is None:
        write_layers(tables.adata, key, layers, note, keep=set(layers_in_use(keep)))
    else:
        write_to_modalities(cast("MuData", data), tables.joined.parts, key, layers, note, keep)


def written_layers(data: AnnData | MuData, tables: CellTables, key: str) -> list[str]:
    """Names of the layers that :func:`write_result` has written."""
    if tables.joined is None:
        return list(tables.adata.uns[NOTES][key]["layers"])
    notes = [cast("MuData", data).mod[part.name].uns.get(NOTES, {}) for part in tables.joined.parts if len(part.cells)]
    return next(list(note[key]["layers"]) for note in notes if key in note)


def write_to_modalities(
    mdata: MuData,
    parts: Sequence[Part],
    key: str,
    layers: Mapping[str, np.ndarray | sp.csr_matrix],
    note: dict,
    keep: Iterable[str | Mapping[str, str | None] | None],
) -> None:
    """Write to each modality the part of its cells and features, see :func:`write_layers`.

    The part of all cells goes to ``mdata.obsm``, as ``"layer_modality"``, if there are cells that the modality lacks.
    """
    for part in parts:
        own = mdata.mod.get(part.name)
        earlier = set() if own is None else _written(own.uns.get(NOTES, {}), key)
        for name in {*earlier, *layers}:
            mdata.obsm.pop(f"{name}_{part.name}", None)
        if len(part.cells) < mdata.n_obs:
            for name, matrix in layers.items():
                mdata.obsm[f"{name}_{part.name}"] = matrix[:, part.features]
        own = mdata.mod.get(part.name)  # not the same: a view has become data of its own when it was written to
        if own is not None:
            of_part = {name: matrix[part.cells][:, part.features] for name, matrix in layers.items()}
            of_modality = {
                name: value.get(part.name) if isinstance(value, Mapping) else value for name, value in note.items()
            }
            own_note = {name: value for name, value in of_modality.items() if value is not None}
            write_layers(own, key, of_part, own_note, keep=set(layers_in_use(keep)))


def _written(notes: Mapping, key: str) -> set[str]:
    """Layers that an earlier call has written under a name, as far as its note can be believed: notes come from files."""
    note = notes.get(key)
    named = note.get("layers", ()) if isinstance(note, Mapping) else ()
    is_own = re.compile(re.escape(key) + r"(_sd|_q[0-9.e-]+)?").fullmatch
    return {str(name) for name in np.ravel(named) if is_own(str(name))}
