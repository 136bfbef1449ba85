"""Silence for libraries that report what is settled by the caller."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

LOGGERS = ("lightning.fabric", "lightning.pytorch", "pytorch_lightning", "scvi")
LIBRARIES = (
    "anndata",
    "lightning",
    "lightning_fabric",
    "mudata",
    "pytorch_lightning",
    "scanpy",
    "scvi",
    "torch",
    "zarr",
)
"""Packages whose warnings are about how they are used here, which users cannot change."""


@contextmanager
def quiet(*, all_warnings: bool = False) -> Iterator[None]:
    """Hide warnings and reports of libraries inside a ``with`` block; what users and this package warn of is still shown.

    Parameters
    ----------
    all_warnings
        Hide all warnings, wherever they come from.

    Examples
    --------
    >>> with quiet(all_warnings=True):
    ...     warnings.warn("not shown")
    """
    logs = [logging.getLogger(name) for name in LOGGERS]
    levels = [log.level for log in logs]
    with warnings.catch_warnings():
        if all_warnings:
            warnings.simplefilter("ignore")
        else:
            warnings.filterwarnings("ignore", module=rf"({'|'.join(LIBRARIES)})(\.|$)")
        for log in logs:
            log.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for log, level in zip(logs, levels, strict=True):
                log.setLevel(level)
