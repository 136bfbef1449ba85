"""How the network is shown the entries that are observed (Section 3.6)."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from sccountsdiff.checks import one_of
from sccountsdiff.diffusion.host import only_where
from sccountsdiff.diffusion.prediction import NOISED, OBSERVED
from sccountsdiff.diffusion.process import thin

Known = Literal["clean", "noised"]
WAYS_TO_SHOW = get_args(Known)


def show_observed(
    x: Tensor, x0: Tensor, status: Tensor, p_t: float, known: Known, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor]:
    """State and status as the network sees them at survival ``p_t``.

    ``"clean"`` gives observed counts as they are, flagged as such. ``"noised"`` is RePaint: they are thinned to
    the level of the others and look like them.

    Parameters
    ----------
    x
        The state of the walk, ``(cells, genes)``.
    x0
        The observed counts; other entries are ignored.
    status
        :data:`OBSERVED`, :data:`NOISED` or :data:`MISSING` for each entry.
    p_t
        Survival at the time of the state.
    known
        ``"clean"`` or ``"noised"``, see above.
    generator
        Source of randomness; default: torch's global one.

    Returns
    -------
    The counts and the status to give to the network.

    Examples
    --------
    >>> import torch
    >>> from sccountsdiff.diffusion import show_observed
    >>> x, status = show_observed(
    ...     torch.zeros(1, 2), torch.tensor([[5.0, 0.0]]), torch.tensor([[1.0, 0.0]]), 1.0, "noised"
    ... )
    >>> x.tolist(), status.tolist()
    ([[5.0, 0.0]], [[0.0, 0.0]])
    """
    one_of("known", known, WAYS_TO_SHOW)
    is_observed = status == OBSERVED
    if known == "clean":
        return torch.where(is_observed, x0, x), status
    thinned = thin(only_where(is_observed, x0), p_t, generator)  # zeros cost no draw
    return torch.where(is_observed, thinned, x), status.masked_fill(is_observed, NOISED)
