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


def test_values_are_found_and_chosen_alike_on_all_devices(monkeypatch):
    status = torch.randint(-1, 2, (40, 30), generator=torch.Generator().manual_seed(0)).float()
    values = torch.arange(1200.0).view(40, 30).masked_fill(status != 1, torch.nan)
    places, chosen = host.positions_of(1.0, status), host.only_where(status == 1, values)
    assert torch.equal(status.flatten()[places], torch.ones(len(places))) and len(places) == (status == 1).sum()
    assert torch.equal(chosen, values.nan_to_num())
    monkeypatch.setattr(host, "host_sees", lambda values: False)
    assert torch.equal(host.positions_of(1.0, status), places)
    assert torch.equal(host.only_where(status == 1, values), chosen)


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


def test_rows_are_one_if_they_are_alike(monkeypatch):
    alike = torch.arange(4.0).expand(3, -1)
    other = alike.clone()
    other[1, 2] = 7  # neither the first nor the last
    assert len(host.one_row_if_alike(alike)) == 1
    assert all(host.one_row_if_alike(values) is values for values in (other, alike[:1], alike[:0]))
    monkeypatch.setattr(host, "host_sees", lambda values: False)
    assert host.one_row_if_alike(alike) is alike


def test_rows_of_positions():
    mask = torch.tensor([[0, 1, 1], [0, 0, 0], [1, 0, 1]]).bool()
    assert host.rows_of(host.positions(mask), mask.shape).tolist() == [0, 0, 2, 2]
    assert host.rows_of(host.positions(mask & False), mask.shape).tolist() == []
