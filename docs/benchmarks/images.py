"""A short training on CIFAR-10 with an interruption, two steps of each full-size model, and what each one will take.

    python docs/benchmarks/images.py cifar10 --data cifar10_sample.npz --steps 120 --output images_cifar10.csv
    python docs/benchmarks/images.py full-size --output images_full_size.csv
    python docs/benchmarks/images.py plans --output images_plans.csv

``cifar10_sample.npz`` holds some images of CIFAR-10: 4,000 to train on and 1,000 held out.
"""

from __future__ import annotations

import argparse
import dataclasses
import shutil
import tempfile
import time
from pathlib import Path

import pandas as pd
import torch

from sccountsdiff.benchmark.images import (
    CONFIGS,
    CountImages,
    ImageConfig,
    ImageDiffusion,
    generate,
    heldout_losses,
    load_config,
    load_images,
    plan,
    save_grid,
    train,
)
from sccountsdiff.benchmark.images.studies import conditions_like

SIZES = {"cifar10": 32, "celeba": 64}


def cifar10(arguments: argparse.Namespace) -> pd.DataFrame:
    """Train the small U-Net; go on from its checkpoint in a second run; draw from it."""
    config = load_config("cifar10_small", n_steps=arguments.steps, evaluate_every=max(arguments.steps // 3, 1))
    splits = load_images("cifar10", arguments.data)
    with tempfile.TemporaryDirectory() as folder:
        whole, second = Path(folder, "whole"), Path(folder, "second")

        def keep_checkpoint(model: ImageDiffusion, step: int) -> dict[str, float]:
            if step < config.n_steps:  # the last one before the end is what the second run gets
                shutil.copytree(whole, second, dirs_exist_ok=True)
            return {}

        model = train(config, splits, whole, evaluate=keep_checkpoint, n_heldout=arguments.heldout, progress=True)
        history = pd.read_csv(whole / "history.csv")
        resumed = train(config, splits, second, resume=True, n_heldout=arguments.heldout)
    row = {"steps": config.n_steps, "parameters": sum(p.numel() for p in model.parameters())}
    row |= {f"loss_{name}": loss for name, loss in heldout_losses(model, splits.heldout, arguments.heldout).items()}
    row["loss_at_first_evaluation"] = history.loc[history["step"] > 0, "heldout_loss"].iloc[0]
    weights = resumed.state_dict()
    row["resumed_is_equal"] = all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    images = generate(model, conditions_like(splits.train, 40), guidance=1.0, attrition=0.01)
    row |= {"smallest_pixel": int(images.min()), "largest_pixel": int(images.max())}
    if arguments.grid:
        save_grid(images, arguments.grid, 10)
    return pd.DataFrame([row])


class FullSize(CountImages):
    """The shape and the names of an image set, without its images."""

    def __init__(self, dataset: str):
        self.shape, self.max_count, self.multi_label = (3, SIZES[dataset], SIZES[dataset]), 255, dataset == "celeba"
        self.names = tuple(map(str, range(40 if self.multi_label else 10)))


def plans(arguments: argparse.Namespace) -> pd.DataFrame:
    """What the training of each full-size model will take in mixed precision, with its evaluations."""
    rows = []
    for name, config in full_size_configs().items():
        what = plan(config, FullSize(config.dataset), precision="bf16-mixed")
        rows.append(
            {"settings": name} | what | {f"hours_{device}": hours for device, hours in what.pop("hours").items()}
        )
    return pd.DataFrame(rows).drop(columns=["draw_pflops", "hours"], errors="ignore")


def full_size_configs() -> dict[str, ImageConfig]:
    """Settings of the paper's models."""
    return {name: config for name, config in CONFIGS.items() if config.dataset in SIZES and not name.endswith("_small")}


def full_size(arguments: argparse.Namespace) -> pd.DataFrame:
    """Build every full-size model and make two optimiser steps on random images, which move all weights."""
    rows = []
    for name, config in full_size_configs().items():
        data, config = FullSize(config.dataset), dataclasses.replace(config, n_warmup_steps=0)
        torch.manual_seed(0)
        moments = torch.full(data.shape, 120.0), torch.full(data.shape, 4000.0)
        model = ImageDiffusion(config, *moments, data.max_count, data.names, data.multi_label)
        optimizer = model.configure_optimizers()["optimizer"]
        images = torch.randint(0, 256, (arguments.batch_size, *data.shape)).float()
        conditions = (
            torch.randint(0, 2, (len(images), 40)) if data.multi_label else torch.randint(0, 10, (len(images),))
        )
        before = [p.detach().clone() for p in model.parameters()]
        started = time.process_time()
        for _ in range(2):
            # No condition is left out: of a single image, all weights that it passes through would stay.
            loss = model.loss(images, conditions, 0.0, torch.Generator().manual_seed(0))
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip)
            optimizer.step()
        changed = sum(not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
        row = {"settings": name, "parameters": sum(p.numel() for p in before), "batch_size": len(images)}
        row |= {"cpu_seconds_per_step": round((time.process_time() - started) / 2, 1)}
        row |= {"loss_before_second_step": loss.item(), "tensors": len(before), "tensors_changed": changed}
        rows.append(row)
        print(row, flush=True)
    return pd.DataFrame(rows)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(required=True)
    short = kinds.add_parser("cifar10")
    short.add_argument("--data", required=True, help="CIFAR-10, as for `sccountsdiff benchmark images`")
    short.add_argument("--steps", type=int, default=150)
    short.add_argument("--heldout", type=int, default=200, help="held-out images of the loss")
    short.add_argument("--grid", help="PNG to write images to")
    short.set_defaults(run=cifar10)
    full = kinds.add_parser("full-size")
    full.add_argument("--batch-size", type=int, default=1)
    full.set_defaults(run=full_size)
    costs = kinds.add_parser("plans")
    costs.set_defaults(run=plans)
    for kind in (short, full, costs):
        kind.add_argument("--output", required=True, help="CSV to write")
    arguments = parser.parse_args()
    table = arguments.run(arguments)
    table.to_csv(arguments.output, index=False, float_format="%.6g")
    print(table.to_string(index=False))


if __name__ == "__main__":
    main()
