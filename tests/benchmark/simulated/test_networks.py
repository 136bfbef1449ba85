"""All models of the study have the same size."""

import numpy as np
import pytest
import torch

from sccountsdiff.benchmark.simulated import (
    Budget,
    CountsDiffusion,
    GaussianDiffusion,
    MaskedDiffusion,
    NegativeBinomialToy,
)
from sccountsdiff.benchmark.simulated.networks import TimeMLP, matched_width
from sccountsdiff.benchmark.simulated.study import SETTINGS


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_models_of_the_study_have_the_same_size_within_three_percent(setting, seed):
    toy = NegativeBinomialToy.draw(seed, mean_range=setting.mean_range)
    counts = torch.as_tensor(toy.sample(10_000, np.random.default_rng([seed, 1])))
    masked = MaskedDiffusion(counts, Budget().masked_width)
    width = matched_width(10, 10, masked.n_parameters)
    for kind in (GaussianDiffusion, CountsDiffusion):
        assert abs(kind(counts, width).n_parameters / masked.n_parameters - 1) < 0.03


def test_network_depends_on_time_and_state():
    network = TimeMLP(3, 2, 8)
    x, t = torch.zeros(1, 3), torch.tensor([0.2])
    assert not torch.allclose(network(x, t), network(x, t + 0.1))
    assert not torch.allclose(network(x, t), network(x + 1, t))
