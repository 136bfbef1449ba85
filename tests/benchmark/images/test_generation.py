"""Drawn images are whole, within bounds, reproducible, and follow their condition."""

import dataclasses

import pytest
import torch

from sccountsdiff.benchmark.images import ImageDiffusion, generate
from sccountsdiff.benchmark.images.generation import bounded
from sccountsdiff.diffusion import Max, Prediction


@pytest.mark.parametrize("attrition", [0.0, 0.3, Max(), torch.full((7,), 0.2)])
def test_conditions_are_followed_and_left_out_when_asked(told, attrition):
    wanted = torch.tensor([2, 5, 8])
    images = generate(told, wanted, n_steps=7, attrition=attrition)
    assert torch.equal(images, wanted[:, None, None, None].expand(3, 1, 8, 8).to(torch.uint8))
    assert (generate(told, wanted, guidance=0.0, n_steps=7, attrition=attrition) == 9).all()
    assert (generate(told, 3, n_steps=7, attrition=attrition) == 9).all()


def test_guidance_goes_beyond_the_condition_and_stops_at_the_brightest_pixel(told):
    told.max_count = 12
    # One step from nothing: log y = 2 log 8 - log 9 for class 8 and 2 log 11 - log 9 = log 13.4 for class 11.
    images = generate(told, torch.full((200,), 8), guidance=2.0, n_steps=1).float()
    assert images.mean().item() == pytest.approx(64 / 9, abs=0.05)
    assert (generate(told, torch.full((5,), 11), guidance=2.0, n_steps=1) >= 11).all()
    assert generate(told, torch.full((5,), 11), guidance=2.0, n_steps=1).max() == 12


def test_images_stay_within_bounds_for_any_network(tiny_run):
    _, model = tiny_run
    wild = ImageDiffusion(model.config, model.network.mean, model.network.variance, 16, model.names)
    torch.manual_seed(0)
    torch.nn.init.normal_(wild.network.unet.conv_out.weight, std=10.0)
    for options in ({}, {"guidance": 3.0}, {"attrition": 0.5}, {"guidance": 3.0, "attrition": 1.0}):
        seen = []
        images = generate(
            wild, torch.arange(10), n_steps=6, on_move=lambda move, x, seen=seen: seen.append(x), **options
        )
        assert images.dtype == torch.uint8 and images.max() <= 16
        states = torch.stack(seen)
        assert len(seen) == 6 and states.min() >= 0 and states.max() <= 16 and torch.equal(states, states.round())
        assert images.max() > 8


def test_poisson_births_overshoot_on_the_way_but_not_in_the_end(told):
    told.max_count = 8
    seen = []
    images = generate(
        told, torch.full((50,), 8), n_steps=2, rounding="poisson", on_move=lambda move, x: seen.append(x.max().item())
    )
    assert max(seen) > 8 and images.max() == 8


def test_same_seed_same_images_and_blocks_are_drawn_on_their_own(tiny_run):
    _, model = tiny_run
    wanted = torch.arange(10)
    images = generate(model, wanted, batch_size=4, seed=7)
    assert torch.equal(images, generate(model, wanted, batch_size=4, seed=7))
    assert torch.equal(images[:4], generate(model, wanted[:4], batch_size=4, seed=7))
    assert not torch.equal(images, generate(model, wanted, batch_size=4, seed=8))


def test_model_without_conditions_takes_a_number_only(tiny_config):
    config = dataclasses.replace(tiny_config, conditional=False)
    model = ImageDiffusion(config, torch.ones(1, 8, 8), torch.ones(1, 8, 8), 16, tuple("0123456789"))
    assert generate(model, 2, n_steps=2).shape == (2, 1, 8, 8)
    with pytest.raises(ValueError, match="without conditions"):
        generate(model, torch.tensor([1]))


def test_sampling_leaves_the_model_as_it_was(tiny_run):
    _, model = tiny_run
    model.train()
    generate(model, torch.arange(2))
    assert model.training
    model.eval()


def test_bounded_leaves_room_for_no_rounding_error_at_any_count():
    x = torch.arange(256.0)[:, None]
    y = bounded(lambda x, status, t: Prediction(torch.full_like(x, 50.0)), 255)(x, None, None).mean
    assert (y <= 255 - x).all() and y[255] == 0 and (y > (255 - x) * 0.9999)[:-1].all()
