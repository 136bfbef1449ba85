"""Entries are hidden and packed as asked, and trainings end after the steps asked for."""

import numpy as np
import pytest
import torch
from anndata import AnnData

from sccountsdiff.benchmark.baselines.masking import hide, pack, random_part
from sccountsdiff.benchmark.baselines.scgpt import SCGPT

SMALL = {"n_hidden": 8, "n_heads": 2, "n_layers": 1, "max_epochs": 1}


@pytest.fixture(scope="module")
def counts():
    return np.random.default_rng(0).poisson(np.random.default_rng(1).gamma(0.5, 4, (30, 12))).astype(np.float32)


def test_packing_and_hiding():
    torch.manual_seed(0)
    wanted = torch.rand(500, 40) < 0.3
    index, valid = pack(wanted)
    assert valid.sum(dim=1).equal(wanted.sum(dim=1)) and index.shape[1] == wanted.sum(dim=1).max()
    assert torch.zeros_like(wanted).scatter(1, index, valid).equal(wanted)
    index, valid = pack(torch.ones(500, 40, dtype=torch.bool), n_max=10)
    chosen = torch.zeros(500, 40).scatter(1, index, valid.float())
    assert (chosen.sum(dim=1) == 10).all()
    assert (chosen.mean(dim=0) - 0.25).abs().max() < 4.5 * np.sqrt(0.25 * 0.75 / 500), "not by chance"
    observed = torch.rand(4000, 20) < 0.8
    hidden = hide(observed, torch.tensor([0.2, 0.6]))
    assert not (hidden & ~observed).any()
    assert float(hidden.sum() / observed.sum()) == pytest.approx(0.4, abs=4.5 * 0.25 / np.sqrt(4000))


def test_budget_of_steps_in_whole_epochs(counts):
    method = SCGPT(**SMALL | {"max_epochs": 50, "batch_size": 10, "max_steps": 7}).fit(AnnData(counts))
    assert len(method.history) == 3, "30 cells are 3 steps of 10"
    assert method.max_epochs == 50
    unbounded = SCGPT(**SMALL | {"max_epochs": 5, "batch_size": 10, "max_steps": None, "patience": None})
    assert len(unbounded.fit(AnnData(counts)).history) == 5
    with pytest.raises(ValueError, match="hidden_shares"):
        SCGPT(hidden_shares=(0.5, 1.0))


def test_a_random_part_has_every_share_of_the_observed_entries():
    torch.manual_seed(0)
    observed = torch.rand(4000, 30) < 0.8
    part = random_part(observed)
    assert not (part & ~observed).any()
    shares = part.sum(dim=1) / observed.sum(dim=1)
    for quantile in (0.1, 0.5, 0.9):
        assert float(shares.quantile(quantile)) == pytest.approx(quantile, abs=0.04)
