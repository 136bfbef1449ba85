"""Masks from 16 random bits for each entry."""

from __future__ import annotations

import pytest
import torch

from sccountsdiff.diffusion import bernoulli

CPU, N = torch.device("cpu"), 400_000


@pytest.mark.parametrize("p", [0.0, 2**-16, 0.1, 0.5, 0.999])
def test_share_and_independence(p, generator):
    mask = bernoulli((N,), p, CPU, generator).double()
    error = (p * (1 - p) / N) ** 0.5
    assert abs(float(mask.mean()) - p) <= 4 * error + 2**-16
    # Neighbours come from the same random number: their products have the mean of independent ones.
    for distance in (1, 2, 3):
        together = float((mask[:-distance] * mask[distance:]).mean())
        assert abs(together - p**2) <= 4 * (p**2 * (1 - p**2) / N + 4 * p**2 * error**2) ** 0.5 + 2**-15 * p + 1e-12


def test_each_row_may_have_its_own_share(generator):
    p = torch.tensor([[0.0], [0.25], [0.9]])
    share = bernoulli((3, N), p, CPU, generator).double().mean(1)
    assert ((share - p[:, 0]).abs() <= 4 * (p * (1 - p) / N).sqrt()[:, 0] + 2**-16).all()


@pytest.mark.parametrize("shape", [(0,), (1,), (3, 5), (2, 3, 7)])
def test_any_shape_and_the_same_for_a_seed(shape):
    first, second = (bernoulli(shape, 0.5, CPU, torch.Generator().manual_seed(3)) for _ in range(2))
    assert first.shape == shape and first.dtype == torch.bool and torch.equal(first, second)
