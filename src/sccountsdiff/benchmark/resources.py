"""Wall time and peak memory of a piece of work, and the time that it would take on other devices."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_STATM = Path("/proc/self/statm")
_INTERVAL = 0.05

PEAKS = {
    "V100": (15.7, 125.0),
    "RTX 4090": (82.6, 165.0),
    "A100": (19.5, 312.0),
    "H100": (67.0, 989.0),
    "CPU core": (0.1, 0.1),
}
"""Peak of a device in 10^12 operations a second, as its maker states it: 32-bit, and mixed precision without sparsity."""

UTILISATION = 0.3
"""Assumed share of the peak."""


def hours_by_device(n_operations: float, *, is_mixed: bool = False) -> dict[str, float]:
    """Hours that floating-point operations would take on one of each device, at the assumed share of its peak.

    Examples
    --------
    >>> round(hours_by_device(1e18)["A100"])
    47
    """
    return {name: n_operations / (1e12 * peak[is_mixed] * UTILISATION) / 3600 for name, peak in PEAKS.items()}


@dataclass
class Usage:
    """Wall time, and the largest resident memory of the whole process, libraries included."""

    seconds: float = 0.0
    peak_memory_mb: float = 0.0


@contextmanager
def measured() -> Iterator[Usage]:
    """Measure the work inside a ``with`` block; the figures are there when it ends, with an error or without.

    Memory is sampled by a thread where the system tells it (Linux). Elsewhere it is the peak since the process started, or NaN.

    Examples
    --------
    >>> with measured() as usage:
    ...     total = sum(range(1000))
    >>> usage.seconds > 0, usage.peak_memory_mb > 1
    (True, True)
    """
    usage, stop = Usage(peak_memory_mb=_memory_mb()), threading.Event()

    def watch() -> None:
        while not stop.wait(_INTERVAL):
            usage.peak_memory_mb = max(usage.peak_memory_mb, _memory_mb())

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    start = time.perf_counter()
    try:
        yield usage
    finally:
        usage.seconds = time.perf_counter() - start
        stop.set()
        watcher.join()
        usage.peak_memory_mb = max(usage.peak_memory_mb, _memory_mb())


def _memory_mb() -> float:
    if _STATM.exists():
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    try:
        import resource
    except ModuleNotFoundError:  # Windows
        return float("nan")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10
