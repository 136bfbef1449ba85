"""The table of metrics, and what each says about itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from sccountsdiff.registry import Registry

Direction = Literal["lower", "higher", "zero"]


@dataclass(frozen=True)
class Metric:
    """A registered metric.

    Called with everything that is at hand, by name, it takes what it needs.

    Parameters
    ----------
    name
        Name in tables.
    function
        Pure function of arrays that returns a number.
    direction
        Which values are good: ``"lower"``, ``"higher"`` or near ``"zero"``.
    needs
        Names of the arguments that the function needs: ``truth``, ``imputed`` (a point estimate or one draw), ``sites``,
        ``draws`` (several draws at the sites), ``truth_embedding`` and ``imputed_embedding``, ``labels`` (types of the
        cells), ``predicted_labels`` (by a classifier) and ``clusters`` of the imputed cells; ``denoised`` and
        ``held_out`` (a molecule split).
    group
        Where it stands in a table.
    quadratic
        Whether the time grows with the square of the number of cells.

    Examples
    --------
    >>> import numpy as np
    >>> metric = get_metric("rmse")
    >>> metric.direction
    'lower'
    >>> metric(truth=np.zeros((1, 2)), imputed=np.full((1, 2), 3.0), sites=np.ones((1, 2), dtype=bool), train=None)
    3.0
    """

    name: str
    function: Callable[..., float]
    direction: Direction
    needs: tuple[str, ...]
    group: str
    quadratic: bool = False

    def __call__(self, **available: Any) -> float:
        """Compute the metric from ``available``, of which it takes what it needs."""
        missing = [name for name in self.needs if name not in available]
        if missing:
            raise ValueError(f"Metric {self.name!r} needs {missing}, found {sorted(available)}.")
        return self.function(**{name: available[name] for name in self.needs})


METRICS: Registry[Metric] = Registry("metric")


def register_metric(
    name: str,
    *,
    direction: Direction,
    needs: tuple[str, ...] = ("truth", "imputed", "sites"),
    group: str = "pointwise",
    quadratic: bool = False,
) -> Callable[[Callable[..., float]], Callable[..., float]]:
    """Decorator that makes a function of arrays known as a metric, and returns it unchanged.

    Parameters
    ----------
    name
        Name in tables and for ``metrics=``.
    direction
        Which values are good: ``"lower"``, ``"higher"`` or near ``"zero"``.
    needs
        Names of the arguments of the function, see :class:`Metric`.
    group
        Where it stands in a table.
    quadratic
        Whether the time grows with the square of the number of cells: of large data such a metric sees a part.

    Returns
    -------
    A decorator that returns the function as it is.

    Examples
    --------
    >>> @register_metric("worst_error", direction="lower")
    ... def worst_error(truth, imputed, sites):
    ...     return float(abs(imputed - truth)[sites].max())
    >>> get_metric("worst_error").needs
    ('truth', 'imputed', 'sites')
    """

    def decorate(function: Callable[..., float]) -> Callable[..., float]:
        METRICS.register(name)(Metric(name, function, direction, needs, group, quadratic))
        return function

    return decorate


def get_metric(name: str) -> Metric:
    """The metric registered under a name.

    Parameters
    ----------
    name
        A registered name.

    Returns
    -------
    The metric.

    Examples
    --------
    >>> get_metric("spearman").direction
    'higher'
    """
    return METRICS.get(name)


def list_metrics() -> pd.DataFrame:
    """All registered metrics, one row each.

    Returns
    -------
    A table with the columns ``group``, ``direction``, ``needs`` and ``summary``.

    Examples
    --------
    >>> list_metrics().loc["bias", "direction"]
    'zero'
    """
    rows = {
        name: {
            "group": METRICS[name].group,
            "direction": METRICS[name].direction,
            "needs": METRICS[name].needs,
            "summary": (METRICS[name].function.__doc__ or "").strip().split("\n")[0],
        }
        for name in METRICS
    }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("metric")
