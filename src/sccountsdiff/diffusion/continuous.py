"""From non-negative real numbers to counts and back (App. A.5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

LARGEST_COUNT = 2**24
"""Single precision holds whole numbers exactly up to here."""


@dataclass(frozen=True)
class PoissonCounts:
    """JUMP's Poisson randomisation: any model of counts becomes one of continuous, non-negative data.

    Train the model on :meth:`encode`, ``z ~ Poisson(scale * x)``, and divide what it draws by ``scale``
    (:meth:`decode`). What is drawn has the right mean and, for data with variance v and mean m, the variance
    ``v + m / scale``: it becomes exact as ``scale`` grows.

    Parameters
    ----------
    scale
        Counts for one unit of the data, lambda of App. A.5; at least 1.

    Examples
    --------
    >>> import torch
    >>> from sccountsdiff.diffusion.continuous import PoissonCounts
    >>> counts = PoissonCounts(scale=1000.0)
    >>> z = counts.encode(torch.tensor([0.0, 2.5]), torch.Generator().manual_seed(0))
    >>> counts.decode(z).round(decimals=1).tolist()
    [0.0, 2.5]

    With cells: ``adata.X = counts.encode(adata.X.toarray()).numpy()`` before training, ``counts.decode(model.generate(100).X)`` after.
    """

    scale: float

    def __post_init__(self):
        if not self.scale >= 1:
            raise ValueError(f"`scale` must be at least 1, not {self.scale}.")

    def encode(self, x, generator: torch.Generator | None = None) -> Tensor:
        """Draw the counts of ``x``: a tensor, or anything that torch makes one of.

        Parameters
        ----------
        x
            Finite, non-negative values.
        generator
            Source of randomness.
        """
        x = torch.as_tensor(x)
        x = x if x.is_floating_point() else x.float()
        if not bool((x >= 0).all() and torch.isfinite(x).all()):
            raise ValueError("`x` must be finite and not negative.")
        if x.numel() and float(x.max()) * self.scale > LARGEST_COUNT:
            raise ValueError(
                f"`x` up to {float(x.max()):g} with `scale` {self.scale:g} makes counts above {LARGEST_COUNT}, more than "
                "single precision holds exactly; use a smaller scale."
            )
        return torch.poisson(self.scale * x, generator=generator)

    def decode(self, z: Any) -> Any:
        """Counts back to the scale of the data; takes tensors, arrays and sparse matrices alike."""
        return z / self.scale
