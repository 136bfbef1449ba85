"""Known entries as the network sees them."""

import pytest
import torch
from scipy import stats

from sccountsdiff.diffusion import MISSING, NOISED, OBSERVED, show_observed

N = 20_000
STATUS = torch.tensor([OBSERVED, NOISED, MISSING, OBSERVED]).repeat(N, 1)
X0 = torch.tensor([9.0, 5.0, 0.0, 3.0]).repeat(N, 1)
X = torch.tensor([0.0, 2.0, 0.0, 0.0]).repeat(N, 1)


def test_clean_leaves_known_counts_as_they_are():
    shown, status = show_observed(X, X0, STATUS, 0.3, "clean")
    assert torch.equal(shown, torch.tensor([9.0, 2.0, 0.0, 3.0]).repeat(N, 1))
    assert torch.equal(status, STATUS)


@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_noised_thins_known_counts_and_hides_that_they_are_known(p, generator, assert_follows):
    shown, status = show_observed(X, X0, STATUS, p, "noised", generator)
    assert_follows(shown[:, 0], stats.binom(9, p))
    assert_follows(shown[:, 3], stats.binom(3, p))
    assert torch.equal(shown[:, 1:3], X[:, 1:3])
    assert torch.equal(status, torch.tensor([NOISED, NOISED, MISSING, NOISED]).repeat(N, 1))


@pytest.mark.parametrize("known", ["clean", "noised"])
def test_arguments_are_left_alone(known, generator):
    x, x0, status = X.clone(), X0.clone(), STATUS.clone()
    show_observed(x, x0, status, 0.3, known, generator)
    assert torch.equal(x, X) and torch.equal(x0, X0) and torch.equal(status, STATUS)


def test_errors():
    with pytest.raises(ValueError, match="`known` must be 'clean' or 'noised', not 'dirty'"):
        show_observed(X, X0, STATUS, 0.3, "dirty")
