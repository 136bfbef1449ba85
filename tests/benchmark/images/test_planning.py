"""Plans count what the networks hold and do."""

import dataclasses

import pytest
import torch
from torch import nn

from sccountsdiff.benchmark.images import ImageDiffusion, describe, load_config, plan
from sccountsdiff.benchmark.images.studies import Trial
from sccountsdiff.benchmark.resources import PEAKS


def test_parameters_and_operations_are_those_of_the_network(tiny_config, digits):
    model = ImageDiffusion.for_images(tiny_config, digits.train).eval()
    operations = []

    def count(module, inputs, output):
        if isinstance(module, nn.Conv2d):
            operations.append(2 * output.numel() * module.weight[0].numel())
        else:
            operations.append(2 * output.numel() * module.in_features)

    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            module.register_forward_hook(count)
    model.network(torch.zeros(1, 1, 8, 8), torch.zeros(1), torch.zeros(1).long(), torch.zeros(1, dtype=torch.bool))
    what = plan(tiny_config, digits.train)
    assert what["parameters"] == sum(p.numel() for p in model.parameters())
    # Attention multiplies all 4 x 4 places with each other, twice, over 8 channels.
    attention = 2 * 2 * 16 * 16 * 8
    assert what["gflops"] == pytest.approx((sum(operations) + attention) / 1e9, rel=1e-6)


def test_work_and_memory_grow_as_they_must(tiny_config, digits):
    more = lambda **changes: plan(dataclasses.replace(tiny_config, **changes), digits.train)
    one = plan(tiny_config, digits.train)
    assert one["train_pflops"] == pytest.approx(3 * 6 * 16 * one["gflops"] / 1e6)
    assert one["evaluate_pflops"] == pytest.approx(
        4 * 20 * 3 * one["gflops"] / 1e6
    )  # before the first step, and thrice
    assert more(n_steps=12)["train_pflops"] == pytest.approx(2 * one["train_pflops"])
    fixed = 20 * one["parameters"] / 1e9
    assert more(batch_size=32)["memory_gb"] - fixed == pytest.approx(2 * (one["memory_gb"] - fixed))
    mixed = plan(tiny_config, digits.train, precision="bf16-mixed")
    assert mixed["memory_gb"] - fixed == pytest.approx((one["memory_gb"] - fixed) / 2)
    two = plan(tiny_config, digits.train, n_devices=2)
    assert two["memory_gb"] - fixed == pytest.approx((one["memory_gb"] - fixed) / 2)
    assert all(two["hours"][name] == pytest.approx(hours / 2) for name, hours in one["hours"].items())


def test_guidance_costs_two_passes_but_at_0_and_1(tiny_config, digits):
    costs = [plan(tiny_config, digits.train, trials=[(Trial(g), 30)])["draw_pflops"] for g in (0.0, 1.0, 1.5, 2.0)]
    assert costs[0] == costs[1] == costs[2] / 2 == costs[3] / 2 > 0


def test_full_size_networks_are_planned_without_their_memory():
    class Shape:
        shape, max_count, names, multi_label = (3, 32, 32), 255, tuple("0123456789"), False

    what = plan(load_config("cifar10_cosine"), Shape())
    assert what["parameters"] == pytest.approx(58.7e6, rel=0.01)
    # The network of DDPM, with two blocks, takes 12 GFLOP (6 multiply-adds); four blocks less than twice as many.
    two = plan(load_config("cifar10_fisher"), Shape())
    assert two["gflops"] == pytest.approx(12.4, rel=0.05) and two["gflops"] < what["gflops"] < 2 * two["gflops"]


def test_text_has_all_devices_and_states_its_assumptions(tiny_config, digits):
    text = describe({"tiny": plan(tiny_config, digits.train, n_devices=2)}, 2)
    assert all(f"2 x {name}" in text for name in PEAKS) and "assume" in text and "None of it is measured" in text


def test_unknown_precision_is_named(tiny_config, digits):
    with pytest.raises(ValueError, match="`precision` must be"):
        plan(tiny_config, digits.train, precision="bf16")
