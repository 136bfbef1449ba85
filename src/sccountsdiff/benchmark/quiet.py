"""Silence for libraries that report what is settled by the caller."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet() -> Iterator[None]:
    """Hide warnings and the reports of Lightning and scvi-tools inside a ``with`` block.

    Examples
    --------
    >>> import warnings
    >>> with quiet():
    ...     warnings.warn("not shown")
    """
    logs = [logging.getLogger(name) for name in ("lightning.pytorch", "pytorch_lightning", "scvi")]
    levels = [log.level for log in logs]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for log in logs:
            log.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for log, level in zip(logs, levels, strict=True):
                log.setLevel(level)
