"""Drawn images are whole, within bounds, reproducible, and follow their condition."""

import dataclasses
import os
from functools import partial

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from sccountsdiff.benchmark.images import ImageDiffusion, generate, load_model
from sccountsdiff.benchmark.images.generation import bounded, default_steps
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


class Interrupted(Exception):
    """Stands for a run that is killed."""


def interrupt(after):
    """An observer that ends the drawing after so many moves."""
    seen = []

    def watch(move, x):
        seen.append(move)
        if len(seen) > after:
            raise Interrupted

    return watch


def test_an_interrupted_run_goes_on_to_the_same_images(tiny_run, tmp_path):
    _, model = tiny_run
    draw = partial(generate, model, torch.arange(10), batch_size=4, seed=7, guidance=2.0, attrition=0.1, n_steps=3)
    expected = draw()
    with pytest.raises(Interrupted):
        draw(folder=tmp_path, on_move=interrupt(7))  # in the last of three blocks
    kept = sorted(tmp_path.rglob("*.npy"))
    assert len(kept) == 2 and len(list(tmp_path.rglob("*"))) == 3  # a folder and no half-written file
    seen = []
    assert torch.equal(draw(folder=tmp_path, on_move=lambda move, x: seen.append(len(x))), expected)
    assert seen == [2, 2, 2]  # the last block alone was drawn
    # A longer run begins with the same blocks.
    seen.clear()
    longer = generate(
        model, torch.arange(12) % 10, batch_size=4, seed=7, guidance=2.0, attrition=0.1, n_steps=3, folder=tmp_path,
        on_move=lambda move, x: seen.append(len(x)),
    )  # fmt: skip
    assert torch.equal(longer[:8], expected[:8]) and seen == [4, 4, 4]


def test_blocks_of_other_settings_are_not_taken(tiny_run, tmp_path, told):
    _, model = tiny_run
    options = {"seed": 7, "guidance": 1.0, "attrition": 0.0, "n_steps": 3, "rounding": "random", "precision": "32-true"}
    others = {
        "seed": 8, "guidance": 2.0, "attrition": 0.5, "n_steps": 2, "rounding": "nearest", "precision": "bf16-mixed"
    }  # fmt: skip
    generate(model, torch.arange(4), folder=tmp_path, **options)
    for name, value in others.items():
        changed = options | {name: value}
        images = generate(model, torch.arange(4), folder=tmp_path, **changed)
        assert torch.equal(images, generate(model, torch.arange(4), **changed)), name
    assert len(list(tmp_path.iterdir())) == 1 + len(others)
    other = generate(model, torch.arange(4) + 1, folder=tmp_path, **options)
    assert torch.equal(other, generate(model, torch.arange(4) + 1, **options))


def test_a_damaged_block_is_set_aside_and_drawn_again(tiny_run, tmp_path, caplog):
    _, model = tiny_run
    expected = generate(model, torch.arange(4), folder=tmp_path, n_steps=2)
    (file,) = tmp_path.rglob("*.npy")
    for damage in (file.read_bytes()[:200], b""):
        file.write_bytes(damage)
        assert torch.equal(generate(model, torch.arange(4), folder=tmp_path, n_steps=2), expected)
    np.save(file, np.zeros((3, 1, 8, 8), np.uint8))
    assert torch.equal(generate(model, torch.arange(4), folder=tmp_path, n_steps=2), expected)
    assert caplog.text.count("set aside") == 3


def test_a_hostile_block_is_not_run(tiny_run, tmp_path):
    class Touch:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "touched"),)

    _, model = tiny_run
    expected = generate(model, torch.arange(4), folder=tmp_path / "drawn", n_steps=2)
    (file,) = (tmp_path / "drawn").rglob("*.npy")
    np.save(file, np.array([Touch()], dtype=object), allow_pickle=True)
    assert torch.equal(generate(model, torch.arange(4), folder=tmp_path / "drawn", n_steps=2), expected)
    assert not (tmp_path / "touched").exists()
    np.load(file.with_name(f"{file.name}.damaged"), allow_pickle=True)
    assert (tmp_path / "touched").exists(), "otherwise the proof proves nothing"


def test_several_devices_draw_the_same_images_as_one(tiny_run, tmp_path):
    _, model = tiny_run
    draw = partial(generate, model, torch.arange(10), batch_size=2, seed=3, n_steps=3, guidance=2.0)
    assert torch.equal(draw(devices=["cpu", "cpu", "cpu"], folder=tmp_path), draw())
    assert len(list(tmp_path.rglob("*.npy"))) == 5


def draw_with_others(rank, checkpoint, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    images = generate(load_model(checkpoint), torch.arange(10), batch_size=4, seed=7, n_steps=2, together=True)
    torch.save(images, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.slow
def test_processes_share_the_blocks_and_all_have_all_images(tiny_run, tmp_path):
    folder, model = tiny_run
    mp.spawn(draw_with_others, (folder / "last.ckpt", tmp_path), nprocs=2)
    expected = generate(model, torch.arange(10), batch_size=4, seed=7, n_steps=2)
    assert all(torch.equal(torch.load(tmp_path / f"{rank}.pt", weights_only=True), expected) for rank in range(2))


def test_mixed_precision_reaches_the_network_and_changes_little(tiny_run):
    _, model = tiny_run
    seen = []
    handle = model.network.unet.conv_out.register_forward_hook(lambda module, x, output: seen.append(output.dtype))
    mixed = generate(model, torch.arange(10), n_steps=3, precision="bf16-mixed").float()
    full = generate(model, torch.arange(10), n_steps=3).float()
    handle.remove()
    assert seen[0] == torch.bfloat16 and seen[-1] == torch.float32
    # The draws share their random numbers: the formats differ by less than a grey level on average.
    assert (mixed - full).abs().mean() < 1 and mixed.max() <= 16
    with pytest.raises(ValueError, match="`precision` must be"):
        generate(model, 2, precision="bf16")


def test_compiled_network_draws_alike_and_the_model_stays_as_it_is(tiny_run, monkeypatch):
    _, model = tiny_run
    compiled, compile = [], torch.compile
    monkeypatch.setattr(torch, "compile", lambda f, **kw: compiled.append(f) or compile(f, backend="eager", **kw))
    images = generate(model, torch.arange(4), n_steps=2, compile=True)
    assert len(compiled) == 1 and model.network.unet._compiled_call_impl is None
    assert (images.float() - generate(model, torch.arange(4), n_steps=2).float()).abs().mean() < 1


def test_discrete_schedules_take_as_many_steps_as_they_have(tiny_config):
    config = dataclasses.replace(tiny_config, schedule="blackout", n_sampling_steps=5000)
    model = ImageDiffusion(config, torch.ones(1, 8, 8), torch.ones(1, 8, 8), 16, tuple("0123456789"))
    assert default_steps(model) == 999
    model.config = dataclasses.replace(config, n_sampling_steps=30)
    assert default_steps(model) == 30


@pytest.mark.parametrize("options", [{"batch_size": 0}, {"conditions": -1}])
def test_numbers_that_cannot_be_are_named(tiny_run, options):
    with pytest.raises(ValueError, match=f"`{next(iter(options))}` must"):
        generate(tiny_run[1], options.pop("conditions", 2), **options)
