"""Counts become classes, and large ones come back as training counts."""

import numpy as np
import pandas as pd
import pytest
import torch

from sccountsdiff.benchmark.baselines.base import Cells
from sccountsdiff.benchmark.baselines.count_classes import CountClasses


def cells_of(counts, observed=None):
    counts = np.asarray(counts, dtype=np.float32)
    observed = np.ones(counts.shape, dtype=bool) if observed is None else observed
    return Cells(counts, observed, pd.DataFrame(index=range(len(counts))))


def test_large_counts_come_back_as_training_counts_of_their_gene():
    counts = np.array([[0, 40, 0, 7], [1, 50, 2, 0], [3, 0, 1, 99]])
    observed = np.ones(counts.shape, dtype=bool)
    observed[2, 3] = False
    classes = CountClasses(cells_of(counts * observed, observed), 1.0, max_classes=6)
    assert len(classes) == 6
    below = torch.tensor([[0.0, 1.0, 4.0, 3.0]])
    assert torch.equal(classes.decode(classes.encode(below)), below)
    large = classes.decode(torch.full((4000, 4), 5), torch.Generator().manual_seed(0))
    for gene, values in enumerate([{40, 50, 7}, {40, 50}, {40, 50, 7}, {7}]):  # genes 0 and 2 had none
        assert set(large[:, gene].tolist()) == values
    assert (large[:, 1] == 40).float().mean().item() == pytest.approx(0.5, abs=5 * 0.5 / 4000**0.5)


@pytest.mark.parametrize(("counts", "n_classes"), [([[0, 0]], 2), ([[0, 3]], 4), ([[0] * 99 + [500]], 2)])
def test_number_of_classes(counts, n_classes):
    assert len(CountClasses(cells_of(counts), 0.95, max_classes=10)) == min(n_classes, 10)


def test_means_of_laws_are_those_of_what_they_become():
    """Of the last class, counts in training of the gene: their mean, with a standard error of a hundredth of it."""
    counts = np.array([[0, 40, 0, 7], [1, 50, 2, 0], [3, 0, 1, 99]])
    classes = CountClasses(cells_of(counts), 1.0, max_classes=6)
    law = torch.rand(4, 6, generator=torch.Generator().manual_seed(0))
    law /= law.sum(1, keepdim=True)
    generator = torch.Generator().manual_seed(1)
    drawn = classes.decode(torch.multinomial(law, 40_000, replacement=True, generator=generator).T, generator)
    error = drawn.std(0) / len(drawn) ** 0.5
    assert ((classes.mean(law, torch.arange(4)) - drawn.mean(0)).abs() < 4 * error).all()
    assert classes.mean(torch.eye(6)[3:4], torch.tensor([1])).item() == 3
