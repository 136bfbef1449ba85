"""How training went."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.axes import Axes

from sccountsdiff.pl.figure import BLUE, ORANGE, finish, own_axes

if TYPE_CHECKING:
    from sccountsdiff.model import CountsDiffImputer


def history(
    model: CountsDiffImputer, *, ax: Axes | None = None, show: bool | None = None, save: str | Path | None = None
) -> Axes:
    """Training and validation loss by epoch, with the epoch whose weights were kept.

    Parameters
    ----------
    model
        A trained model.
    ax
        Axes to draw into; default: a new figure.
    show
        Show the figure; default: only if it was made here and is not saved.
    save
        File to save the figure to.

    Returns
    -------
    The axes that were drawn into.

    Examples
    --------
    >>> import sccountsdiff
    >>> ax = sccountsdiff.pl.history(model, show=False)
    >>> ax.get_xlabel()
    'Epoch'
    """
    if not model.history:
        raise ValueError("The model has no training history: call train() first.")
    ax, is_own = own_axes(ax)
    for name, label, line_colour in (("train_loss", "training", BLUE), ("validation_loss", "validation", ORANGE)):
        if name in model.history:
            losses = model.history[name].iloc[:, 0].astype(float)
            ax.plot(losses.index, losses, label=label, color=line_colour)
    if "validation_loss" in model.history:
        best = losses.idxmin()
        ax.plot(best, losses[best], "o", color="black", label="kept")
    ax.set(xlabel="Epoch", ylabel="Loss", title="Training")
    ax.legend(frameon=False)
    return finish(ax, is_own, show, save)
