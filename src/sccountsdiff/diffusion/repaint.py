"""How the network is shown the entries that are already known (Section 3.6)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from sccountsdiff.diffusion.denoiser import KNOWN, NOISED
from sccountsdiff.diffusion.process import thin

Known = Literal["clean", "noised"]


def show_known(
    x: Tensor, x0: Tensor, status: Tensor, p_t: float, known: Known, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor]:
    """State and status as the network sees them at survival ``p_t``.

    ``"clean"`` gives known counts as they are, flagged as known. ``"noised"`` is RePaint: known counts are thinned to
    the level of the others and look like them.

    Examples
    --------
    >>> import torch
    >>> from sccountsdiff.diffusion import show_known
    >>> x, status = show_known(torch.zeros(1, 2), torch.tensor([[5.0, 0.0]]), torch.tensor([[1.0, 0.0]]), 1.0, "noised")
    >>> x.tolist(), status.tolist()
    ([[5.0, 0.0]], [[0.0, 0.0]])
    """
    is_known = status == KNOWN
    if known == "clean":
        return torch.where(is_known, x0, x), status
    if known == "noised":
        shown = x.clone()
        shown[is_known] = thin(x0[is_known], p_t, generator)
        return shown, status.masked_fill(is_known, NOISED)
    raise ValueError(f"`known` must be 'clean' or 'noised', not {known!r}.")
