"""Short cuts that the host can see give what is found without them."""

from __future__ import annotations

import pytest
import torch

from sccountsdiff.diffusion import Cosine, draw_noised, host


def test_of_other_devices_the_host_sees_nothing():
    there = torch.zeros(2, dtype=torch.bool, device="meta")
    assert host.host_sees(torch.zeros(1, device="cpu")) and not host.host_sees(there)
    assert not host.none_of(there)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_masks_are_seen_as_they_are(share, monkeypatch):
    mask = torch.rand(40, 30, generator=torch.Generator().manual_seed(0)) < share
    seen = host.positions(mask)
    assert host.none_of(mask) == (not bool(mask.any()))
    monkeypatch.setattr(host, "host_sees", lambda values: False)
    assert torch.equal(host.positions(mask), seen) and not host.none_of(mask)


def test_the_same_is_drawn_whether_it_is_seen_that_nothing_is_missing(monkeypatch):
    x0 = torch.poisson(torch.full((50, 20), 2.0), generator=torch.Generator().manual_seed(0))

    def draw():
        nothing = torch.zeros_like(x0, dtype=torch.bool)
        generator = torch.Generator().manual_seed(1)
        return draw_noised(x0, Cosine(), missing=nothing, observed_training=True, thin_cells=True, generator=generator)

    seen = draw()
    monkeypatch.setattr(host, "host_sees", lambda values: False)
    for name, value in vars(draw()).items():
        assert torch.equal(value, getattr(seen, name)), name
