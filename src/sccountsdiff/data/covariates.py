"""Covariates of cells: what they may be, and the codes and numbers that stand for them."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real

import numpy as np
import pandas as pd

from sccountsdiff.data.messages import listing, some_of, suggestion


def check_covariates(
    table: pd.DataFrame,
    keys: Sequence[str],
    *,
    continuous: bool = False,
    argument: str | None = None,
    name: str = "adata.obs",
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
    argument
        Argument of the set-up that named the columns, for messages; `None`: a model asks for them.
    name
        What to call the table in messages.

    Raises
    ------
    KeyError
        If a key is not a column of the table.
    ValueError
        If a covariate has missing values, or a continuous one is not numeric and finite.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"donor": ["a", "b"], "age": [31.0, 47.0]})
    >>> check_covariates(table, ["donor"], argument="batch_key")
    >>> check_covariates(table, ["age"], continuous=True)
    """
    lacking = [key for key in keys if key not in table.columns]
    if lacking:
        raise KeyError(
            f"{argument or 'covariates of the model'}: {', '.join(map(repr, lacking))} not in {name}, which has "
            f"{listing(table.columns)}." + "".join(suggestion(key, table.columns) for key in lacking)
        )
    origin = f" ({argument})" if argument else ""
    for key in keys:
        column = table[key]
        if column.ndim > 1:
            raise ValueError(f"{name} has {column.shape[1]} columns named {key!r}{origin}: rename or drop all but one.")
        n_missing = int(column.isna().sum())
        if n_missing:
            raise ValueError(
                f"{name}[{key!r}]{origin} is missing in {n_missing} of {len(table)} cells: fill it in, or leave these "
                "cells out."
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
        n_infinite = int(np.isinf(column.to_numpy(dtype=np.float64)).sum())
        if n_infinite:
            raise ValueError(f"{name}[{key!r}]{origin} is infinite in {n_infinite} of {len(table)} cells.")


def _check_kind(column: pd.Series, name: str) -> None:
    """Refuse categories that are neither text nor numbers: dates, intervals and the like change on the way through files."""
    is_categorical = isinstance(column.dtype, pd.CategoricalDtype)
    categories = column.cat.categories if is_categorical else pd.Index(column.unique())
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
    """Codes of categorical covariates, ``(cells, covariates)``; unseen categories get the code after the last one."""
    codes = np.zeros((len(obs), len(categories)), dtype=np.int64)
    for k, (key, known) in enumerate(categories.items()):
        values = obs[key].astype(object).to_numpy()
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
    alike = next((value for value in unseen if str(value) in kinds), None)
    if alike is None:
        return f"{message} Pass unseen_to_null=True to treat these cells as having no covariates."
    return (
        f"{message} The types differ: {alike!r} is of type {type(alike).__name__}, while the model knows it as "
        f"{kinds[str(alike)]}. Convert the column."
    )


def continuous_values(obs: pd.DataFrame, keys: Sequence[str]) -> np.ndarray:
    """Values of continuous covariates, ``(cells, covariates)``.

    In double precision: of dates in seconds or positions in a genome, single precision would leave nothing once their
    mean is subtracted. The module does that and returns to single precision only then.

    Examples
    --------
    >>> import pandas as pd
    >>> continuous_values(pd.DataFrame({"age": [31, 47]}), ["age"]).tolist()
    [[31.0], [47.0]]
    """
    return obs[list(keys)].to_numpy(dtype=np.float64)


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
