"""What all plots share: colours, a figure of their own, showing and saving."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from sccountsdiff.files import replacing

# Okabe and Ito's colours, told apart by all kinds of colour vision.
BLUE, ORANGE, GREEN, PINK, SKY, AMBER, GREY = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#e69f00",
    "#999999",
)
CYCLE = (BLUE, ORANGE, GREEN, PINK, SKY, AMBER)
HEAT = "viridis"
"""Colour map of counts and densities: even in lightness."""


def colour(number: int) -> str:
    """Colour of the line with that number."""
    return CYCLE[number % len(CYCLE)]


def own_axes(ax: Axes | None, figsize: tuple[float, float] | None = None) -> tuple[Axes, bool]:
    """The axes to draw into, and whether they were made here."""
    return (plt.figure(figsize=figsize, layout="constrained").gca(), True) if ax is None else (ax, False)


def finish(axes: Axes | np.ndarray, is_own: bool, show: bool | None, save: str | Path | None) -> Axes | np.ndarray:
    """Save and show as asked for; the axes again."""
    if save is not None:
        with replacing(save) as beside:
            np.ravel(axes)[0].figure.savefig(beside)
    if show or (show is None and is_own and save is None):
        plt.show()
    return axes
