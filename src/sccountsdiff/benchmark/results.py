"""Result files: one for each piece of work, found again by what it was made from."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import json
import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from types import CellType, CodeType, FunctionType
from typing import Any

import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from scipy import sparse

from sccountsdiff.benchmark.baselines.covariate_codes import kinds
from sccountsdiff.files import replacing, set_aside

logger = logging.getLogger("sccountsdiff")


def describe(thing: Any) -> dict[str, Any]:
    """Name and settings of a method or a missingness pattern.

    Examples
    --------
    >>> from sccountsdiff.benchmark.missingness import MCAR
    >>> describe(MCAR(0.25))
    {'class': 'MCAR', 'rate': 0.25}
    """
    if dataclasses.is_dataclass(thing):
        settings = {f.name: getattr(thing, f.name) for f in dataclasses.fields(thing)}
    else:
        settings = dict(vars(thing))
    code = code_digest(type(thing))
    settings = {name: by_content(value) for name, value in settings.items()}
    return {"class": type(thing).__name__, **settings} | ({} if code is None else {"code": code})


def by_content(value: Any) -> Any:
    """A setting as results go by it: files, arrays, tables and code by what is in them, not by what they look like.

    Examples
    --------
    >>> long = np.zeros(10_000)
    >>> before = by_content(long)
    >>> long[5_000] = 1
    >>> before == by_content(long), by_content(3)
    (False, 3)
    """
    if isinstance(value, Path):
        return digest_of(value)
    if isinstance(value, Mapping):
        return {str(key): by_content(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [by_content(item) for item in value]
    if callable(value) and code_digest(value) is not None:
        return code_digest(value)
    if sparse.issparse(value):
        value = value.tocsr()
        return by_content([list(value.shape), value.data, value.indices, value.indptr])
    if isinstance(value, pd.DataFrame | pd.Series | pd.Index):
        return by_content([value.to_numpy(), list(getattr(value, "columns", ()))])
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray):
        content = value.tobytes() if value.dtype.kind != "O" else repr(value.tolist()).encode()
        return f"{value.dtype}{list(value.shape)} {hashlib.sha256(content).hexdigest()[:16]}"
    return value


def code_digest(thing: Any) -> str | None:
    """A short hash of the code of a class or a function, and of what it uses of the user's own; ``None`` if it is not.

    The code of this package, and of others that are installed, has a version.

    Examples
    --------
    >>> code_digest(describe) is None  # of this package
    True
    """
    if not _is_own(thing):
        return None
    parts, queue, seen = [], [(getattr(thing, "__qualname__", ""), thing)], set()
    while queue:
        name, item = queue.pop(0)
        item = item.__func__ if isinstance(item, classmethod | staticmethod) else item
        item = inspect.unwrap(item) if isinstance(item, FunctionType) else item
        if id(item) in seen or (isinstance(item, type | FunctionType) and not _is_own(item)):
            continue
        seen.add(id(item))
        if isinstance(item, property):
            queue += [(name, part) for part in (item.fget, item.fset) if part is not None]
        elif isinstance(item, type):
            own = [base for base in item.__mro__ if _is_own(base)]
            members = [(key, value) for base in own for key, value in sorted(vars(base).items())]
            # Python notes things of its own in a class, some of them only when it is used.
            is_code = lambda key, value: not key.startswith(("__", "_abc_")) or isinstance(value, FunctionType)
            queue += [(f"{name}.{key}", value) for key, value in members if is_code(key, value)]
        elif isinstance(item, FunctionType):
            parts.append(f"{name}:{_instructions(item.__code__)}")
            cells = [cell.cell_contents for cell in item.__closure__ or () if cell != CellType()]
            used = {key: item.__globals__[key] for key in _names(item.__code__) if key in item.__globals__}
            queue += [*sorted(used.items()), *((name, content) for content in cells)]
            queue += [(name, default) for default in item.__defaults__ or ()]
        elif isinstance(item, functools.partial):
            queue += [(name, part) for part in (item.func, *item.args, *item.keywords.values())]
        elif type(item) in _CONSTANTS:
            parts.append(f"{name}={by_content(item)!r}")
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


_CONSTANTS = (bool, int, float, str, bytes, tuple, list, dict, np.ndarray, torch.Tensor, type(None))
"""What code goes by, wherever it is; objects of other types are taken for its state."""


def _is_own(thing: Any) -> bool:
    """Whether code is neither of this package nor of one that is installed."""
    module = getattr(thing, "__module__", None) or ""
    if not isinstance(thing, type | FunctionType | functools.partial):
        return False
    if isinstance(thing, functools.partial):
        return _is_own(thing.func)
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    is_installed = any(part in file for part in ("site-packages", "dist-packages"))
    return not (module.split(".")[0] in ("sccountsdiff", *sys.stdlib_module_names - {"__main__"}) or is_installed)


def _names(code: CodeType) -> set[str]:
    inner = [_names(part) for part in code.co_consts if isinstance(part, CodeType)]
    return set(code.co_names).union(*inner)


def _instructions(code: CodeType) -> str:
    """What a function does, whatever it looks like, wherever it stands."""
    constants = [_instructions(part) if isinstance(part, CodeType) else repr(part) for part in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {code.co_varnames} {constants}"


def digest_of(path: Path) -> str | None:
    """A short hash of what is in a file or folder, or ``None`` if nothing is there.

    Results go by it, so that they are found again however the path is spelt, and not after its contents have changed.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "model").write_text("weights")
    ...     before = digest_of(Path(folder))
    ...     _ = Path(folder, "model").write_text("others")
    ...     before == digest_of(Path(folder)), digest_of(Path(folder, "nothing"))
    (False, None)
    """
    if not path.exists():
        return None
    digest = hashlib.sha256()
    for file in [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file()):
        with file.open("rb") as contents:
            digest.update(f"{file.relative_to(path)}\0{hashlib.file_digest(contents, 'sha256').hexdigest()}\0".encode())
    return digest.hexdigest()[:16]


def label(thing: Any, name: str) -> str:
    """Name in tables: settings are shown where they are not the default ones.

    Examples
    --------
    >>> from sccountsdiff.benchmark.missingness import MCAR
    >>> label(MCAR(0.25), "mcar"), label(MCAR(), "mcar")
    ('mcar(rate=0.25)', 'mcar')
    """
    if not dataclasses.is_dataclass(thing):
        return name
    changed = []
    for setting in dataclasses.fields(thing):
        value = getattr(thing, setting.name)
        default = setting.default_factory() if callable(setting.default_factory) else setting.default
        if value != default:
            changed.append(f"{setting.name}={str(value) if isinstance(value, Path) else value!r}")
    return f"{name}({', '.join(changed)})" if changed else name


def fingerprint(adata: AnnData, columns: list[str]) -> str:
    """A short hash of counts, gene names and columns of ``obs``; numbers and the same numbers as text are not the same.

    Examples
    --------
    >>> import numpy as np
    >>> from anndata import AnnData
    >>> cells = [AnnData(np.array([[1.0, x]]), obs={"type": ["a"]}) for x in (2, 2, 3)]
    >>> first, same, other = (fingerprint(c, ["type"]) for c in cells)
    >>> first == same, first == other
    (True, False)
    """
    counts = sparse.csr_matrix(adata.X, dtype=np.float64)
    counts.sum_duplicates()
    counts.eliminate_zeros()
    digest = hashlib.sha256(repr(counts.shape).encode())
    for array in (counts.data, counts.indices.astype(np.int64), counts.indptr.astype(np.int64)):
        digest.update(array.tobytes())
    digest.update("\0".join([*adata.var_names, ""]).encode())
    categorical, _ = kinds(adata.obs[columns])  # methods treat numbers otherwise than the same numbers as text
    for key in columns:
        kind = "categorical" if key in categorical else "continuous"
        digest.update("\0".join([kind, *adata.obs[key].astype(str), ""]).encode())
    return digest.hexdigest()[:16]


def fingerprint_of_groups(adata: AnnData, batch: str | None, modality: str | None) -> str:
    """A short hash of the batches of cells and the modalities of genes, columns of ``obs`` and ``var``; either may be none.

    Examples
    --------
    >>> import numpy as np
    >>> from anndata import AnnData
    >>> cells = [AnnData(np.ones((2, 1)), obs={"batch": ["a", b]}) for b in "abb"]
    >>> one, other, same = (fingerprint_of_groups(c, "batch", None) for c in cells)
    >>> one == other, other == same
    (False, True)
    """
    columns = [
        None if key is None else list(table[key].astype(str))
        for table, key in ((adata.obs, batch), (adata.var, modality))
    ]
    return hashlib.sha256(json.dumps(columns).encode()).hexdigest()[:16]


class ResultStore:
    """Rows of finished work, in one JSON file each under a folder, or in memory only.

    A file is written in full under another name and then renamed: a run that is killed leaves no half-written result.
    Work that failed counts as finished, unless it is to be tried again.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     ResultStore(folder).save({"seed": 0}, [{"value": 1.5}])
    ...     ResultStore(folder).load({"seed": 0}), ResultStore(folder).load({"seed": 1})
    ([{'value': 1.5}], None)
    """

    def __init__(self, folder: str | Path | None, retry_failed: bool = False) -> None:
        self.folder = None if folder is None else Path(folder) / "results"
        self.retry_failed = retry_failed
        self._memory: dict[str, list[dict]] = {}
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)

    def load(self, configuration: dict) -> list[dict] | None:
        """Rows that were saved for this configuration, or ``None`` if there are none or they are to be made again."""
        key = _key(configuration)
        if key not in self._memory and self.folder is not None and (self.folder / f"{key}.json").exists():
            rows = _read_rows(self.folder / f"{key}.json")
            if rows is not None:
                self._memory[key] = rows
        rows = self._memory.get(key)
        return None if rows and self.retry_failed and any(row["error"] for row in rows) else rows

    def save(self, configuration: dict, rows: list[dict]) -> None:
        """Keep rows for a configuration."""
        key = _key(configuration)
        self._memory[key] = rows
        if self.folder is not None:
            with replacing(self.folder / f"{key}.json") as beside:
                beside.write_text(json.dumps({"configuration": configuration, "rows": rows}, default=repr, indent=1))


def _read_rows(path: Path) -> list[dict] | None:
    """Rows of a result file; one that is damaged is set aside, and what it held is made again."""
    try:
        rows = json.loads(path.read_text())["rows"]
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise ValueError("it holds no rows of results")
        return rows
    except (KeyError, OSError, RecursionError, TypeError, ValueError) as error:
        set_aside(path, error)
        return None


def _key(configuration: dict) -> str:
    text = json.dumps(configuration, default=repr, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:20]
