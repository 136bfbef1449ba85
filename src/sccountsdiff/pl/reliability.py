"""Whether draws are as spread as the truth, over all hidden entries or stratum by stratum."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from sccountsdiff.pl.figure import colour, finish, own_axes


def calibration(
    pit: np.ndarray,
    strata: np.ndarray | pd.Categorical | None = None,
    *,
    ax: Axes | None = None,
    show: bool | None = None,
    save: str | Path | None = None,
) -> Axes:
    """How often the truth falls below each quantile of the draws; the diagonal is perfect.

    Parameters
    ----------
    pit
        Randomised probability integral transform of each hidden entry, see
        :func:`sccountsdiff.benchmark.metrics.pit`.
    strata
        Name of the group of each entry; a line for each. The groups of a :class:`pandas.Categorical` keep their order.
    ax, show, save
        As in :func:`history`.

    Returns
    -------
    The axes that were drawn into.

    Examples
    --------
    >>> import numpy as np
    >>> import sccountsdiff
    >>> ax = sccountsdiff.pl.calibration(np.linspace(0, 1, 50), show=False)
    >>> ax.get_ylabel()
    'Share of true counts below'
    """
    groups = _groups(pit, strata)
    ax, is_own = own_axes(ax)
    levels = np.linspace(0, 1, 101)
    ax.plot([0, 1], [0, 1], color="black", linewidth=0.8)
    for number, (name, values) in enumerate(groups.items()):
        share = np.searchsorted(np.sort(values), levels) / len(values)
        ax.plot(levels, share, label=name, color=colour(number))
    ax.set(xlabel="Quantile of the draws", ylabel="Share of true counts below", title="Calibration")
    if strata is not None:
        ax.legend(frameon=False)
    return finish(ax, is_own, show, save)


def coverage(
    pit: np.ndarray,
    strata: np.ndarray | pd.Categorical | None = None,
    *,
    levels: Sequence[float] = (0.5, 0.8, 0.9, 0.95),
    ax: Axes | None = None,
    show: bool | None = None,
    save: str | Path | None = None,
) -> Axes:
    """Share of true counts within the central intervals of the draws, with two standard errors; the lines are perfect.

    Parameters
    ----------
    pit, strata
        As in :func:`calibration`; a group of points for each stratum.
    levels
        Nominal coverage of the intervals.
    ax, show, save
        As in :func:`history`.

    Returns
    -------
    The axes that were drawn into.

    Examples
    --------
    >>> import numpy as np
    >>> import sccountsdiff
    >>> ax = sccountsdiff.pl.coverage(np.linspace(0, 1, 50), levels=[0.5, 0.9], show=False)
    >>> ax.get_ylabel()
    'Share of true counts inside'
    """
    wrong = [level for level in levels if not 0 < level < 1]
    if wrong:
        raise ValueError(f"`levels` must be between 0 and 1, found {wrong[0]}.")
    groups = _groups(pit, strata)
    ax, is_own = own_axes(ax)
    places = np.arange(len(groups))
    width = 0.6 / len(levels)
    for number, level in enumerate(levels):
        # As the metric of that name: a count is inside if its value is in the central share.
        inside = np.array([np.mean(np.abs(values - 0.5) <= level / 2) for values in groups.values()])
        error = 2 * np.sqrt(inside * (1 - inside) / [len(values) for values in groups.values()])
        x = places + (number - (len(levels) - 1) / 2) * width
        ax.axhline(level, color=colour(number), linewidth=0.8, linestyle="--")
        ax.errorbar(x, inside, yerr=error, fmt="o", capsize=2, color=colour(number), label=f"{level:.0%}")
    ax.set_xticks(places, list(groups))
    ax.set(xlim=(-0.6, len(groups) - 0.4), ylim=(0, 1), ylabel="Share of true counts inside", title="Coverage")
    ax.legend(title="interval", frameon=False, loc="lower right", ncols=2)
    return finish(ax, is_own, show, save)


def _groups(pit: np.ndarray, strata: np.ndarray | pd.Categorical | None) -> dict[str, np.ndarray]:
    """Values of each stratum that has any."""
    pit = np.asarray(pit)
    if pit.ndim != 1 or len(pit) == 0:
        raise ValueError(f"`pit` must have one value for each hidden entry, found shape {pit.shape}.")
    if strata is None:
        return {"all": pit}
    if len(strata) != len(pit):
        raise ValueError(f"`strata` names the group of {len(strata)} entries, but `pit` has {len(pit)}.")
    names = strata.categories if isinstance(strata, pd.Categorical) else np.unique(strata)
    groups = {name: pit[np.asarray(strata == name)] for name in names}
    return {name: values for name, values in groups.items() if len(values)}
