import math

import pytest
import torch

from sccountsdiff import diffusion
from sccountsdiff.benchmark.simulated import CountsDiffusion, countsdiff
from sccountsdiff.diffusion import Fisher, Prediction

COUNTS = torch.poisson(torch.full((200, 3), 2.0), generator=torch.Generator().manual_seed(1))


def test_samples_come_from_the_core_with_the_paper_s_setting(monkeypatch):
    asked = {}

    def sample(denoise, schedule, walk, x0, status, **options):
        asked.update(options, schedule=schedule, walk=walk)
        return diffusion.sample(denoise, schedule, walk, x0, status, **options)

    monkeypatch.setattr(countsdiff, "sample", sample)
    x = CountsDiffusion(COUNTS, 4).sample(10, 20, torch.Generator().manual_seed(0))
    assert x.shape == (10, 3) and (x == x.round()).all()
    assert isinstance(asked["schedule"], Fisher) and len(asked["walk"]) == 20
    assert asked["attrition"].eta == 0 and asked["rounding"] == "random"


def test_sampler_with_the_exact_denoiser_of_poisson_counts_gives_them(monkeypatch):
    """For Poisson counts what is still to come does not depend on what is there: y_hat = (1 - p) mean."""
    n, mean = 20_000, 0.4
    model = CountsDiffusion(COUNTS, 4)

    def exact(x, t):
        lost = 1 - model.schedule.survival(t)
        return Prediction((mean * lost).log().to(x)[:, None].expand_as(x))

    monkeypatch.setattr(model, "predict", exact)
    x = model.sample(n, 200, torch.Generator().manual_seed(0)).double()
    assert (abs(x.mean(0) - mean) < 4 * math.sqrt(mean / n)).all()
    # Rounding at random loses a little variance in each step.
    assert (abs(x.var(0) / mean - 1) < 0.05 + 4 * math.sqrt((2 + 1 / mean) / n)).all()


def test_loss_is_least_for_the_mean_of_what_is_to_come(monkeypatch):
    model = CountsDiffusion(COUNTS, 4)
    t = torch.linspace(0.01, 0.99, 2000)
    x0 = torch.full((2000, 3), 5.0)

    def loss_at(factor):
        predict = lambda x, s: Prediction(
            (factor * 5 * (1 - model.schedule.survival(s))).log().to(x)[:, None].expand_as(x)
        )
        monkeypatch.setattr(model, "predict", predict)
        return model.loss(x0, t, torch.Generator().manual_seed(0)).item()

    assert loss_at(1.0) < min(loss_at(0.8), loss_at(1.25))


def test_weight_is_minus_the_slope_of_the_schedule(monkeypatch):
    model = CountsDiffusion(COUNTS, 4)
    monkeypatch.setattr(model, "predict", lambda x, t: Prediction(torch.zeros_like(x)))  # loss without weight: 1
    t = torch.tensor([0.3, 0.5])
    loss = model.loss(COUNTS[:2], t, torch.Generator().manual_seed(0))
    assert loss.item() == pytest.approx(Fisher().weight(t).mean().item(), rel=1e-5)


def test_what_is_to_come_vanishes_near_t_0_by_construction():
    t = torch.full((5,), 0.01)
    lost = (1 - Fisher().survival(t)).float()[0]
    with_decay, bare = CountsDiffusion(COUNTS, 4), CountsDiffusion(COUNTS, 4, known_decay=False)
    bare.load_state_dict(with_decay.state_dict())
    expected = bare.predict(COUNTS[:5], t).mean * lost
    torch.testing.assert_close(with_decay.predict(COUNTS[:5], t).mean, expected, rtol=1e-4, atol=0)
    assert (bare.predict(COUNTS[:5], t).mean > 0.01).all()
