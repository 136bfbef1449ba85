"""Files that are whole or not there: written beside their target, flushed to the disk, then renamed."""

from __future__ import annotations

import hashlib
import logging
import math
import os
import re
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

if TYPE_CHECKING:
    import pandas as pd

logger = logging.getLogger("sccountsdiff")

_HOST = re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname())
"""Part of the names of files that are being written, which may be on a disk that several machines share."""

_RUN = uuid4().hex[:8]
"""Another part: in a container, the next process often has the number of the one that was killed."""

ROOM = 2**20
"""Bytes that must be free before work begins whose results are of no known size: they are never less than a few tables."""


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A path beside the target to write a file or a folder to; it takes the target's place when all went well.

    Until then the target is as it was. If anything fails, or is interrupted, what was written goes and the target stays.
    Who may read and write the target stays the same, too.
    What a process that was killed had begun to write goes when something is next written to the folder.

    Parameters
    ----------
    path
        The target: a file, or a folder, that may exist already.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     target = Path(folder, "table.csv")
    ...     with replacing(target) as beside:
    ...         _ = beside.write_text("a,b")
    ...     target.read_text(), len(list(Path(folder).iterdir()))
    ('a,b', 1)
    """
    target = Path(path).resolve()  # of a link, the file that it leads to
    remove_leftovers(target.parent)
    # The suffix stays last: writers choose their format by it.
    mark = f"{_HOST}.{os.getpid()}-{_RUN}"
    beside = target.with_name(f".{target.stem}.{mark}.partial{target.suffix}")
    earlier = target.with_name(f".{target.name}.{mark}.earlier")
    try:
        yield beside
        with suppress(OSError):  # there was nothing before, or the disk knows no permissions
            shutil.copymode(target, beside)  # what was private stays so
        for written in (*beside.rglob("*"), beside):
            _flush(written)
        if beside.is_dir() and target.exists():
            target.replace(earlier)  # a folder with files in it cannot be renamed over
        beside.replace(target)
        _flush(target.parent)
    except (OSError, RuntimeError) as error:  # each library has its own for a full disk
        number = getattr(error, "errno", None)
        reason = os.strerror(number) if number else (str(error).strip() or type(error).__name__).splitlines()[0]
        raise OSError(f"{path} cannot be written: {reason.rstrip('.')}. What was there before stays.") from error
    finally:
        _remove(beside)
        _put_back(earlier, target)


def write_text(path: str | Path, text: str) -> None:
    """Write text to a file that is whole or as it was.

    Parameters
    ----------
    path
        The file.
    text
        What it is to hold.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_text(Path(folder, "report.md"), "# Report")
    ...     Path(folder, "report.md").read_text()
    '# Report'
    """
    with replacing(path) as beside:
        beside.write_text(text, encoding="utf-8")


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write bytes, such as those of a picture, to a file that is whole or as it was.

    Parameters
    ----------
    path
        The file.
    content
        What it is to hold.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_bytes(Path(folder, "figure.png"), b"pixels")
    ...     Path(folder, "figure.png").read_bytes()
    b'pixels'
    """
    with replacing(path) as beside:
        beside.write_bytes(content)


def write_table(path: str | Path, table: pd.DataFrame, **options: Any) -> None:
    """Write a table as CSV to a file that is whole or as it was.

    Parameters
    ----------
    path
        The file.
    table
        The table.
    **options
        Arguments of :meth:`pandas.DataFrame.to_csv`; by default without the index.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import pandas as pd
    >>> with TemporaryDirectory() as folder:
    ...     write_table(Path(folder, "table.csv"), pd.DataFrame({"a": [1], "b": [2]}))
    ...     Path(folder, "table.csv").read_text().split()
    ['a,b', '1,2']
    """
    with replacing(path) as beside:
        table.to_csv(beside, **({"index": False} | options))


def remove_leftovers(folder: str | Path) -> None:
    """Remove what processes of this machine that are no more had begun to write.

    A folder that one of them had moved away, but not replaced yet, goes back to its place.

    Parameters
    ----------
    folder
        Where to look.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     remove_leftovers(folder)
    """
    name = re.compile(
        rf"\.(?P<target>.+)\.{re.escape(_HOST)}\.(?P<process>\d+)-(?P<run>\w+)\.(?P<what>partial|earlier)"
    )
    for leftover in Path(folder).glob(".*"):
        match = name.match(leftover.name)
        if match is None or _is_writing(int(match["process"]), match["run"]):
            continue
        if match["what"] == "partial":
            _remove(leftover)
        else:
            _put_back(leftover, leftover.with_name(match["target"]))


def check_can_write(path: str | Path, n_bytes: int | None = None) -> None:
    """Refuse a target that cannot be written, before the work that it is for.

    Parameters
    ----------
    path
        The target: its folder must exist, and take new files.
    n_bytes
        Size that it will have. Default: not known, 1 MiB at least.

    Examples
    --------
    >>> check_can_write("no/such/folder/table.csv")
    Traceback (most recent call last):
        ...
    FileNotFoundError: The folder of no/such/folder/table.csv does not exist.
    """
    target = Path(path).resolve()
    folder = target.parent
    if not folder.is_dir():
        raise FileNotFoundError(f"The folder of {path} does not exist.")
    if target.is_dir() and target.suffix != ".zarr":  # which is a folder
        raise IsADirectoryError(f"{path} cannot be written: it is a folder.")
    _try_to_write(folder, path, ROOM if n_bytes is None else n_bytes)


def check_folder(path: str | Path) -> None:
    """Refuse a folder that files cannot be written to, or with hardly any room, before the work that it is for.

    Parameters
    ----------
    path
        The folder; need not exist.

    Examples
    --------
    >>> check_folder(os.devnull)
    Traceback (most recent call last):
        ...
    NotADirectoryError: /dev/null cannot be written to: it is no folder.
    """
    folder = Path(path).resolve()
    there = next(place for place in (folder, *folder.parents) if place.exists())
    if not there.is_dir():
        raise NotADirectoryError(f"{path} cannot be written to: {'it' if there == folder else there} is no folder.")
    _try_to_write(there, path, ROOM)


def set_aside(path: str | Path, reason: object) -> Path:
    """Rename a file that cannot be read, and say so: it is in nobody's way and nothing of it is lost.

    Parameters
    ----------
    path
        The file.
    reason
        What is wrong with it; of an error the first line.

    Returns
    -------
    Where it is now.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "table.csv").write_text("half")
    ...     set_aside(Path(folder, "table.csv"), "half of it is missing").name
    'table.csv.damaged'
    """
    path = Path(path)
    aside = path.replace(path.with_name(f"{path.name}.damaged"))
    reason = (str(reason).strip().splitlines() or [type(reason).__name__])[0]
    logger.warning("%s is damaged (%s): set aside as %s.", path, reason, aside.name)
    return aside


def digest_of_file(path: str | Path) -> str:
    """The SHA-256 of what is in a file.

    Parameters
    ----------
    path
        The file.

    Returns
    -------
    64 hexadecimal digits.

    Examples
    --------
    >>> digest_of_file(os.devnull)[:12]
    'e3b0c44298fc'
    """
    with Path(path).open("rb") as contents:
        return hashlib.file_digest(contents, "sha256").hexdigest()


def available_memory() -> int | None:
    """Bytes of memory that are free; ``None`` where the system does not say.

    Examples
    --------
    >>> free = available_memory()
    >>> free is None or free > 0
    True
    """
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def _try_to_write(folder: Path, path: str | Path, n_bytes: int) -> None:
    """Refuse a folder that takes no new files, or none of this size; the error names what is to be written.

    HDF5 does not survive a disk that fills up, or a quota that is reached, while it writes.
    """
    # By its name it goes with other leftovers, should this process be killed here.
    probe = folder / f".probe.{_HOST}.{os.getpid()}-{_RUN}.partial"
    try:
        with probe.open("wb") as handle:
            free = shutil.disk_usage(folder).free
            if n_bytes > free:
                raise OSError(f"{math.ceil(n_bytes / 2**20):,} MiB are needed, {free // 2**20:,} are free")
            if n_bytes and hasattr(os, "posix_fallocate"):
                os.posix_fallocate(handle.fileno(), 0, n_bytes)
    except OSError as error:
        raise OSError(f"{path} cannot be written: {error.strerror or error}.") from None
    finally:
        with suppress(OSError):
            probe.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    """Have the disk hold what was written: a name that points to nothing after a power cut helps nobody."""
    if path.is_dir() and os.name == "nt":
        return  # folders cannot be opened there
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _is_writing(process: int, run: str) -> bool:
    """Whether the process that began to write a file may still be at it."""
    if process == os.getpid():
        return run == _RUN
    if os.name == "nt":
        return True  # there, signal 0 would end it
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):  # the latter of numbers that no process has
        return False
    except OSError:
        return True  # it is somebody else's
    return True


def _put_back(earlier: Path, target: Path) -> None:
    """Move a folder back to its place, or remove it if something else has taken that."""
    if earlier.exists() and not target.exists():
        earlier.replace(target)
    elif earlier.exists():
        _remove(earlier)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
