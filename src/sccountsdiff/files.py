"""Files that are whole or not there: written beside their target, flushed to the disk, then renamed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A path beside the target to write a file to; what is there takes the target's place when all went well.

    Until then the target is as it was. If anything fails, or is interrupted, what was written goes and the target stays.

    Parameters
    ----------
    path
        The target: a file that may exist already.

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
    # The suffix stays last: writers choose their format by it.
    beside = target.with_name(f".{target.stem}.{os.getpid()}.partial{target.suffix}")
    try:
        yield beside
        _flush(beside)
        beside.replace(target)
        _flush(target.parent)
    finally:
        _remove(beside)


def check_can_write(path: str | Path) -> None:
    """Refuse a target that cannot be written, before the work that it is for.

    Parameters
    ----------
    path
        The target: its folder must exist, and take new files.

    Examples
    --------
    >>> check_can_write("no/such/folder/table.csv")
    Traceback (most recent call last):
        ...
    FileNotFoundError: The folder of no/such/folder/table.csv does not exist.
    """
    folder = Path(path).resolve().parent
    if not folder.is_dir():
        raise FileNotFoundError(f"The folder of {path} does not exist.")
    probe = folder / f".{Path(path).name}.{os.getpid()}.probe"
    try:
        probe.touch()
    except OSError as error:
        raise OSError(f"{path} cannot be written: {error.strerror or error}.") from None
    finally:
        probe.unlink(missing_ok=True)


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


def _flush(path: Path) -> None:
    """Have the disk hold what was written: a name that points to nothing after a power cut helps nobody."""
    if path.is_dir() and os.name == "nt":
        return  # folders cannot be opened there
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
