"""Training lowers the loss, and its generator decides."""

import pytest
import torch

from sccountsdiff.benchmark.simulated import (
    Budget,
    CountsDiffusion,
)
from sccountsdiff.benchmark.simulated.training import fit


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
