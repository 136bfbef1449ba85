"""Data sets in files: read by what they are, written beside their target and renamed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sccountsdiff.files import check_can_write, remove_leftovers, replacing
from sccountsdiff.quiet import quiet

if TYPE_CHECKING:
    from anndata import AnnData
    from mudata import MuData

__all__ = ["read", "write"]

READABLE = ".h5ad, .h5mu, .zarr, 10x .h5 files and 10x folders with matrix.mtx"
WRITABLE = {"AnnData": (".h5ad", ".zarr"), "MuData": (".h5mu", ".zarr")}
"""Suffixes of what can be written, by the kind of the data."""


def read(path: str | Path) -> AnnData | MuData:
    """Read counts of any of the usual formats into memory.

    Parameters
    ----------
    path
        An ``.h5ad`` or ``.h5mu`` file, a ``.zarr`` folder of either kind, an ``.h5`` file of Cell Ranger, or its folder with
        ``matrix.mtx``. Of the last two all feature types are read, and names of genes are made unique.

    Returns
    -------
    AnnData, or MuData from an ``.h5mu`` file or a ``.zarr`` folder with modalities.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import sccountsdiff
    >>> with TemporaryDirectory() as folder:
    ...     sccountsdiff.io.write(sccountsdiff.datasets.pbmc68k(), Path(folder, "cells.zarr"))
    ...     sccountsdiff.io.read(Path(folder, "cells.zarr")).shape
    (700, 765)
    """
    path = Path(path)
    if not path.exists():
        remove_leftovers(path.parent)  # a folder that was being replaced may come back
    if not path.exists():
        raise FileNotFoundError(f"There is no file or folder {str(path)!r}.")
    reader = _reader_of(path)
    if reader is None:
        raise ValueError(f"{str(path)!r} is of no known format: {READABLE} can be read.")
    try:
        with quiet(all_warnings=True):  # of what older versions wrote, and of names that are made unique here
            return reader(path)
    except ImportError:
        raise
    except Exception as error:  # of a broken file, libraries raise anything
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{str(path)!r} cannot be read: {reason}") from error


def write(data: AnnData | MuData, path: str | Path, *, overwrite: bool = False) -> None:
    """Write data to a file or folder: whole, or not at all.

    Parameters
    ----------
    data
        AnnData or MuData.
    path
        The target: ``.h5ad`` for AnnData, ``.h5mu`` for MuData, ``.zarr`` for both. What is there stays as it is until the
        new data is complete.
    overwrite
        Replace what is there.

    Examples
    --------
    >>> import sccountsdiff
    >>> sccountsdiff.io.write(sccountsdiff.datasets.pbmc68k(), "cells.csv")
    Traceback (most recent call last):
        ...
    ValueError: 'cells.csv' cannot be written: AnnData is written as .h5ad or .zarr.
    """
    check_target(path, type(data).__name__, overwrite=overwrite)
    check_can_write(path, size_of(data))
    import anndata.io
    import mudata

    path = Path(path)
    # For two of them the functions: the methods would have data in a file read on from the copy, which is renamed.
    writers: dict[str, Callable[[Path], object]] = {
        ".zarr": lambda beside: data.write_zarr(beside),
        ".h5ad": lambda beside: anndata.io.write_h5ad(beside, data),
        ".h5mu": lambda beside: mudata.write_h5mu(beside, data),
    }
    with quiet(all_warnings=True), replacing(path) as beside:
        writers[path.suffix](beside)


def size_of(data: AnnData | MuData) -> int:
    """Bytes that data takes in a file, at most, unless it is there already.

    Examples
    --------
    >>> import sccountsdiff
    >>> size_of(sccountsdiff.datasets.pbmc68k()) > 2**20
    True
    """
    return round(1.1 * data.__sizeof__()) + 2**20  # names of things, and room that HDF5 leaves between them


def check_target(path: str | Path, kind: str | None = None, *, overwrite: bool = False) -> None:
    """Refuse a target that data cannot be written to, before the work that it is for.

    Parameters
    ----------
    path
        The target.
    kind
        ``"AnnData"`` or ``"MuData"``; ``None`` as long as that is not known.
    overwrite
        Whether what is there may be replaced.

    Examples
    --------
    >>> check_target("cells.h5ad", "MuData")
    Traceback (most recent call last):
        ...
    ValueError: 'cells.h5ad' cannot be written: MuData is written as .h5mu or .zarr.
    """
    path = Path(path)
    suffixes = [".h5ad", ".h5mu", ".zarr"] if kind is None else WRITABLE[kind]
    if path.suffix not in suffixes:
        what = "data" if kind is None else kind
        raise ValueError(f"{str(path)!r} cannot be written: {what} is written as {' or '.join(suffixes)}.")
    check_free(path, overwrite=overwrite)
    if path.exists() and path.is_dir() != (path.suffix == ".zarr"):
        raise ValueError(f"{str(path)!r} cannot be replaced: it is a {'folder' if path.is_dir() else 'file'}.")
    check_can_write(path)


def check_free(path: str | Path, *, overwrite: bool) -> None:
    """Refuse a target that exists, unless it may be replaced.

    Examples
    --------
    >>> check_free(".", overwrite=False)
    Traceback (most recent call last):
        ...
    FileExistsError: '.' already exists: choose another name, or pass --overwrite (overwrite=True).
    """
    if not overwrite and os.path.lexists(path):
        raise FileExistsError(
            f"{str(path)!r} already exists: choose another name, or pass --overwrite (overwrite=True)."
        )


def is_data(path: str | Path) -> bool:
    """Whether a path looks like data, or does not exist, rather than like the folder of a model.

    Examples
    --------
    >>> is_data("cells.h5ad"), is_data(".")
    (True, False)
    """
    path = Path(path)
    return not path.is_dir() or _reader_of(path) is not None


def _reader_of(path: Path) -> Callable[[Path], AnnData | MuData] | None:
    if path.is_dir():
        if (path / ".zgroup").exists() or (path / "zarr.json").exists():
            return _read_zarr
        if any((path / name).exists() for name in ("matrix.mtx", "matrix.mtx.gz")):
            return _read_10x_folder
        return None
    return {".h5ad": _read_h5ad, ".h5mu": _read_h5mu, ".h5": _read_10x_file}.get(path.suffix)


def _read_h5ad(path: Path) -> AnnData:
    import anndata

    return anndata.read_h5ad(path)


def _read_h5mu(path: Path) -> MuData:
    import mudata

    return mudata.read_h5mu(path)


def _read_zarr(path: Path) -> AnnData | MuData:
    import anndata
    import mudata
    import zarr

    with _without_pickles():
        is_mudata = "mod" in zarr.open_group(str(path), mode="r")
        return mudata.read_zarr(path) if is_mudata else anndata.read_zarr(path)


@contextmanager
def _without_pickles() -> Iterator[None]:
    """Have Zarr know no arrays that are pickles, which run code when they are read: not all versions refuse them."""
    from numcodecs.registry import codec_registry

    pickles = codec_registry.pop("pickle", None)
    try:
        yield
    finally:
        if pickles is not None:
            codec_registry["pickle"] = pickles


def _read_10x_file(path: Path) -> AnnData:
    import scanpy as sc

    return _with_unique_names(sc.read_10x_h5(path, gex_only=False))


def _read_10x_folder(path: Path) -> AnnData:
    import scanpy as sc

    return _with_unique_names(sc.read_10x_mtx(path, gex_only=False))


def _with_unique_names(adata: AnnData) -> AnnData:
    adata.var_names_make_unique()
    return adata
