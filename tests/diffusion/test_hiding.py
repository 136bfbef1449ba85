"""Which entries of training cells are hidden: single ones, related genes, groups, and what other cells lack."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from sccountsdiff.diffusion import draw_observed
from sccountsdiff.diffusion.hiding import BORROWED_SHARE, GROUP_SHARE, NOTHING_OBSERVED_SHARE, RELATED_SHARE

N_CELLS, N_GENES = 4000, 12
CPU = torch.device("cpu")


def draw(seed=0, **patterns):
    return draw_observed((N_CELLS, N_GENES), CPU, **patterns, generator=torch.Generator().manual_seed(seed))


def assert_share(found, expected):
    """A share of cells, within four standard errors."""
    assert abs(float(found.float().mean()) - expected) < 4 * (expected * (1 - expected) / len(found)) ** 0.5


def test_the_observed_share_of_a_cell_is_uniform_but_for_cells_of_which_nothing_is():
    share = draw().float().mean(1)
    # Nothing is observed of 15 %, and of those with a uniform share s that happens to leave none: (1 - s)^12.
    assert_share(share == 0, NOTHING_OBSERVED_SHARE + (1 - NOTHING_OBSERVED_SHARE) / (N_GENES + 1))
    assert_share(share == 1, (1 - NOTHING_OBSERVED_SHARE) / (N_GENES + 1))


def test_related_genes_are_hidden_together_and_each_gene_as_often_as_before():
    """Two groups of genes, each with one direction: in some cells all of a group is observed or nothing."""
    directions = F.normalize(torch.eye(2).repeat_interleave(N_GENES // 2, 0))
    observed = draw(directions=directions)
    assert_share(observed[:, 0], (1 - NOTHING_OBSERVED_SHARE) / 2)
    halves = observed.view(N_CELLS, 2, -1)
    # A uniform share s puts all of six genes on one side with s^6 + (1 - s)^6, related ones always.
    alike = 2 / (N_GENES // 2 + 1)
    together = 1 - (1 - NOTHING_OBSERVED_SHARE) * (1 - RELATED_SHARE) * (1 - alike)
    assert_share((halves.all(2) | ~halves.any(2))[:, 0], together)


def test_whole_groups_are_hidden_and_all_else_is_observed():
    groups = torch.arange(N_GENES) < 4
    observed = draw(groups=torch.stack([groups, ~groups]))
    for hidden in (groups, ~groups):
        found = (observed == ~hidden).all(1)
        by_chance = (1 - NOTHING_OBSERVED_SHARE) / (13 * 495)  # one of the 495 ways to observe as many of 12
        assert_share(found, (1 - NOTHING_OBSERVED_SHARE) * GROUP_SHARE / 2 + (1 - GROUP_SHARE) * by_chance)


def test_what_another_cell_lacks_is_hidden():
    """Cells lack the first genes or nothing: those with all genes are shown with the first ones hidden."""
    missing = torch.zeros(N_CELLS, N_GENES, dtype=torch.bool)
    missing[::2, :5] = True
    observed = draw(missing=missing)
    found = (observed == (torch.arange(N_GENES) >= 5)).all(1)
    assert_share(found[1::2], (1 - NOTHING_OBSERVED_SHARE) * BORROWED_SHARE / 2)  # half of the others lack something
    assert found[::2].float().mean() < 0.01  # cells that lack these genes learn nothing from that


def test_of_some_cells_nothing_is_observed_whatever_the_pattern():
    missing = torch.zeros(N_CELLS, N_GENES, dtype=torch.bool)
    missing[::2, :5] = True
    groups = torch.arange(N_GENES) < 4
    observed = draw(missing=missing, groups=torch.stack([groups, ~groups]))
    assert (~observed.any(1)).float().mean() > NOTHING_OBSERVED_SHARE - 4 * (0.15 * 0.85 / N_CELLS) ** 0.5


def test_a_group_that_a_cell_lacks_is_not_hidden_again():
    missing = torch.zeros(N_CELLS, N_GENES, dtype=torch.bool)
    missing[:, :4] = True
    groups = torch.arange(N_GENES) < 4
    observed = draw(missing=missing, groups=torch.stack([groups, ~groups]))
    assert_share((observed | missing).all(1), (1 - NOTHING_OBSERVED_SHARE) * (1 - GROUP_SHARE / 2) / (8 + 1))


def test_without_missing_entries_none_are_borrowed():
    assert torch.equal(draw(), draw(missing=torch.zeros(N_CELLS, N_GENES, dtype=torch.bool)))


def test_images():
    assert draw_observed((5, 3, 4, 4), CPU).shape == (5, 3, 4, 4)
