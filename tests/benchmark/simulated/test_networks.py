"""All models of the study have the same size; training lowers the loss, and its generator decides."""

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
from sccountsdiff.benchmark.simulated.networks import TimeMLP, fit, matched_width
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


def test_training_lowers_the_loss_and_the_generator_decides():
    counts = torch.poisson(torch.full((300, 2), 3.0), generator=torch.Generator().manual_seed(0))
    budget = Budget(n_gradient_steps=150, batch_size=64)
    losses, weights = [], []
    for _ in range(2):
        torch.manual_seed(0)
        model = CountsDiffusion(counts, 8)
        loss = lambda model=model: model.loss(
            counts, torch.linspace(0.01, 0.99, 300), torch.Generator().manual_seed(5)
        ).item()
        before = loss()
        fit(model, counts, budget, 1e-2, torch.Generator().manual_seed(1), silent=True)
        losses.append((before, loss()))
        weights.append(model.network.out.weight.detach().clone())
    assert losses[0][1] < losses[0][0] - 0.1
    torch.testing.assert_close(*weights, rtol=0, atol=0)


@pytest.mark.parametrize("name", list(Budget.__dataclass_fields__))
def test_empty_budgets_are_refused(name):
    with pytest.raises(ValueError, match=name):
        Budget(**{name: 0})
