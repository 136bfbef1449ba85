"""Guidance mixes in log space, in no more passes than it needs."""

import pytest
import torch

from sccountsdiff.diffusion import Prediction, guide

X = torch.arange(12.0).reshape(4, 3)
STATUS = torch.tensor([1.0, 0.0, -1.0]).repeat(4, 1)
T = torch.tensor([0.1, 0.4, 0.7, 1.0])


class Network:
    """Predictions that depend on everything a network is given; remembers the size of each call."""

    def __init__(self):
        self.sizes = []

    def __call__(self, x, status, t, null):
        self.sizes.append(len(x))
        assert len(x) == len(status) == len(t) == len(null) and null.dtype == torch.bool
        log_mean = torch.log1p(x) + status - t[:, None] + torch.where(null, 0.3, -1.1)[:, None] * (1 + x)
        return Prediction(log_mean, log_mean / 2 + 1)


def passes() -> tuple[Prediction, Prediction]:
    conditional, unconditional = (Network()(X, STATUS, T, torch.full((4,), null)) for null in (False, True))
    assert not torch.isclose(conditional.log_mean, unconditional.log_mean).any()
    return conditional, unconditional


@pytest.mark.parametrize(("gamma", "which"), [(1, 0), (1.0, 0), (0, 1), (0.0, 1)])
def test_one_pass_at_the_ends(gamma, which):
    network, expected = Network(), passes()[which]
    found = guide(network, gamma)(X, STATUS, T)
    assert network.sizes == [4]
    assert torch.equal(found.log_mean, expected.log_mean)
    assert torch.equal(found.log_dispersion, expected.log_dispersion)


@pytest.mark.parametrize("gamma", [0.5, 0.999, 2.0, 5.0])
def test_both_passes_as_one_batch_elsewhere(gamma):
    network, (conditional, unconditional) = Network(), passes()
    found = guide(network, gamma)(X, STATUS, T)
    assert network.sizes == [8]
    expected = conditional.mean**gamma * unconditional.mean ** (1 - gamma)
    torch.testing.assert_close(found.mean, expected, rtol=1e-4, atol=1e-6)
    assert torch.equal(found.log_dispersion, conditional.log_dispersion)


def test_a_network_without_dispersion():
    plain = lambda x, status, t, null: Prediction(Network()(x, status, t, null).log_mean)
    for gamma in (0, 1, 2):
        assert guide(plain, gamma)(X, STATUS, T).log_dispersion is None


@pytest.mark.parametrize("gamma", [-1, float("nan"), float("inf")])
def test_guidance_out_of_its_range_raises(gamma):
    with pytest.raises(ValueError, match=f"`guidance` must be finite and at least 0, not {gamma}"):
        guide(Network(), gamma)
