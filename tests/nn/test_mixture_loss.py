"""The loss of a mixture of negative binomials, and its derivatives by hand, are those of its parts."""

from __future__ import annotations

import pytest
import torch

from sccountsdiff.nn import Head, HeadInput, NegativeBinomialMixture, mixture_loss

N_CELLS, N_GENES = 70, 1500
"""More than one piece of entries."""


def make(n_components=2, dtype=torch.float64, n_cells=N_CELLS, log_dispersion=0.0, largest=None):
    draw = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(*shape, dtype=dtype, generator=draw)

    noised = (normal(n_cells, N_GENES) < 0.5).to(dtype)
    p = torch.rand(n_cells, 1, dtype=dtype, generator=draw)
    p[: n_cells // 3] = 0  # at t = 1
    y = torch.poisson(torch.exp(2 * normal(n_cells, N_GENES) - 1), generator=draw) * noised
    xt = torch.poisson(torch.rand(n_cells, N_GENES, dtype=dtype, generator=draw), generator=draw) * noised * (p > 0)
    largest = torch.linspace(1, 50, N_GENES, dtype=dtype) if largest is None else largest
    given = HeadInput(2 * normal(n_cells, N_GENES), xt, p * noised, torch.log1p(-p), largest, log_dispersion)
    weight = noised * torch.rand(n_cells, 1, dtype=dtype, generator=draw)
    return y, normal(3 * n_components - 1, n_cells, N_GENES).requires_grad_(), given, weight


def by_hand(y, outputs, given, weight):
    loss = NegativeBinomialMixture((len(outputs) + 1) // 3).total_loss(y, outputs, given, weight)
    return loss.detach(), torch.autograd.grad(loss, outputs)[0]


def by_autograd(y, outputs, given, weight):
    loss = Head.total_loss(NegativeBinomialMixture((len(outputs) + 1) // 3), y, outputs, given, weight)
    return loss.detach(), torch.autograd.grad(loss, outputs)[0]


@pytest.mark.parametrize("is_seen", [True, False])
@pytest.mark.parametrize(
    "options",
    [{}, {"n_components": 1}, {"n_components": 3}, {"n_cells": 1}, {"largest": torch.inf}, {"log_dispersion": 0.7}],
    ids=str,
)
def test_is_the_sum_of_the_losses_and_has_their_gradient(options, is_seen, monkeypatch):
    monkeypatch.setattr(mixture_loss, "host_sees", lambda values: is_seen)
    (loss, slope), (expected, expected_slope) = by_hand(*make(**options)), by_autograd(*make(**options))
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=0)
    torch.testing.assert_close(slope, expected_slope, rtol=1e-8, atol=1e-8)


def test_dispersions_may_be_those_of_entries():
    given = make(log_dispersion=torch.randn(N_CELLS, N_GENES).double())
    (loss, slope), (expected, expected_slope) = by_hand(*given), by_autograd(*given)
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=0)
    torch.testing.assert_close(slope, expected_slope, rtol=1e-8, atol=1e-8)


def test_single_precision_loses_no_more_than_it_must():
    def as_double(value):
        if isinstance(value, HeadInput):
            return HeadInput(*(v.double() if isinstance(v, torch.Tensor) else v for v in vars(value).values()))
        return value.detach().double().requires_grad_(value.requires_grad)

    loss, slope = by_hand(*make(dtype=torch.float32))
    expected, expected_slope = by_hand(*map(as_double, make(dtype=torch.float32)))
    torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=0)
    torch.testing.assert_close(slope.double(), expected_slope, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("is_seen", [True, False])
@pytest.mark.parametrize("extreme", [-120.0, 120.0])
@pytest.mark.parametrize("output", range(3))
def test_extreme_outputs_have_a_gradient(output, extreme, is_seen, monkeypatch):
    """Of a mean, a weight or a ratio of means of which single precision knows no more."""
    monkeypatch.setattr(mixture_loss, "host_sees", lambda values: is_seen)
    y, outputs, given, weight = make(dtype=torch.float32, n_cells=4)
    with torch.no_grad():
        outputs[output] = max(extreme, -70.0) if output == 0 else extreme
        outputs[0].clamp_(max=20.0)
    _, slope = by_hand(y, outputs, given, weight)
    assert slope.isfinite().all()


def test_entries_without_weight_have_no_slope():
    y, outputs, given, weight = make()
    _, slope = by_hand(y, outputs, given, weight)
    assert (slope[:, weight == 0] == 0).all() and (slope[0, weight > 0] != 0).all()
