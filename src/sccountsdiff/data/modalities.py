"""Several modalities of a MuData, side by side as one table of counts: each cell has all, some or one of them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import scipy.sparse as sp
from anndata import AnnData

from sccountsdiff.data.counts import get_matrix
from sccountsdiff.data.messages import matrix_name
from sccountsdiff.data.reading import BlockMask, DaskMatrix, Matrix, as_matrix, by_rows, dense, is_sparse

if TYPE_CHECKING:
    from mudata import MuData

MODALITY_COLUMN = "feature_types"
"""Column of ``var`` of the table that has the modality of each feature."""

JOINED_MASK = "observed"
"""Layer of the table that has the mask, if a modality has one."""

Layers = str | Mapping[str, str | None] | None
"""A layer of all modalities (``None``: ``X``, or no mask), or of each."""


@dataclass(frozen=True)
class KnownFeatures:
    """What a model knows of the modalities that it was trained on.

    Attributes
    ----------
    names
        Names of the features of each modality, as the model has them.
    prefixed
        Whether these begin with the modality, because a name is that of features of two.
    """

    names: dict[str, np.ndarray]
    prefixed: bool


@dataclass(frozen=True)
class Part:
    """Where a modality is in the table.

    Attributes
    ----------
    name
        Of the modality.
    cells
        Row of each of its cells; empty if the data does not have the modality at all.
    features
        Columns of its features.
    """

    name: str
    cells: np.ndarray
    features: slice


@dataclass(frozen=True)
class JoinedCounts:
    """Counts of several modalities as one AnnData, in ``X``; 0 in cells that lack a modality.

    Attributes
    ----------
    adata
        Cells of the MuData x features of all modalities, whose names are in ``var["feature_types"]``; counts and, if a
        modality has one, the mask in ``layers["observed"]`` are sparse where one modality's are.
    parts
        Where each modality is.
    present
        Which cells have each modality, ``(cells, modalities)``.
    features
        Names by which a model knows the features again.
    """

    adata: AnnData
    parts: tuple[Part, ...]
    present: np.ndarray
    features: KnownFeatures

    @property
    def has_mask(self) -> bool:
        """Whether a modality has a mask of its own."""
        return JOINED_MASK in self.adata.layers

    @property
    def mask(self) -> Matrix:
        """True where a cell has a count; takes no memory unless modalities have masks of their own."""
        if self.has_mask:
            return self.adata.layers[JOINED_MASK]
        groups = np.repeat(
            np.arange(len(self.parts)), [part.features.stop - part.features.start for part in self.parts]
        )
        return BlockMask(self.present, groups)


def layers_of(argument: str, layers: Layers, names: Sequence[str]) -> dict[str, str | None]:
    """The layer of each modality; an error names one that is not among them.

    Examples
    --------
    >>> layers_of("layer", {"prot": "raw"}, ["rna", "prot"])
    {'rna': None, 'prot': 'raw'}
    """
    if not isinstance(layers, Mapping):
        layers = dict.fromkeys(names, layers)
    unknown = [name for name in layers if name not in names]
    if unknown:
        raise KeyError(f"`{argument}` names {', '.join(map(repr, unknown))}, but counts are in {', '.join(names)}.")
    return {name: layers.get(name) for name in names}


def join_modalities(
    mdata: MuData,
    names: Sequence[str],
    layer: Layers = None,
    mask_layer: Layers = None,
    known: KnownFeatures | None = None,
) -> JoinedCounts:
    """Counts of several modalities side by side, a row for each cell of the MuData.

    Parameters
    ----------
    mdata
        MuData. A modality may have some of its cells only.
    names
        Modalities with counts.
    layer, mask_layer
        Where in them counts and mask are.
    known
        Features of the model that the data is for: then whole modalities, and masks, may be missing. Names of features
        begin with the modality, ``"prot:CD4"``, if theirs do; without a model, if a name is in two modalities.

    Examples
    --------
    >>> import mudata, numpy as np, pandas as pd
    >>> from anndata import AnnData
    >>> cells = pd.DataFrame(index=["a", "b", "c"])
    >>> rna = AnnData(np.ones((3, 2)), obs=cells, var=pd.DataFrame(index=["CD4", "CD8A"]))
    >>> prot = AnnData(np.full((1, 1), 7.0), obs=cells[1:2], var=pd.DataFrame(index=["CD4"]))
    >>> joined = join_modalities(mudata.MuData({"rna": rna, "prot": prot}), ["rna", "prot"])
    >>> joined.adata.to_df()["prot:CD4"].tolist(), joined.present[:, 1].tolist()
    ([0.0, 7.0, 0.0], [False, True, False])
    """
    layers, mask_layers = layers_of("layer", layer, names), layers_of("mask_layer", mask_layer, names)
    if not mdata.obs_names.is_unique:
        raise ValueError("mdata.obs_names are not unique: call mdata.obs_names_make_unique() first.")
    features: dict[str, np.ndarray] = {}
    counts: list[Matrix] = []
    masks: list[Matrix | None] = []
    places: list[np.ndarray] = []
    for name in names:
        if known is not None and name not in mdata.mod:
            features[name] = known.names[name]
            counts.append(sp.csr_matrix((mdata.n_obs, len(features[name])), dtype=np.float32))
            masks.append(None)
            places.append(np.empty(0, dtype=int))
            continue
        part = mdata.mod[name]
        if part.isbacked:
            raise ValueError(f"Modality {name!r} is in a file: counts of several modalities have to be in memory.")
        place = mdata.obs_names.get_indexer(part.obs_names)
        if (place < 0).any() or len(np.unique(place)) < len(place):
            raise ValueError(
                f"Modality {name!r} has cells that the MuData does not have, or twice: call mdata.update()."
            )
        features[name] = np.asarray(part.var_names, dtype=object)
        counts.append(_in_rows(_read(part, layers[name], None if known else "layer"), place, mdata.n_obs))
        masks.append(_mask_of(part, name, mask_layers[name], known is not None))
        places.append(place)

    if known is not None and not known.prefixed:
        # A feature that the model does not know in this modality is not taken for one of another that has its name.
        for name, own in features.items():
            is_known = np.isin(own.astype(str), np.asarray(known.names[name]).astype(str))
            features[name] = np.where(is_known, own, np.array([f"{name}:{feature}" for feature in own], dtype=object))
    everything = np.concatenate(list(features.values()))
    prefixed = len(np.unique(everything)) < len(everything) if known is None else known.prefixed
    if prefixed:
        absent = set() if known is None else set(names) - set(mdata.mod)
        features = {
            name: own if name in absent else np.array([f"{name}:{feature}" for feature in own], dtype=object)
            for name, own in features.items()
        }
    ends = np.cumsum([len(own) for own in features.values()])
    parts = tuple(
        Part(name, place, slice(int(end) - len(features[name]), int(end)))
        for name, place, end in zip(names, places, ends, strict=True)
    )
    present = np.zeros((mdata.n_obs, len(names)), dtype=bool)
    for k, place in enumerate(places):
        present[place, k] = True
    var = pd.DataFrame(
        {MODALITY_COLUMN: np.repeat(list(names), [len(own) for own in features.values()])},
        index=np.concatenate(list(features.values())),
    )
    adata = AnnData(_side_by_side(counts), obs=pd.DataFrame(index=mdata.obs_names), var=var)
    if any(mask is not None for mask in masks):
        whole = [
            np.ones((len(place), part.features.stop - part.features.start), dtype=bool) if mask is None else mask
            for mask, place, part in zip(masks, places, parts, strict=True)
        ]
        spread = [_in_rows(mask, place, mdata.n_obs) for mask, place in zip(whole, places, strict=True)]
        adata.layers[JOINED_MASK] = _side_by_side(spread)
    return JoinedCounts(adata, parts, present, KnownFeatures(features, prefixed))


def _read(part: AnnData, layer: str | None, argument: str | None) -> Matrix:
    matrix = as_matrix(get_matrix(part, layer, argument), matrix_name(layer))
    return by_rows(matrix[:] if isinstance(matrix, DaskMatrix) else matrix)  # several are read in memory


def _mask_of(part: AnnData, name: str, mask_layer: str | None, is_query: bool) -> Matrix | None:
    if mask_layer is None:
        return None
    if is_query and mask_layer not in part.layers:
        warnings.warn(
            f"The model was set up with mask_layer={mask_layer!r}, which modality {name!r} does not have: all of its counts, "
            "zeros too, are taken as observed.",
            stacklevel=2,
        )
        return None
    return _read(part, mask_layer, "mask_layer")


def _in_rows(matrix: Matrix, place: np.ndarray, n_rows: int) -> Matrix:
    """The rows of a matrix in their places among others, which are 0."""
    if np.array_equal(place, np.arange(n_rows)):
        return matrix
    if is_sparse(matrix):
        ones = np.ones(len(place), dtype=matrix.dtype)
        return sp.csr_matrix((ones, (place, np.arange(len(place)))), shape=(n_rows, len(place))) @ matrix
    spread = np.zeros((n_rows, matrix.shape[1]), dtype=matrix.dtype)
    spread[place] = matrix
    return spread


def _side_by_side(matrices: list[Matrix]) -> np.ndarray | sp.csr_matrix:
    """Sparse where one of them is."""
    if any(is_sparse(matrix) for matrix in matrices):
        return sp.csr_matrix(sp.hstack([sp.csr_matrix(matrix) for matrix in matrices], format="csr"))
    return np.hstack([dense(matrix) for matrix in matrices])
