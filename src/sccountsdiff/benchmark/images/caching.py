"""What lets a run go on: names by content for what is kept, and damaged files put aside."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

import numpy as np
from torch import Tensor

logger = logging.getLogger("sccountsdiff")


def fingerprint(*parts: object) -> str:
    """A short name for anything that consists of tensors and what prints itself: equal parts, equal name.

    Parameters
    ----------
    *parts
        Tensors and arrays count by their bytes, dictionaries and lists by their members, objects that have attributes
        (such as an attrition schedule) by these, and all else by how it prints.

    Returns
    -------
    16 hexadecimal digits.

    Examples
    --------
    >>> import torch
    >>> fingerprint(torch.zeros(3), "a") == fingerprint(torch.zeros(3), "a")
    True
    >>> fingerprint(torch.zeros(3)) == fingerprint(torch.zeros(4))
    False
    """
    digest = hashlib.sha256()
    for part in parts:
        _add(digest, part)
    return digest.hexdigest()[:16]


def _add(digest, part: object) -> None:
    digest.update(f"{type(part).__name__}:".encode())
    if isinstance(part, Tensor):
        part = part.detach().cpu().contiguous().numpy()
    if isinstance(part, np.ndarray):
        digest.update(f"{part.dtype}{part.shape}".encode())
        digest.update(np.ascontiguousarray(part).data)
    elif isinstance(part, dict):
        for name, value in part.items():
            digest.update(str(name).encode())
            _add(digest, value)
    elif isinstance(part, list | tuple):
        for value in part:
            _add(digest, value)
    elif hasattr(part, "__dict__"):
        _add(digest, vars(part))
    else:
        digest.update(repr(part).encode())


def set_aside(path: Path, reason: object) -> Path:
    """Rename a damaged file, and say so: it is out of the way and nothing of it is lost.

    Parameters
    ----------
    path
        The file.
    reason
        What is wrong with it.

    Returns
    -------
    Its new name: ``.broken`` before the suffix.

    Examples
    --------
    >>> _ = Path("table.csv").write_text("?")
    >>> set_aside(Path("table.csv"), "no table").name
    'table.broken.csv'
    """
    aside = path.with_name(f"{path.stem}.broken{path.suffix}")
    path.replace(aside)
    logger.warning("%s is damaged and was set aside as %s: %s", path, aside.name, reason)
    return aside
