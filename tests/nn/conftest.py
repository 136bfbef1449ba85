"""Small networks around fixed gene means, and cells for them."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from sccountsdiff.diffusion import MISSING, NOISED, OBSERVED, Cosine
from sccountsdiff.nn import CountsDenoiser, get_backbone

N_CELLS, N_GENES, N_CATEGORIES, N_CONTINUOUS = 6, 8, (3, 2), 2
SMALL = {
    "mlp": {"n_hidden": 16, "dropout_rate": 0.0},
    "transformer": {"n_hidden": 8, "n_layers": 2, "n_heads": 2, "dropout_rate": 0.0},
}


@pytest.fixture(params=["mlp", "transformer"])
def backbone_name(request) -> str:
    return request.param


@pytest.fixture(scope="session")
def gene_means() -> torch.Tensor:
    return torch.tensor([0.05, 0.3, 1.0, 2.0, 4.5, 10.0, 0.7, 25.0])


@pytest.fixture(scope="session")
def make_denoiser(gene_means):
    """A denoiser in evaluation mode; ``perturb`` moves all weights away from where they start."""

    def make(backbone="mlp", head="nb", schedule=None, perturb=False, gene_means=gene_means) -> CountsDenoiser:
        torch.manual_seed(0)
        if isinstance(backbone, str):
            n_outputs = CountsDenoiser.n_outputs(head)
            backbone = get_backbone(backbone)(len(gene_means), n_outputs, **SMALL[backbone])
        denoiser = CountsDenoiser(backbone, gene_means, schedule or Cosine(), head, N_CATEGORIES, N_CONTINUOUS)
        if perturb:
            with torch.no_grad():
                for parameter in denoiser.parameters():
                    parameter += 0.2 * torch.randn_like(parameter)
        return denoiser.eval()

    return make


@pytest.fixture
def cells() -> SimpleNamespace:
    """The arguments of a denoiser: known, noised and absent entries, all times, all categories."""
    generator = torch.Generator().manual_seed(1)
    status = torch.tensor([OBSERVED, NOISED, MISSING])[torch.randint(0, 3, (N_CELLS, N_GENES), generator=generator)]
    status[:, :3] = torch.tensor([OBSERVED, NOISED, MISSING])
    x = torch.randint(0, 20, (N_CELLS, N_GENES), generator=generator).float().masked_fill(status == MISSING, 0)
    return SimpleNamespace(
        x=x,
        status=status,
        t=torch.tensor([0.05, 0.3, 0.5, 0.8, 0.95, 1.0]),
        categories=torch.stack([torch.arange(N_CELLS) % n for n in N_CATEGORIES], dim=1),
        continuous=torch.randn(N_CELLS, N_CONTINUOUS, generator=generator),
        null=torch.zeros(N_CELLS, dtype=torch.bool),
    )


@pytest.fixture
def predict(cells):
    """Prediction for the cells, some of the arguments exchanged."""
    return lambda denoiser, **changes: denoiser(**(vars(cells) | changes))


@pytest.fixture
def train_a_little():
    """Some steps of gradient descent, away from a start where the last layer is zero."""

    def train(module: nn.Module, loss, n_steps: int = 3) -> None:
        optimizer = torch.optim.SGD(module.parameters(), lr=0.05)
        for _ in range(n_steps):
            optimizer.zero_grad()
            loss().backward()
            optimizer.step()
        optimizer.zero_grad()

    return train
