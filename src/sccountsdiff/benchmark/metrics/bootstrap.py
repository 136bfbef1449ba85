"""Standard errors by resampling cells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sccountsdiff.benchmark.metrics.registry import Metric, get_metric
from sccountsdiff.checks import whole_number


def bootstrap_se(
    metric: str | Metric | Callable[..., float],
    *,
    n_resamples: int = 10,
    n_cells: int | None = None,
    seed: int = 0,
    **arrays: Any,
) -> float:
    """Standard deviation of a metric over resamples of the cells, drawn with replacement.

    Parameters
    ----------
    metric
        A metric or its name; or any function, which is then called with all ``arrays``.
    n_resamples
        Number of resamples.
    n_cells
        Cells in each resample; as many as there are by default.
    seed
        Seed of the resampling.
    **arrays
        What the metric needs, by name: matrices with one row per cell, and ``draws`` at the sites. The sites of a cell and
        its draws stay together.

    Returns
    -------
    The standard deviation: an estimate of the standard error of the metric.

    Examples
    --------
    >>> import numpy as np
    >>> from sccountsdiff.benchmark.metrics import rmse
    >>> rng = np.random.default_rng(0)
    >>> truth, sites = rng.poisson(3, (100, 20)), np.ones((100, 20), dtype=bool)
    >>> 0 < bootstrap_se(rmse, truth=truth, imputed=truth * 0 + 3, sites=sites) < 0.1
    True
    """
    n_resamples = whole_number("n_resamples", n_resamples, least=2)
    metric = get_metric(metric) if isinstance(metric, str) else metric
    if isinstance(metric, Metric):
        arrays = {name: values for name, values in arrays.items() if name in metric.needs}
    heights = {name: values.shape[0] for name, values in arrays.items() if name != "draws"}
    if not heights:
        raise ValueError("bootstrap_se needs the arrays of the metric by name, as in truth=..., imputed=..., sites=...")
    n = next(iter(heights.values()))
    if set(heights.values()) != {n}:
        raise ValueError(f"All arrays need one row per cell, found {heights}.")
    if "draws" in arrays and "sites" not in arrays:
        raise ValueError("draws are given without the sites that they belong to.")

    resamples = np.random.default_rng(seed).integers(n, size=(n_resamples, n if n_cells is None else n_cells))
    if isinstance(metric, Metric) and metric.of_resamples is not None:
        values = metric.of_resamples(**arrays, numbers=np.stack([np.bincount(r, minlength=n) for r in resamples]))
    else:
        values = [metric(**take_cells(arrays, cells)) for cells in resamples]
    return float(np.std(values, ddof=1))


def take_cells(arrays: dict[str, Any], cells: np.ndarray) -> dict[str, Any]:
    """Arrays of some cells: their rows, and of draws, which have none, what belongs to their sites.

    Examples
    --------
    >>> import numpy as np
    >>> sites = np.array([[True, False], [True, True]])
    >>> take_cells({"sites": sites, "draws": np.array([[1, 2, 3]])}, np.array([1]))["draws"]
    array([[2, 3]])
    """
    taken = {name: array[cells] for name, array in arrays.items() if name != "draws"}
    if "draws" in arrays:
        taken["draws"] = arrays["draws"][:, _sites_of_cells(arrays["sites"], cells)]
    return taken


def _sites_of_cells(sites: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Positions, in row-major order of ``sites``, of the sites of the given cells one after the other."""
    sizes = np.count_nonzero(sites, axis=1)
    first = np.cumsum(sizes) - sizes
    within = np.arange(sizes[cells].sum()) - np.repeat(np.cumsum(sizes[cells]) - sizes[cells], sizes[cells])
    return np.repeat(first[cells], sizes[cells]) + within
