"""What is hidden of training cells: the patterns that users come with."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sccountsdiff.diffusion.bernoulli import below, random_bits
from sccountsdiff.diffusion.host import none_of
from sccountsdiff.diffusion.products import linear

NOTHING_OBSERVED_SHARE = 0.15
"""Share of training cells of which nothing is shown as observed, so that the model can generate."""

BORROWED_SHARE = 0.5
"""Share, of the others, that are shown with what another cell lacks hidden, where entries are missing."""

RELATED_SHARE = 0.3
"""Share of the rest in which related genes are hidden together."""

GROUP_SHARE = 0.2
"""Share of the rest of which a whole group of genes is hidden, such as a modality."""


def draw_observed(
    shape: Sequence[int],
    device: torch.device,
    missing: Tensor | None = None,
    directions: Tensor | None = None,
    groups: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Which entries of training cells are shown as observed: the rest is what users come to have filled in.

    Of each cell a share, uniform in [0, 1], is observed (of some cells nothing, so that the model can generate): single
    entries at random, or related genes together, as in gene panels. Of others a whole group of genes is hidden, or what
    another cell lacks: a network that never saw such a pattern is biased and too sure of itself there.

    Parameters
    ----------
    shape
        ``(cells, genes)``, or of images.
    device
        Where to draw.
    missing
        Entries without a count, boolean, ``(cells, genes)``.
    directions
        Vectors of length 1, one for each gene; genes are the more alike the smaller the angle between theirs.
    groups
        Which genes are in each group, such as a modality, boolean ``(groups, genes)``.
    generator
        Source of randomness; default: torch's global one.

    Returns
    -------
    Boolean tensor.

    Examples
    --------
    >>> import torch
    >>> from sccountsdiff.diffusion import draw_observed
    >>> draw_observed((4, 3), torch.device("cpu"), generator=torch.Generator().manual_seed(0)).shape
    torch.Size([4, 3])
    """
    n, ones = shape[0], [1] * (len(shape) - 1)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator, device=device)

    share, nothing = uniform(n, *ones), uniform(n, *ones) < NOTHING_OBSERVED_SHARE
    share = share.masked_fill(nothing, 0)
    bits, alone = random_bits(shape, device, generator), share
    observed = None
    if directions is not None:
        # The angle of each gene with a direction drawn at random: normal for each gene, alike for genes that are.
        drawn = torch.randn(n, directions.shape[1], dtype=directions.dtype, generator=generator, device=device)
        with torch.autocast(device.type, enabled=False):
            angle = linear(drawn, directions)
        # Of each cell one of the two shares is 0, and nothing is below it: one mask or the other.
        related = uniform(n, 1) < RELATED_SHARE
        observed = angle < torch.special.ndtri(share.masked_fill(~related, 0))
        alone = share.masked_fill(related, 0)
    observed = below(bits, alone) if observed is None else below(bits, alone).logical_or_(observed)
    if groups is not None:
        hidden = groups[torch.randint(len(groups), (n,), generator=generator, device=device)]
        tells = True if missing is None else (hidden & ~missing).any(1, keepdim=True)  # not if the cell lacks it anyway
        observed = torch.where(tells & (uniform(n, 1) < GROUP_SHARE) & ~nothing, ~hidden, observed)
    if missing is not None:
        other, chance = torch.randperm(n, generator=generator, device=device), uniform(n, 1) < BORROWED_SHARE
        if not none_of(missing):
            lacks = missing[other]
            tells = (lacks & ~missing).any(
                1, keepdim=True
            )  # of a cell that has all the other has, nothing would be hidden
            observed = torch.where(tells & chance & ~nothing, ~lacks, observed)
    return observed
