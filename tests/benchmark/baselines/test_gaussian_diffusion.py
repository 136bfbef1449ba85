"""The forward process and the walk back are exact Gaussian diffusion."""

import pytest
import torch

from sccountsdiff.benchmark.baselines.gaussian_diffusion import add_noise, draw, reverse_step, signal_shares

N = 20_000


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_noise_schedules():
    linear, quadratic = signal_shares(50, "linear"), signal_shares(50, "quadratic")
    for shares, middle in ((linear, 0.5 * (1e-4 + 0.5)), (quadratic, 0.25 * (1e-2 + 0.5**0.5) ** 2)):
        replaced = 1 - shares[1:] / shares[:-1]
        assert shares[0] == 1 and shares[-1] < 1e-3, "from all signal to next to none"
        assert replaced[0].item() == pytest.approx(1e-4) and replaced[-1].item() == pytest.approx(0.5)
        assert 0.5 * (replaced[24] + replaced[25]).item() == pytest.approx(middle, rel=1e-2)
    with pytest.raises(ValueError, match="'cubic'"):
        signal_shares(5, "cubic")


@pytest.mark.parametrize("level", [1, 20, 50])
def test_the_forward_marginal_is_that_of_its_single_steps(level):
    shares = signal_shares(50)
    x0 = torch.full((N,), 3.0, dtype=torch.float64)
    normal = lambda seed: torch.randn(N, generator=generator(seed), dtype=torch.float64)
    at_once, step_by_step = add_noise(x0, normal(0), shares[level]), x0
    for k in range(1, level + 1):
        step_by_step = add_noise(step_by_step, normal(k), shares[k] / shares[k - 1])
    mean, variance = 3 * shares[level].item() ** 0.5, 1 - shares[level].item()
    for x in (at_once, step_by_step):
        assert x.mean().item() == pytest.approx(mean, abs=5 * (variance / N) ** 0.5)
        assert x.var().item() == pytest.approx(variance, rel=5 * (2 / N) ** 0.5)


def test_a_single_step_is_the_ancestral_step_of_ddpm():
    shares = signal_shares(50)
    x, noise, fresh = (torch.randn(100, generator=generator(k), dtype=torch.float64) for k in range(3))
    for level in (1, 2, 25, 50):
        a_t, a_s = shares[level], shares[level - 1]
        beta = 1 - a_t / a_s
        velocity = (noise - (1 - a_t).sqrt() * x) / a_t.sqrt()
        mean = (x - beta / (1 - a_t).sqrt() * noise) / (1 - beta).sqrt()
        expected = mean + (beta * (1 - a_s) / (1 - a_t)).sqrt() * fresh
        torch.testing.assert_close(reverse_step(x, velocity, a_t, a_s, 1.0, fresh), expected)
        signal = (x - (1 - a_t).sqrt() * noise) / a_t.sqrt()
        torch.testing.assert_close(
            reverse_step(x, velocity, a_t, a_s, 0.0, fresh), add_noise(signal, noise, a_s)
        )  # deterministic: the same signal and noise in other shares


@pytest.mark.parametrize("eta", [0.0, 1.0])
@pytest.mark.parametrize("n_steps", [10, 50, 400])
def test_with_the_exact_prediction_sampling_recovers_mean_and_variance(eta, n_steps):
    mu, variance, n = 2.0, 0.5, 4_000
    shares = signal_shares(400, "linear", 1e-4, 0.04)

    def slopes(a):
        """Of E[signal | x] and E[noise | x], which are linear in x, for a signal N(mu, variance)."""
        signal = a.sqrt() * variance / (a * variance + 1 - a)
        return signal, (1 - a.sqrt() * signal) / (1 - a).sqrt()

    def velocity(x, level):
        a = shares[level]
        centred = x - a.sqrt() * mu
        signal, noise = slopes(a)
        return a.sqrt() * noise * centred - (1 - a).sqrt() * (mu + signal * centred)

    x = draw(velocity, shares, (n,), n_steps, eta, generator())
    expected, levels = 1.0, torch.linspace(400, 0, n_steps + 1).round().long()
    for a_t, a_s in zip(shares[levels[:-1]], shares[levels[1:]], strict=True):
        fresh = eta**2 * (1 - a_s) / (1 - a_t) * (1 - a_t / a_s)
        signal, noise = slopes(a_t)
        expected = (a_s.sqrt() * signal + (1 - a_s - fresh).sqrt() * noise) ** 2 * expected + fresh
    expected = float(expected)
    assert x.mean().item() == pytest.approx(mu, abs=5 * (variance / n) ** 0.5 + mu * shares[-1].sqrt().item())
    assert x.var().item() == pytest.approx(expected, rel=5 * (2 / n) ** 0.5)
    if n_steps == 400:  # few steps lose variance, many do not
        assert expected == pytest.approx(variance, rel=0.03)
