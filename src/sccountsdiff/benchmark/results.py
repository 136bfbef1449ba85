"""Result files: one for each piece of work, found again by what it was made from."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from anndata import AnnData
from scipy import sparse

from sccountsdiff.benchmark.baselines.covariate_codes import kinds
from sccountsdiff.files import replacing


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
    settings = {name: digest_of(value) if isinstance(value, Path) else value for name, value in settings.items()}
    return {"class": type(thing).__name__, **settings}


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
            self._memory[key] = json.loads((self.folder / f"{key}.json").read_text())["rows"]
        rows = self._memory.get(key)
        return None if rows and self.retry_failed and any(row["error"] for row in rows) else rows

    def save(self, configuration: dict, rows: list[dict]) -> None:
        """Keep rows for a configuration."""
        key = _key(configuration)
        self._memory[key] = rows
        if self.folder is not None:
            with replacing(self.folder / f"{key}.json") as beside:
                beside.write_text(json.dumps({"configuration": configuration, "rows": rows}, default=repr, indent=1))


def _key(configuration: dict) -> str:
    text = json.dumps(configuration, default=repr, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:20]
