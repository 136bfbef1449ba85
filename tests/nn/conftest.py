"""Small networks around fixed gene means, and cells for them."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from sccountsdiff import CountsDiffImputer
from sccountsdiff.diffusion import MISSING, NOISED, OBSERVED, Cosine
from sccountsdiff.nn import Backbone, CountsDenoiser, HeadInput, get_backbone, get_head

N_CELLS, N_GENES, N_CATEGORIES, N_CONTINUOUS = 6, 8, (3, 2), 2
SMALL = {
    "mlp": {"n_hidden": 16, "dropout_rate": 0.0},
    "transformer": {"n_hidden": 8, "n_layers": 2, "n_heads": 2, "dropout_rate": 0.0},
}


PSEUDO = 10.0


class Given(Backbone):
    """A backbone whose outputs are given, and which remembers what it was shown."""

    def __init__(self, outputs):
        super().__init__()
        self.n_hidden = 4
        self.outputs = outputs

    def forward(self, channels, tokens):
        self.channels, self.tokens = channels, tokens
        return self.outputs


def _perturb(module: nn.Module) -> nn.Module:
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    return module


@pytest.fixture(scope="session")
def perturb():
    """Moves all weights of a network away from where they start."""
    return _perturb


@pytest.fixture(scope="session")
def given():
    """A backbone whose outputs are given."""
    return Given


@pytest.fixture
def channels() -> torch.Tensor:
    """What a backbone is shown of 5 cells with 7 genes."""
    return torch.randn(5, 3, 7, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def tokens() -> torch.Tensor:
    """Four conditioning tokens of width 8 for each of them."""
    return torch.randn(5, 4, 8, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def depth_factors(gene_means):
    """Counts seen over counts that a mean cell would show, both plus ten, cell by cell."""

    def factors(cells, schedule=Cosine()) -> torch.Tensor:
        found = []
        for x, status, t in zip(cells.x.tolist(), cells.status.tolist(), cells.t.tolist(), strict=True):
            share = {OBSERVED: 1.0, NOISED: schedule.survival(t).item(), MISSING: 0.0}
            seen = sum(count for count, s in zip(x, status, strict=True) if s != MISSING)
            expected = sum(share[s] * mean for s, mean in zip(status, gene_means.tolist(), strict=True))
            found.append([(seen + PSEUDO) / (expected + PSEUDO)])
        return torch.tensor(found)

    return factors


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
            backbone = get_backbone(backbone)(len(gene_means), get_head(head).n_outputs, **SMALL[backbone])
        denoiser = CountsDenoiser(backbone, gene_means, schedule or Cosine(), head, N_CATEGORIES, N_CONTINUOUS)
        return (_perturb(denoiser) if perturb else denoiser).eval()

    return make


@pytest.fixture
def cells() -> SimpleNamespace:
    """The arguments of a denoiser: observed, noised and missing entries, all times, all categories."""
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
def given_input() -> HeadInput:
    """What a head knows of four cells with three genes: means, noised counts, survival."""
    generator = torch.Generator().manual_seed(0)
    p = torch.tensor([0.1, 0.5, 0.9, 0.0], dtype=torch.float64)[:, None]
    xt = torch.tensor([[0, 1, 3], [2, 0, 9], [4, 1, 0], [0, 0, 0]], dtype=torch.float64)
    log_mean = torch.randn(4, 3, generator=generator, dtype=torch.float64)
    return HeadInput(log_mean=log_mean, xt=xt, p=p.expand(4, 3), log_lost=torch.log1p(-p))


@pytest.fixture
def remaining_by_enumeration(given_input):
    """Probabilities of what remains of an entry, from those of all its counts, by Bayes' rule."""

    def probabilities(place, prior: np.ndarray) -> np.ndarray:
        p, x = float(given_input.p[place]), int(given_input.xt[place])
        posterior = prior * stats.binom.pmf(x, np.arange(len(prior)), p)
        return posterior[x:] / posterior.sum()

    return probabilities


@pytest.fixture
def use_a_head(simulate, train, tmp_path, dense):
    """A short training with a head, and everything that a model of it can be asked for."""

    def use(head, **setup) -> None:
        adata = simulate(60).adata
        if setup:
            CountsDiffImputer.setup_anndata(adata, labels_key="cell_type", **setup)
        model = train(adata, 2, model_kwargs={"head": head})
        counts, quick = adata.X.toarray(), {"silent": True, "seed": 0, "n_folds": 2}
        draws = model.impute(n_samples=2, n_steps=3, return_mean=False, **quick)
        assert (draws == np.rint(draws)).all() and (draws[:, counts > 0] == counts[counts > 0]).all()
        mean = dense(model.impute(n_steps=1, final="mean", **quick))
        log_mean = dense(model.impute(final="log_mean", **quick))
        assert np.isfinite(mean).all() and (0 <= log_mean).all() and (log_mean <= mean + 1e-5).all()
        assert (log_mean < mean).any()
        assert model.posterior_predictive_sample(n_steps=2, **quick).shape == adata.shape
        assert np.isfinite(model.log_likelihood(n_times=4, seed=0, silent=True)).all()
        assert (
            np.isfinite(model.denoise(silent=True)).all()
            and np.isfinite(model.denoise(final="log_mean", silent=True)).all()
        )
        assert model.generate(3, n_steps=2, silent=True).shape == (3, adata.n_vars)
        model.save(tmp_path / "model")
        again = CountsDiffImputer.load(tmp_path / "model", adata=adata, accelerator="cpu")
        np.testing.assert_array_equal(again.impute(n_samples=2, n_steps=3, return_mean=False, **quick), draws)

    return use


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
