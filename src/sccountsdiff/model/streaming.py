"""Results that go to a file block by block: never all in memory, and found again after an interruption."""

from __future__ import annotations

import hashlib
import json
import shutil
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import scipy.sparse as sp
from anndata import AnnData
from anndata.io import sparse_dataset, write_elem

from sccountsdiff.files import check_can_write, replacing, set_aside, write_text
from sccountsdiff.io import size_of


class BlockFolder:
    """Finished blocks of a result, layers or ``"X"``, beside the file that it will be, until all of them are there.

    The same work finds its blocks again; other work, with other settings, data or weights, starts anew.

    Parameters
    ----------
    path
        The file, ``.h5ad`` or ``.zarr``; must not exist.
    work
        What tells this work from any other, as plain values.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import anndata, numpy as np, scipy.sparse
    >>> with TemporaryDirectory() as folder:
    ...     blocks = BlockFolder(f"{folder}/result.h5ad", {"seed": 0})
    ...     blocks.save(0, {"imputed": scipy.sparse.csr_matrix(np.eye(2, dtype=np.float32))})
    ...     again = BlockFolder(f"{folder}/result.h5ad", {"seed": 0})
    ...     again.is_done(0), again.is_done(1)
    ...     names = anndata.AnnData(shape=(2, 2))
    ...     again.finish(names.obs, names.var, {})
    ...     anndata.read_h5ad(f"{folder}/result.h5ad").layers["imputed"].toarray().tolist()
    (True, False)
    [[1.0, 0.0], [0.0, 1.0]]
    """

    def __init__(self, path: str | Path, work: Mapping[str, Any]):
        self.path = Path(path)
        if self.path.suffix not in (".h5ad", ".zarr"):
            raise ValueError(f"`out` must end in .h5ad or .zarr, not {self.path.name!r}.")
        self.folder = self.path.with_name(f".{self.path.name}.blocks")
        if self.path.exists():
            shutil.rmtree(self.folder, ignore_errors=True)  # killed after the last rename: they are in the file
            raise FileExistsError(f"`out`: {path} already exists; remove it, or choose another name.")
        check_can_write(self.path)
        key = hashlib.sha256(json.dumps(work, sort_keys=True, default=repr).encode()).hexdigest()
        note = self.folder / "work"
        if self.folder.exists() and (not note.exists() or note.read_text() != key):
            shutil.rmtree(self.folder)  # of other work, or not even begun
        self.folder.mkdir(exist_ok=True)
        write_text(note, key)

    def _file(self, number: int) -> Path:
        return self.folder / f"{number:08d}.npz"

    def is_done(self, number: int) -> bool:
        """Whether a block is there; one that is damaged is set aside, and made again."""
        file = self._file(number)
        if not file.exists():
            return False
        try:
            with np.load(file, allow_pickle=False) as stored:
                for name in stored.files:
                    stored[name]
            return True
        except (EOFError, OSError, TypeError, ValueError, zipfile.BadZipFile, zlib.error) as error:
            set_aside(file, error)
            return False

    def save(self, number: int, layers: Mapping[str, np.ndarray | sp.csr_matrix]) -> None:
        """Keep the layers of a block; those that are sparse are in all blocks."""
        arrays: dict[str, Any] = {}
        for name, block in layers.items():
            if sp.issparse(block):
                arrays |= {f"{name}/{part}": getattr(block, part) for part in ("data", "indices", "indptr")}
                arrays[f"{name}/shape"] = np.array(block.shape)
            else:
                arrays[name] = block
        with replacing(self._file(number)) as beside:
            np.savez(beside, **arrays)

    def finish(self, obs: pd.DataFrame, var: pd.DataFrame, uns: dict) -> None:
        """Put the blocks together, write the file, and remove them."""
        write = _write_h5ad if self.path.suffix == ".h5ad" else _write_zarr
        names = AnnData(obs=obs, var=var, uns=uns)
        check_can_write(self.path, size_of(names) + sum(file.stat().st_size for file in self.folder.iterdir()))
        with replacing(self.path) as beside:
            write(beside, names, self._blocks)
        shutil.rmtree(self.folder)

    def _blocks(self) -> Iterator[dict[str, np.ndarray | sp.csr_matrix]]:
        for file in sorted(self.folder.glob("[0-9]*.npz")):
            with np.load(file, allow_pickle=False) as stored:
                names = dict.fromkeys(key.partition("/")[0] for key in stored.files)
                yield {name: _read(stored, name) for name in names}


def _read(stored: Mapping[str, np.ndarray], name: str) -> np.ndarray | sp.csr_matrix:
    if name in stored:
        return stored[name]
    parts = tuple(stored[f"{name}/{part}"] for part in ("data", "indices", "indptr"))
    return sp.csr_matrix(parts, shape=tuple(stored[f"{name}/shape"]))


def _write_h5ad(beside: Path, frame: AnnData, blocks) -> None:
    frame.write_h5ad(beside)
    with h5py.File(beside, "r+") as file:
        _write_matrices(file, frame.shape, blocks)


def _write_zarr(beside: Path, frame: AnnData, blocks) -> None:
    import zarr

    group = zarr.open_group(str(beside), mode="w")
    write_elem(group, "/", frame)
    _write_matrices(group, frame.shape, blocks)
    zarr.consolidate_metadata(group.store)  # so that a reader finds all of it in one file


def _write_matrices(root, shape: tuple[int, int], blocks) -> None:
    """``X`` and layers in the format of AnnData, one block after the other."""
    start = 0
    for layers in blocks():
        n_rows = next(iter(layers.values())).shape[0]
        for name, block in layers.items():
            group = root if name == "X" else root["layers"]
            if start == 0 and sp.issparse(block):
                block.indptr = block.indptr.astype(np.int64)  # of all blocks there may be more than 32 bits can count
                write_elem(group, name, block)
            elif start == 0:
                if name in group:
                    del group[name]
                create = getattr(group, "create_array", None) or group.create_dataset
                chunks = (min(shape[0], max(1, 2**20 // max(1, shape[1]))), shape[1])
                created = create(name, shape=shape, dtype=block.dtype, chunks=chunks)
                created.attrs["encoding-type"], created.attrs["encoding-version"] = "array", "0.2.0"
                created[:n_rows] = block
            elif sp.issparse(block):
                sparse_dataset(group[name]).append(block)
            else:
                group[name][start : start + n_rows] = block
        start += n_rows
