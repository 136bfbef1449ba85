"""Time per cell of the default model against the paper's, in one run and in turns.

    python docs/benchmarks/speed.py --output docs/benchmarks/results/speed.csv

Training: one optimiser step on a minibatch. Imputing: one draw of half of the entries; the default model makes 15
passes, the paper's 114 (19 steps, 3 rounds of RePaint, 2 passes for guidance). The default model gets 128 cells at once,
the paper's 4 in training and 2 in imputing. Counts are simulated: only time matters.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from sccountsdiff.diffusion import NOISED, OBSERVED
from sccountsdiff.model.engine import draw_sites, make_generator
from sccountsdiff.model.settings import SamplingSettings
from sccountsdiff.module import CountsDiffModule

MODELS = {
    "default": ({}, {"n_steps": 15}, 128, 128),
    "paper": (
        {"backbone": "transformer", "head": "softplus", "observed_training": False},
        {"n_steps": 19, "n_resamples": 3, "guidance": 2.0},
        4,
        2,
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--genes", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    means = torch.logspace(-2, 1, arguments.genes)
    modules = {
        name: CountsDiffModule(means.numpy(), n_categories=[10], **kwargs) for name, (kwargs, *_) in MODELS.items()
    }
    rows = []
    for repeat in range(arguments.repeats):
        for name, (_, sampling, train_cells, impute_cells) in MODELS.items():
            module = modules[name]
            training = seconds_of(lambda m=module, n=train_cells: step(m, means, n))
            imputing = seconds_of(lambda m=module, n=impute_cells, s=sampling: draw(m, means, n, s))
            rows.append(
                {
                    "model": name,
                    "repeat": repeat,
                    "train_ms_per_cell": 1e3 * training / train_cells,
                    "impute_ms_per_cell": 1e3 * imputing / impute_cells,
                }
            )
            print(rows[-1], flush=True)
    table = pd.DataFrame(rows)
    table.to_csv(arguments.output, index=False, float_format="%.4g")
    median = table.drop(columns="repeat").groupby("model").median()
    print(median.round(3).to_string())
    print("ratio:", (median.loc["paper"] / median.loc["default"]).round(0).to_dict())


def seconds_of(work) -> float:
    work()  # warm up
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def batch(means: torch.Tensor, n: int) -> dict[str, torch.Tensor]:
    return {"X": torch.poisson(means.expand(n, -1)), "extra_categorical_covs": torch.randint(10, (n, 1))}


def step(module: CountsDiffModule, means: torch.Tensor, n: int) -> None:
    optimizer = torch.optim.AdamW(module.parameters())
    module.train()
    _, _, output = module(batch(means, n))
    output.loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def draw(module: CountsDiffModule, means: torch.Tensor, n: int, sampling: dict) -> None:
    module.eval()
    cells = module.read(batch(means, n))
    half = torch.from_numpy(np.random.default_rng(0).random(cells["x0"].shape) < 0.5)
    status = torch.where(half, NOISED, OBSERVED).float()
    generator = make_generator(module.device, 0)
    with torch.inference_mode():
        draw_sites(module, cells, status, SamplingSettings(**sampling).resolve(module), generator)


if __name__ == "__main__":
    main()
