"""Reading what imputation wrote into an AnnData."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import scipy.sparse as sp
from anndata import AnnData


def note_of(adata: AnnData, key: str) -> Mapping:
    """What was noted with the result, such as the layers of counts and mask; empty without a note."""
    note = adata.uns.get("sccountsdiff", {}).get(key)
    return note if isinstance(note, Mapping) else {}


def in_memory(matrix):
    """The matrix, computed if it is one of Dask's."""
    return matrix.compute() if hasattr(matrix, "compute") else matrix


def spread_of(adata: AnnData, key: str):
    """The layer with the standard deviation."""
    if f"{key}_sd" not in adata.layers:
        raise KeyError(
            f"Layer '{key}_sd' is not in adata.layers: `model.impute(key_added={key!r})` writes it unless `n_samples` is "
            "1."
        )
    return in_memory(adata.layers[f"{key}_sd"])


def gene_values(adata: AnnData, matrix, gene: str) -> np.ndarray:
    """One value for each cell."""
    if gene not in adata.var_names:
        raise KeyError(f"Gene {gene!r} is not in adata.var_names.")
    column = in_memory(matrix[:, [adata.var_names.get_loc(gene)]])
    return (column.toarray() if sp.issparse(column) else np.asarray(column)).ravel()
