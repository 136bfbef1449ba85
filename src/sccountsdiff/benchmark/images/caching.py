"""What lets a run go on: names by content for what is kept."""

from __future__ import annotations

import hashlib

import numpy as np
from torch import Tensor


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
