"""Settings, names, arrays and tables as JSON and back: data only, so that reading a file cannot run anything.

What JSON has no word for is an object with one key that begins with ``$`` and says what it is. Parts of the user's own
(backbones, heads, schedules) are stored by name and settings; their code has to be there when they are read, and is looked
for among the classes that are defined already: nothing is imported because a file asks for it.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
import torch

from sccountsdiff.diffusion import Schedule
from sccountsdiff.nn import Backbone, Head

PARTS: dict[str, type] = {"backbone": Backbone, "head": Head, "schedule": Schedule}
"""Kinds of parts that users may bring."""


def to_json(value: Any, where: str = "value") -> Any:
    """A value in terms of JSON.

    Parameters
    ----------
    value
        Numbers, text, lists, tuples, dicts, arrays, tensors, tables, and parts of a model.
    where
        What it is, for the error message.

    Returns
    -------
    What :func:`json.dumps` takes, NaN and infinities excepted by words.

    Examples
    --------
    >>> to_json({"shape": (2, 3), "types": np.array(["B", "T"])})
    {'shape': {'$tuple': [2, 3]}, 'types': {'$array': {'dtype': '<U1', 'values': ['B', 'T']}}}
    >>> from_json(to_json(math.nan))
    nan
    """
    if value is None or isinstance(value, bool | int | str) and type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    if isinstance(value, np.generic):
        return {"$scalar": _array(np.asarray(value), where)}
    if isinstance(value, np.ndarray):
        return {"$array": _array(value, where)}
    if isinstance(value, torch.Tensor):
        return {"$tensor": _array(value.detach().cpu().numpy(), where)}
    if isinstance(value, pd.DataFrame):
        columns = [to_json(value.iloc[:, i].to_numpy(), f"{where}[{name!r}]") for i, name in enumerate(value)]
        index = {"values": to_json(value.index.to_numpy(), where), "name": to_json(value.index.name, where)}
        return {"$table": {"names": to_json(list(value), where), "columns": columns, "index": index}}
    if isinstance(value, Mapping):
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return {key: to_json(item, f"{where}[{key!r}]") for key, item in value.items()}
        return {"$dict": [[to_json(k, where), to_json(v, f"{where}[{k!r}]")] for k, v in value.items()]}
    if isinstance(value, list):
        return [to_json(item, f"{where}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, tuple):
        return {"$tuple": to_json(list(value), where)}
    for kind, base in PARTS.items():
        if isinstance(value, type) and issubclass(value, base):
            return {"$class": {"kind": kind, "name": _full_name(value)}}
        if isinstance(value, base):
            settings = {name: to_json(item, f"{where}.{name}") for name, item in vars(value).items()}
            return {"$part": {"kind": kind, "name": _full_name(type(value)), "settings": settings}}
    raise TypeError(
        f"{where} is of type {type(value).__module__}.{type(value).__qualname__}, which cannot be saved as plain data: use "
        "numbers, text, arrays, or lists and dicts of them."
    )


def from_json(value: Any) -> Any:
    """The value that :func:`to_json` was given.

    Parameters
    ----------
    value
        What :func:`json.loads` returns.

    Returns
    -------
    The value; a ``ValueError`` if it is not in this format, or a part of it is not defined here.

    Examples
    --------
    >>> from_json(to_json({1: np.float32(0.1), "all": [True, None, 2]}))
    {1: np.float32(0.1), 'all': [True, None, 2]}
    """
    if isinstance(value, list):
        return [from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    tag = next(iter(value), "")
    if not tag.startswith("$"):
        return {key: from_json(item) for key, item in value.items()}
    if len(value) != 1 or tag not in _READERS:
        raise ValueError(f"unknown kind of value {tag!r}")
    return _READERS[tag](value[tag])


def _array(array: np.ndarray, where: str) -> dict[str, Any]:
    """Numbers as their bytes, which are exact and short; text as text."""
    if array.dtype.kind in "biufcmM":
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        content = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
        return {"dtype": array.dtype.str, "shape": list(array.shape), "bytes": content}
    if array.dtype.kind not in "OU":
        raise TypeError(f"{where} is an array of type {array.dtype}, which cannot be saved as plain data.")
    values = [to_json(item, f"{where}[...]") for item in array.ravel().tolist()]
    shape = {} if array.ndim == 1 else {"shape": list(array.shape)}
    return {"dtype": array.dtype.str.replace("|", ""), "values": values} | shape


def _read_array(content: dict[str, Any]) -> np.ndarray:
    dtype = np.dtype(content["dtype"])
    if "bytes" in content:
        if dtype.kind not in "biufcmM":
            raise ValueError(f"no array of numbers has the type {dtype}")
        return np.frombuffer(base64.b64decode(content["bytes"]), dtype).reshape(content["shape"]).copy()
    if dtype.kind not in "OU":
        raise ValueError(f"no array of text has the type {dtype}")
    array = np.empty(len(content["values"]), dtype)
    array[:] = from_json(content["values"])
    return array.reshape(content.get("shape", -1))


def _read_table(content: dict[str, Any]) -> pd.DataFrame:
    index = pd.Index(from_json(content["index"]["values"]), name=from_json(content["index"]["name"]))
    columns = [pd.Series(from_json(column), index=index) for column in content["columns"]]
    table = pd.concat(columns, axis=1) if columns else pd.DataFrame(index=index)
    table.columns = from_json(content["names"])
    return table


def _full_name(part: type) -> str:
    return f"{part.__module__}.{part.__qualname__}"


def find_class(kind: str, name: str) -> type:
    """The class of a part that was saved: one with that full name or else, as of a notebook, with that name.

    Examples
    --------
    >>> find_class("schedule", "sccountsdiff.diffusion.schedules.Fisher").__name__
    'Fisher'
    """
    defined = list(_subclasses(PARTS[kind]))
    short = name.rpartition(".")[2]
    for same in (lambda part: _full_name(part) == name, lambda part: part.__name__ == short):
        found = [part for part in defined if same(part)]
        if found:
            return found[-1]  # of a class that was defined again, the newest
    raise ValueError(
        f"it has a {kind} of its own, the class {name}, which is not defined here: import the module that defines it first"
    )


def _subclasses(base: type) -> Iterator[type]:
    part: type
    for part in base.__subclasses__():
        yield part
        yield from _subclasses(part)


def _read_part(content: dict[str, Any]) -> Any:
    part = find_class(content["kind"], content["name"])
    thing: Any = object.__new__(part)
    vars(thing).update({name: from_json(item) for name, item in content["settings"].items()})
    return thing


_READERS: dict[str, Callable[[Any], Any]] = {
    "$float": lambda text: {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[text],
    "$scalar": lambda content: _read_array(content)[()],
    "$array": _read_array,
    "$tensor": lambda content: torch.from_numpy(_read_array(content)),
    "$table": _read_table,
    "$dict": lambda items: {from_json(key): from_json(item) for key, item in items},
    "$tuple": lambda items: tuple(from_json(items)),
    "$class": lambda content: find_class(content["kind"], content["name"]),
    "$part": _read_part,
}
