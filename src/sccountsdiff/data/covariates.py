"""Covariates of cells: what they may be, and the codes and numbers that stand for them."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real

import numpy as np
import pandas as pd

from sccountsdiff.data.messages import listing, some_of, suggestion

MAX_SEEN = 10_000
"""Cells whose continuous covariates a model remembers."""


def check_covariates(
    table: pd.DataFrame,
    keys: Sequence[str],
    *,
    continuous: bool = False,
    size_factor_key: str | None = None,
    argument: str | None = None,
    name: str = "adata.obs",
    may_lack: bool = False,
    advice: str = "",
) -> None:
    """Refuse covariates that are not columns of a table, have missing values, or should be finite numbers but are not.

    Parameters
    ----------
    table
        A row for each cell.
    keys
        Columns.
    continuous
        Whether they must be finite numbers.
    size_factor_key
        The one of them that must be above 0, as its log is taken.
    argument
        Argument of the set-up that named the columns, for messages; `None`: a model asks for them.
    name
        What to call the table in messages.
    may_lack
        Whether columns may be absent, and values missing.
    advice
        What else to do about those, for messages.

    Raises
    ------
    KeyError
        If a key is not a column of the table.
    ValueError
        If a covariate has missing values, a continuous one is not numeric and finite, or a size factor not above 0.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"donor": ["a", "b"], "age": [31.0, 47.0]})
    >>> check_covariates(table, ["donor"], argument="batch_key")
    >>> check_covariates(table, ["age"], continuous=True)
    """
    lacking = [key for key in keys if key not in table.columns]
    if lacking and not may_lack:
        raise KeyError(
            f"{argument or 'covariates of the model'}: {', '.join(map(repr, lacking))} not in {name}, which has "
            f"{listing(table.columns)}." + "".join(suggestion(key, table.columns) for key in lacking) + advice
        )
    origin = f" ({argument})" if argument else ""
    for key in keys:
        if key in lacking:
            continue
        column = table[key]
        if column.ndim > 1:
            raise ValueError(f"{name} has {column.shape[1]} columns named {key!r}{origin}: rename or drop all but one.")
        n_missing = int(column.isna().sum())
        if n_missing and not may_lack:
            raise ValueError(
                f"{name}[{key!r}]{origin} is missing in {n_missing} of {len(table)} cells: fill it in, or leave these "
                f"cells out.{advice}"
            )
        if not continuous:
            _check_kind(column, f"{name}[{key!r}]{origin}")
            continue
        if not pd.api.types.is_numeric_dtype(column) or pd.api.types.is_complex_dtype(column):
            otherwise = ", or pass it in categorical_covariate_keys" if argument else ""
            raise ValueError(
                f"{name}[{key!r}]{origin} is not numeric, its dtype is {column.dtype}: convert it with "
                f"pandas.to_numeric{otherwise}."
            )
        n_infinite = int(np.isinf(column.to_numpy(dtype=np.float64, na_value=np.nan)).sum())
        if n_infinite:
            raise ValueError(f"{name}[{key!r}]{origin} is infinite in {n_infinite} of {len(table)} cells.")
        n_not_above = int((column <= 0).sum())
        if key == size_factor_key and n_not_above:
            raise ValueError(
                f"{name}[{key!r}] (size_factor_key) is not above 0 in {n_not_above} of {len(table)} cells: leave these "
                "cells out."
            )


def _check_kind(column: pd.Series, name: str) -> None:
    """Refuse categories that are neither text nor numbers: dates, intervals and the like change on the way through files."""
    is_categorical = isinstance(column.dtype, pd.CategoricalDtype)
    categories = column.cat.categories if is_categorical else pd.Index(column.dropna().unique())
    for value in categories:
        if not isinstance(value, str | bool | Real | np.bool_):
            raise ValueError(
                f"{name} holds {value!r}, of type {type(value).__name__}: categories must be text or numbers. Convert it "
                "with .astype(str)."
            )


def check_categories(table: pd.DataFrame, keys: Sequence[str], argument: str) -> None:
    """Refuse categories that no cell has: a model would know them by name and have learnt nothing of them.

    Examples
    --------
    >>> import pandas as pd
    >>> donors = pd.Series(["a", "b"], dtype="category")
    >>> check_categories(pd.DataFrame({"donor": donors}), ["donor"], "batch_key")
    >>> check_categories(pd.DataFrame({"donor": donors[:1]}), ["donor"], "batch_key")
    Traceback (most recent call last):
    ...
    ValueError: adata.obs['donor'] (batch_key) has categories without cells: 'b'. Drop them with
    adata.obs['donor'] = adata.obs['donor'].cat.remove_unused_categories().
    """
    for key in keys:
        if not isinstance(table[key].dtype, pd.CategoricalDtype):
            continue
        unused = table[key].cat.categories.difference(pd.Index(table[key].unique()))
        if len(unused):
            column = f"adata.obs[{key!r}]"
            raise ValueError(
                f"{column} ({argument}) has categories without cells: {some_of(list(map(repr, unused)), 10)}. Drop them "
                f"with {column} = {column}.cat.remove_unused_categories()."
            )


def encode(obs: pd.DataFrame, categories: dict[str, np.ndarray], unseen_to_null: bool = False) -> np.ndarray:
    """Codes of categorical covariates, ``(cells, covariates)``; unseen categories get the code after the last one.

    So do missing ones and columns that are not there, if ``unseen_to_null``.
    """
    codes = np.zeros((len(obs), len(categories)), dtype=np.int64)
    for k, (key, known) in enumerate(categories.items()):
        values = obs.reindex(columns=[key])[key].astype(object).to_numpy()
        column = pd.Index(known.astype(object)).get_indexer(values)
        if (column < 0).any() and not unseen_to_null:
            raise ValueError(_about_unseen(key, pd.unique(values[column < 0]).tolist(), known.tolist()))
        codes[:, k] = np.where(column < 0, len(known), column)
    return codes


def _about_unseen(key: str, unseen: list, known: list) -> str:
    message = (
        f"adata.obs[{key!r}] holds categories that the model was not trained on: "
        f"{some_of(sorted(map(repr, unseen)), 10)}. It knows {some_of(list(map(repr, known)), 10)}."
    )
    kinds = {str(category): type(category).__name__ for category in known}
    alike = _alike(unseen, known)
    if alike is None:
        return f"{message} Pass unseen_to_null=True to treat these cells as having no covariates."
    return (
        f"{message} The types differ: {alike!r} is of type {type(alike).__name__}, while the model knows it as "
        f"{kinds[str(alike)]}. Convert the column."
    )


def _alike(unseen: Sequence, known: Sequence) -> object | None:
    """One that is written like a known category, as the number 1 and the text "1" are."""
    written = set(map(str, known))
    return next((value for value in unseen if str(value) in written), None)


def check_new_categories(obs: pd.DataFrame, categories: dict[str, np.ndarray]) -> None:
    """Refuse new categories that are known ones of another type.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> check_new_categories(pd.DataFrame({"batch": ["1", "2"]}), {"batch": np.array(["1"])})
    >>> check_new_categories(pd.DataFrame({"batch": [1, 2]}), {"batch": np.array(["1"])})
    Traceback (most recent call last):
    ...
    ValueError: adata.obs['batch'] holds categories that the model was not trained on: 1, 2. It knows '1'. The types differ:
    1 is of type int, while the model knows it as str. Convert the column.
    """
    for key, known in categories.items():
        if key in obs:
            values = pd.unique(obs[key].dropna().astype(object))
            unseen = [value for value in values if value not in known.tolist()]
            if _alike(unseen, known.tolist()) is not None:
                raise ValueError(_about_unseen(key, unseen, known.tolist()))


def continuous_values(obs: pd.DataFrame, keys: Sequence[str]) -> np.ndarray:
    """Values of continuous covariates, ``(cells, covariates)``.

    In double precision: of dates in seconds or positions in a genome, single precision would leave nothing once their
    mean is subtracted. The module does that and returns to single precision only then. NaN where there is no value.

    Examples
    --------
    >>> import pandas as pd
    >>> continuous_values(pd.DataFrame({"age": [31, 47]}), ["age"]).tolist()
    [[31.0], [47.0]]
    """
    return obs.reindex(columns=list(keys)).to_numpy(dtype=np.float64, na_value=np.nan)


def seen_covariates(codes: np.ndarray, values: np.ndarray) -> dict[str, np.ndarray]:
    """Combinations of covariates that cells have, and how many have each: from these new ones can be drawn.

    Continuous ones seldom come twice: then at most 10,000 cells are kept, spread over all.

    Parameters
    ----------
    codes, values
        Of categorical and continuous covariates, a row for each cell.

    Returns
    -------
    ``codes``, ``values`` and ``n_cells``, a row for each combination.

    Examples
    --------
    >>> import numpy as np
    >>> seen = seen_covariates(np.array([[1], [0], [1]]), np.zeros((3, 0)))
    >>> seen["codes"].tolist(), seen["n_cells"].tolist()
    ([[0], [1]], [1, 2])
    """
    if values.shape[1]:
        some = np.unique(np.linspace(0, len(codes) - 1, min(len(codes), MAX_SEEN)).astype(int))
        codes, values = codes[some], values[some]
    both = np.hstack([codes, values])
    _, first, n_cells = np.unique(both, axis=0, return_index=True, return_counts=True)
    return {"codes": codes[first], "values": values[first], "n_cells": n_cells}


def location_and_scale(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each covariate; a deviation that is rounding error alone counts as 1.

    Examples
    --------
    >>> import numpy as np
    >>> location_and_scale(np.array([[1.0, 0.1], [3.0, 0.1], [5.0, 0.1]]))[1].round(2).tolist()
    [1.63, 1.0]
    """
    unit = np.abs(values).max(0, initial=0.0)
    unit = np.where(unit > 0, unit, 1.0)  # squares of numbers beyond 1e154, or below its inverse, are none
    location, scale = (values / unit).mean(0), (values / unit).std(0)
    return location * unit, np.where(scale > 1e-12 * np.abs(location), scale * unit, 1.0)
