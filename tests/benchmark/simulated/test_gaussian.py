import math

import pytest
import torch

from sccountsdiff.benchmark.simulated import GaussianDiffusion
from sccountsdiff.benchmark.simulated.gaussian import denoise_gaussian
from sccountsdiff.diffusion import Cosine

N = 20_000


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


def test_exact_denoiser_of_two_points_gives_their_probabilities(generator):
    """x0 is 1 with probability 0.3, else -1: E[x0 | xt] = tanh(sqrt(a) xt / (1 - a) + log(0.3 / 0.7) / 2)."""

    def predict(x, t):
        a = Cosine().survival(t).to(x)
        return torch.tanh(a.sqrt() * x / (1 - a) + 0.5 * math.log(0.3 / 0.7))

    noise = torch.randn(N, generator=generator, dtype=torch.float64)
    x = denoise_gaussian(predict, noise, 200, generator)
    assert (x.abs() - 1).abs().max() < 0.05
    assert (
        abs((x > 0).double().mean() - 0.3) < 4 * math.sqrt(0.3 * 0.7 / N) + 0.005
    )  # 200 steps are not infinitely many


def test_exact_denoiser_of_a_normal_gives_its_mean_and_variance(generator):
    """x0 ~ N(1, 0.25): E[x0 | xt] is linear in xt."""

    def predict(x, t):
        a = Cosine().survival(t).to(x)
        return 1 + 0.25 * a.sqrt() * (x - a.sqrt()) / (0.25 * a + 1 - a)

    x = denoise_gaussian(predict, torch.randn(N, generator=generator, dtype=torch.float64), 500, generator)
    assert abs(x.mean() - 1) < 4 * 0.5 / math.sqrt(N)
    assert abs(x.var() - 0.25) < 4 * 0.25 * math.sqrt(2 / N) + 0.005


def test_loss_is_zero_for_the_true_velocity_and_only_for_it(generator, monkeypatch):
    """With all counts but one alike, x0 is known, and so is the noise in xt: the velocity follows."""
    counts = torch.full((50, 2), 3.0)
    counts[0] = 0.0
    model = GaussianDiffusion(counts, n_hidden=4)
    z0 = model.standardise(torch.full((20, 2), 3.0))

    def exact(zt, t):
        a = Cosine().survival(t).to(zt)[:, None]
        noise = (zt - a.sqrt() * z0) / (1 - a).sqrt()
        return a.sqrt() * noise - (1 - a).sqrt() * z0

    t = torch.linspace(0.05, 0.95, 20)
    monkeypatch.setattr(model, "network", torch.nn.Identity())
    monkeypatch.setattr(model.network, "forward", exact)
    assert model.loss(torch.full((20, 2), 3.0), t, generator) < 1e-8
    # The same velocity tells x0.
    zt = torch.randn(20, 2, generator=generator)
    torch.testing.assert_close(model.predict(zt, 0.5), z0, rtol=1e-4, atol=1e-4)
    monkeypatch.setattr(model.network, "forward", lambda zt, t: exact(zt, t) + 1)
    assert model.loss(torch.full((20, 2), 3.0), t, generator) == pytest.approx(1, abs=1e-3)


def test_plain_loss_is_zero_for_the_true_noise_and_only_for_it(generator, monkeypatch):
    """The state of the network is log1p of the counts as they are, and nothing is clipped."""
    counts = torch.full((20, 2), 3.0)
    model = GaussianDiffusion(counts, n_hidden=4, plain=True)
    z0 = torch.log1p(counts)

    def exact(zt, t):
        a = Cosine().survival(t).to(zt)[:, None]
        return (zt - a.sqrt() * z0) / (1 - a).sqrt()

    monkeypatch.setattr(model, "network", torch.nn.Identity())
    monkeypatch.setattr(model.network, "forward", exact)
    t = torch.linspace(0.05, 0.95, 20)
    assert model.loss(counts, t, generator) < 1e-8
    torch.testing.assert_close(model.predict(torch.randn(20, 2, generator=generator), 0.5), z0, rtol=1e-4, atol=1e-4)
    assert (model.sample(20, 50, generator) == 3).all()
    monkeypatch.setattr(model.network, "forward", lambda zt, t: exact(zt, t) + 1)
    assert model.loss(counts, t, generator) == pytest.approx(1, abs=1e-3)


def test_samples_are_counts_within_the_range_of_the_training_counts(generator):
    counts = torch.poisson(torch.full((200, 3), 2.0), generator=generator)
    x = GaussianDiffusion(counts, n_hidden=8).sample(500, 20, generator)
    assert (x == x.round()).all() and (x >= 0).all() and (x <= counts.amax(0)).all()
