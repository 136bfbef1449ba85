"""The registered metrics, and the inputs that are made for them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from sccountsdiff.benchmark.optional import missing_packages
from sccountsdiff.registry import Registry

Direction = Literal["lower", "higher", "zero", "one"]


@dataclass(frozen=True)
class MetricInput:
    """An input of metrics that is made from the split, and possibly from other inputs.

    Parameters
    ----------
    make
        Takes the :class:`~sccountsdiff.benchmark.scoring.Split` and, by name, the inputs in ``needs``.
    needs
        Names of the inputs that it is made from.
    needs_labels
        Whether it takes the types of the cells.
    needs_training
        Whether it takes a model that is trained for it.
    packages
        Packages that it takes, beyond the core dependencies.
    judges_truth
        Whether the true cells do not get the best possible score either, and are scored for reference.

    Examples
    --------
    >>> INPUTS["labels"].needs_labels, INPUTS["labels"].needs_training
    (True, False)
    """

    make: Callable[..., Any]
    needs: tuple[str, ...] = ()
    needs_labels: bool = False
    needs_training: bool = False
    packages: tuple[str, ...] = ()
    judges_truth: bool = False


INPUTS: Registry[MetricInput] = Registry("input of metrics")


def required_arguments(function: Callable) -> tuple[str, ...]:
    """Names of the arguments of a function that have no default.

    Examples
    --------
    >>> required_arguments(lambda truth, draws, *, seed=0: None)
    ('truth', 'draws')
    """
    parameters = inspect.signature(function).parameters.values()
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return tuple(p.name for p in parameters if p.default is p.empty and p.kind not in several)


def register_input(name: str, **properties: Any) -> Callable[[Callable], Callable]:
    """Decorator that makes a function known as the maker of an input, from the split and the inputs it has arguments for.

    Further properties are those of :class:`MetricInput`.

    Examples
    --------
    >>> @register_input("depths")
    ... def depths(split, imputed):
    ...     return imputed.sum(axis=1)
    >>> INPUTS["depths"].needs
    ('imputed',)
    """

    def decorate(make: Callable) -> Callable:
        INPUTS.register(name)(MetricInput(make, required_arguments(make)[1:], **properties))
        return make

    return decorate


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
        Which values are good: ``"lower"``, ``"higher"``, or near ``"zero"`` or ``"one"``.
    needs
        Names of the arguments that the function needs. Answers to an imputation task give ``imputed`` (a point estimate
        or one draw), ``sites`` and, if there are several draws, ``draws`` at the sites; answers to a denoising task give
        ``denoised`` and ``held_out``. Made from these and the cells are ``truth``, ``labels`` (types of the cells),
        ``truth_embedding``, ``imputed_embedding``, ``predicted_labels`` (by a classifier) and ``clusters`` of the imputed
        cells.
    group
        Where it stands in a table.
    quadratic
        Whether the time grows with the square of the number of cells.
    packages
        Packages that the function needs, beyond the core dependencies.
    of_resamples
        Function of the same arrays and of ``numbers``, how many times each cell is in each resample (resamples, cells), that
        gives the values of all resamples at once.

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
    packages: tuple[str, ...] = ()
    of_resamples: Callable[..., Any] | None = None

    def __call__(self, **available: Any) -> float:
        """Compute the metric from ``available``, of which it takes what it needs."""
        missing = [name for name in self.needs if name not in available]
        if missing:
            raise ValueError(f"Metric {self.name!r} needs {missing}, found {sorted(available)}.")
        return self.function(**{name: available[name] for name in self.needs})

    def loss(self, values: Any) -> Any:
        """Values of the metric, turned so that lower is better."""
        return {"lower": values, "higher": -values, "zero": abs(values), "one": abs(values - 1)}[self.direction]

    def applies_to(self, answer: Iterable[str]) -> bool:
        """Whether all that it needs can be made from an answer with these entries."""
        return {name for name in self._needs_of_needs() if name not in INPUTS} <= set(answer)

    def missing_packages(self) -> list[str]:
        """Packages that the metric or its inputs need and that are not installed."""
        packages = [*self.packages, *(package for made in self._made_inputs() for package in made.packages)]
        return [package for package in dict.fromkeys(packages) if missing_packages(package)]

    @property
    def needs_labels(self) -> bool:
        """Whether it needs the types of the cells."""
        return any(made.needs_labels for made in self._made_inputs())

    @property
    def needs_training(self) -> bool:
        """Whether a model must be trained for one of its inputs."""
        return any(made.needs_training for made in self._made_inputs())

    @property
    def judges_truth(self) -> bool:
        """Whether the score of the true cells is worth showing."""
        return any(made.judges_truth for made in self._made_inputs())

    def _needs_of_needs(self) -> list[str]:
        """What the metric needs, and what that is made from."""
        names = list(self.needs)
        for name in names:  # which grows
            names += INPUTS[name].needs if name in INPUTS else ()
        return names

    def _made_inputs(self) -> list[MetricInput]:
        return [INPUTS[name] for name in self._needs_of_needs() if name in INPUTS]


METRICS: Registry[Metric] = Registry("metric")

register_input("truth")(lambda split: split.truth)
register_input("labels", needs_labels=True)(lambda split: split.labels)


def register_metric(
    name: str,
    *,
    direction: Direction,
    needs: tuple[str, ...] | None = None,
    group: str = "pointwise",
    quadratic: bool = False,
    packages: tuple[str, ...] = (),
    of_resamples: Callable[..., Any] | None = None,
) -> Callable[[Callable[..., float]], Callable[..., float]]:
    """Decorator that makes a function of arrays known as a metric, and returns it unchanged.

    Parameters
    ----------
    name
        Name in tables and for ``metrics=``.
    direction
        Which values are good: ``"lower"``, ``"higher"``, or near ``"zero"`` or ``"one"``.
    needs
        Names of its inputs, see :class:`Metric`. Default: the arguments of the function that have no default.
    group
        Where it stands in a table.
    quadratic
        Whether the time grows with the square of the number of cells: of large data such a metric sees a part.
    packages
        Packages that the function needs, beyond the core dependencies.
    of_resamples
        Function that gives the values of several resamples at once, see :class:`Metric`. Default: one after the other.

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
        inputs = required_arguments(function) if needs is None else needs
        METRICS.register(name)(Metric(name, function, direction, inputs, group, quadratic, packages, of_resamples))
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
    metrics = [METRICS[name] for name in METRICS]
    table = pd.DataFrame({key: [getattr(m, key) for m in metrics] for key in ("group", "direction", "needs")})
    table["summary"] = [(m.function.__doc__ or "").strip().split("\n")[0] for m in metrics]
    return table.set_index(pd.Index(METRICS, name="metric"))
