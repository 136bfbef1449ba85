"""The paper's full-size network on CIFAR-10 for some steps, interrupted once: training, average, drawing and scores.

    python docs/benchmarks/images_full.py --data cifar10_sample.npz --work full --stop-at 240
    python docs/benchmarks/images_full.py --data cifar10_sample.npz --work full --output docs/benchmarks/results/images_full

The first command ends in the middle, the second goes on from its checkpoint. Without ``--weights`` the Frechet distance is
in the features of an Inception with random weights, which shows that all parts work together and says nothing else.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import lightning.pytorch as pl
import numpy as np
import pandas as pd
import torch

from sccountsdiff.benchmark.images import (
    ArrayImages,
    ImageEvaluator,
    Inception,
    generate,
    heldout_losses,
    load_config,
    load_images,
    load_inception,
    plot_histories,
    train,
)
from sccountsdiff.benchmark.images.studies import conditions_like, evaluation
from sccountsdiff.files import replacing


class Interrupted(Exception):
    """Stands for a run that is killed while it draws."""


class StepTimes(pl.Callback):
    """CPU seconds of each step; now and then one with a checkpoint."""

    def __init__(self):
        self.seconds: list[float] = []

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch, batch_idx) -> None:
        """Start the clock."""
        self.started = time.process_time()

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs, batch, batch_idx) -> None:
        """Stop the clock."""
        self.seconds.append(time.process_time() - self.started)


def draw_with_interruption(model, conditions: torch.Tensor, folder: Path, **options) -> dict[str, bool]:
    """Draw in two blocks, stopped in the second, then to the end; and once more without a stop."""
    seen = []

    def stop(move, x) -> None:
        seen.append(move)
        if len(seen) > options["n_steps"]:
            raise Interrupted

    options |= {"batch_size": len(conditions) // 2, "seed": 1}
    try:
        generate(model, conditions, folder=folder, on_move=stop, **options)
    except Interrupted:
        pass
    kept = {file: file.stat().st_mtime_ns for file in folder.rglob("*.npy")}
    images = generate(model, conditions, folder=folder, **options)
    at_once = generate(model, conditions, **options)
    return {
        "blocks_kept_when_interrupted": len(kept),
        "kept_block_was_read_again": all(file.stat().st_mtime_ns == when for file, when in kept.items()),
        "images_are_those_of_an_uninterrupted_run": torch.equal(images, at_once),
    }


def random_inception() -> Inception:
    """Inception with random weights that keep the scale of features from layer to layer."""
    torch.manual_seed(0)
    network = Inception().eval()
    for module in network.modules():
        if isinstance(module, torch.nn.Conv2d):
            torch.nn.init.kaiming_normal_(module.weight)
    return network


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--data", required=True, help="CIFAR-10, as for `sccountsdiff benchmark images`")
    add("--work", required=True, help="folder of the training")
    add("--config", default="cifar10_cosine")
    add("--weights", help="weights of Inception (default: random ones)")
    add("--steps", type=int, default=300)
    add("--stop-at", type=int, help="end here, as an interruption would")
    add("--batch-size", type=int, default=8)
    add("--evaluate-every", type=int, default=60)
    add("--sampling-steps", type=int, default=6)
    add("--heldout", type=int, default=64, help="held-out images of the loss")
    add("--images", type=int, default=10, help="images of each score")
    add("--real", type=int, default=40, help="real images that they are compared with")
    add("--output", help="names of the tables, without suffix")
    add("--figure", help="PNG with the curves of training")
    arguments = parser.parse_args()
    config = load_config(
        arguments.config,
        n_steps=arguments.steps,
        batch_size=arguments.batch_size,
        n_warmup_steps=0,
        evaluate_every=arguments.evaluate_every,
        n_evaluated=arguments.images,
        n_sampling_steps=arguments.sampling_steps,
    )
    splits, work = load_images("cifar10", arguments.data), Path(arguments.work)
    network = load_inception(arguments.weights) if arguments.weights else random_inception()
    some = slice(arguments.real)
    real = ArrayImages(splits.heldout.images[some].numpy(), splits.heldout.labels[some], splits.heldout.names)
    evaluator = ImageEvaluator(network, real, batch_size=10, cache=work / "reference")
    evaluate = evaluation(real, config.n_evaluated, evaluator, work)
    times, resumed_at = StepTimes(), 0
    if (work / "last.ckpt").is_file():
        resumed_at = torch.load(work / "last.ckpt", weights_only=True, mmap=True)["global_step"]
    options = {
        "evaluate": evaluate,
        "n_heldout": arguments.heldout,
        "stop_at": arguments.stop_at,
        "resume": True,
        "progress": True,
        "callbacks": [times],
    }
    model = train(config, splits, work, **options)
    print(f"{np.median(times.seconds):.2f} CPU seconds per step", flush=True)
    if not arguments.output:
        return
    row = {"settings": arguments.config, "parameters": sum(p.numel() for p in model.parameters())}
    row |= {"batch_size": config.batch_size, "steps": arguments.stop_at or config.n_steps, "resumed_at": resumed_at}
    row |= {"inception_weights": "published" if arguments.weights else "random", "real_images": len(real)}
    row |= {"cpu_seconds_per_step": round(float(np.median(times.seconds)), 2)}
    row |= {f"loss_{name}": loss for name, loss in heldout_losses(model, splits.heldout, arguments.heldout).items()}
    moved = torch.load(work / "last.ckpt", weights_only=True)["current_model_state"]
    average = model.state_dict()
    row["average_differs_from_weights"] = any(not torch.equal(average[k], v) for k, v in moved.items())
    drawing = {"attrition": 0.01, "n_steps": config.n_sampling_steps}
    row |= draw_with_interruption(model, conditions_like(real, 4), work / "interrupted", **drawing)
    with replacing(f"{arguments.output}.csv") as beside:
        pd.DataFrame([row]).to_csv(beside, index=False, float_format="%.6g")
    history = pd.read_csv(work / "history.csv")
    with replacing(f"{arguments.output}_history.csv") as beside:
        history.to_csv(beside, index=False, float_format="%.6g")
    if arguments.figure:
        plot_histories({arguments.config: history}, arguments.figure)
    print(pd.Series(row).to_string())
    print(history.to_string(index=False))


if __name__ == "__main__":
    main()
