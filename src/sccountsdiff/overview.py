"""What is in a data set or in a saved model, in plain values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from anndata import AnnData
from mudata import MuData

from sccountsdiff import __version__
from sccountsdiff.compat import layer_names, setup_args

if TYPE_CHECKING:
    from sccountsdiff.model import CountsDiffImputer

ROWS = 4096
"""Rows of a dense matrix that are looked at together."""


def describe_data(data: AnnData | MuData) -> dict[str, Any]:
    """Cells, genes, matrices with the share that is missing, columns of ``obs``, and what was imputed.

    Examples
    --------
    >>> import sccountsdiff
    >>> about = describe_data(sccountsdiff.datasets.pbmc68k())
    >>> about["cells"], about["genes"], about["obs"]
    (700, 765, {'cell_type': '10 categories'})
    >>> about["matrices"]["X"]["missing_share"]
    0.0
    """
    about = {"kind": type(data).__name__, "cells": data.n_obs, "genes": data.n_vars}
    about["obs"] = {str(name): _describe_column(column) for name, column in data.obs.items()}
    if isinstance(data, MuData):
        return about | {"modalities": {name: describe_data(part) for name, part in data.mod.items()}}
    matrices = {"X": data.X, **{name: data.layers[name] for name in layer_names(data)}}
    about["matrices"] = {name: _describe_matrix(m) for name, m in matrices.items() if m is not None}
    notes = data.uns.get("sccountsdiff", {})
    about["made_by_sccountsdiff"] = {name: plain(note) for name, note in notes.items() if isinstance(note, Mapping)}
    return about


def describe_model(model: CountsDiffImputer) -> dict[str, Any]:
    """Genes, covariates, set-up, network, training and versions of a model.

    Examples
    --------
    >>> about = describe_model(model)
    >>> about["genes"], about["training"]["epochs"]
    (25, 1)
    """
    parameters = sum(weights.numel() for weights in model.module.parameters())
    arguments = {**model.init_params_["non_kwargs"], **model.init_params_["kwargs"].get("backbone_kwargs", {})}
    covariates = {name: list(map(str, known)) for name, known in model.categories.items()}
    history = {name: table.iloc[:, 0].dropna() for name, table in (model.history or {}).items()}
    training: dict[str, Any] = {"is_trained": bool(model.is_trained)}
    if history:
        training["epochs"] = max(len(losses) for losses in history.values())
        training |= {name: float(losses.iloc[-1]) for name, losses in history.items() if len(losses)}
        if len(losses := history.get("validation_loss", ())):
            training["best_validation_loss"] = float(losses.min())
    for name in ("train", "validation"):
        cells = getattr(model, f"{name}_indices", None)
        training |= {} if cells is None else {f"{name}_cells": len(cells)}
    return {
        "kind": type(model).__name__,
        "genes": len(model.gene_names),
        "covariates": covariates | dict.fromkeys(model.continuous_keys, "continuous"),
        "setup": plain({name: value for name, value in setup_args(model.registry_).items() if value}),
        "arguments": plain({name: value for name, value in arguments.items() if value is not None}),
        "parameters": parameters,
        "training": training,
        "versions": {"sccountsdiff": __version__, "scvi-tools": model.registry_["scvi_version"]},
    }


def to_text(values: Mapping[str, Any], indent: int = 0) -> str:
    """Nested values as indented lines.

    Examples
    --------
    >>> print(to_text({"cells": 3, "obs": {"type": "2 categories"}, "layers": []}))
    cells: 3
    obs:
      type: 2 categories
    layers: none
    """
    lines = []
    for name, value in values.items():
        start = f"{' ' * indent}{str(name).replace('_', ' ') if not indent else name}:"
        if isinstance(value, Mapping) and value and any(isinstance(v, Mapping) for v in value.values()):
            lines += [start, to_text(value, indent + 2)]
        elif isinstance(value, Mapping) and value:
            pairs = [f"{key}: {_text(v)}" for key, v in value.items()]
            lines += (
                [start, *(" " * (indent + 2) + text for text in pairs)]
                if indent == 0
                else [f"{start} {', '.join(pairs)}"]
            )
        else:
            lines.append(f"{start} {_text(value)}")
    return "\n".join(lines)


def _text(value: Any) -> str:
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.5g}"
    if isinstance(value, Mapping | list) and not value:
        return "none"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _describe_column(column: pd.Series) -> str:
    n_missing = int(column.isna().sum())
    is_number = pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)
    what = "numbers" if is_number else f"{column.nunique()} categories"
    return what + (f", {n_missing} missing" if n_missing else "")


def _describe_matrix(matrix: Any) -> dict[str, Any]:
    """Type of a matrix, and the shares of it that are missing (NaN), zero, or, of a mask, False."""
    size = matrix.shape[0] * matrix.shape[1]
    n_missing = n_nonzero = 0
    is_whole = True
    for values in _stored(matrix):
        missing = np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, bool)
        n_missing += int(missing.sum())
        n_nonzero += int(np.count_nonzero(values))
        is_whole &= bool((np.floor(values) == values)[~missing].all() and (values[~missing] >= 0).all())
    about = {"type": str(matrix.dtype), "sparse": sp.issparse(matrix)}
    share = lambda n: n / size if size else 0.0
    if matrix.dtype == bool:
        return about | {"false_share": share(size - n_nonzero)}
    return about | {"counts": is_whole, "missing_share": share(n_missing), "zero_share": share(size - n_nonzero)}


def _stored(matrix: Any) -> Iterator[np.ndarray]:
    """The values of a matrix, some rows at a time; of a sparse one those that are stored."""
    if sp.issparse(matrix):
        yield matrix.data
    else:
        for start in range(0, matrix.shape[0], ROWS):
            yield np.asarray(matrix[start : start + ROWS])


def plain(value: Any) -> Any:
    """The same in types that JSON has, which has no NaN.

    Examples
    --------
    >>> plain({"scores": np.array([0.5, np.nan]), "method": None})
    {'scores': [0.5, None], 'method': None}
    """
    if isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        return [plain(part) for part in value]
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value if isinstance(value, bool | int | float | str | None) else str(value)
