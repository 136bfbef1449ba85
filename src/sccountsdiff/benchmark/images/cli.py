"""The ``sccountsdiff benchmark images`` command."""

from __future__ import annotations

import argparse
from pathlib import Path

from sccountsdiff.benchmark.images import load_config, load_images, run_images
from sccountsdiff.benchmark.images.data import IMAGE_SETS
from sccountsdiff.benchmark.images.studies import STUDIES
from sccountsdiff.benchmark.images.training import default_device
from sccountsdiff.diffusion.schedules import SCHEDULES


def add_parser(kinds: argparse._SubParsersAction) -> None:
    """Add ``images`` to the kinds of benchmarks.

    Examples
    --------
    >>> parser = argparse.ArgumentParser()
    >>> add_parser(parser.add_subparsers())
    >>> parser.parse_args(["images", "--steps", "10"]).steps
    10
    """
    images = kinds.add_parser("images", help="train on images, pixels as counts, and draw new ones")
    fetched = ", ".join(name for name in IMAGE_SETS if IMAGE_SETS[name].downloads)
    images.add_argument("--dataset", choices=IMAGE_SETS.names(), default="digits", help="(default: digits)")
    images.add_argument("--data", help="file or folder with the images, for sets that are read from one")
    images.add_argument("--download", action="store_true", help=f"fetch the images into the folder --data ({fetched})")
    images.add_argument("--config", help="name of settings or a .yaml file (default: the paper's for the data set)")
    schedules = SCHEDULES.names()
    images.add_argument("--schedule", choices=schedules, help="survival schedule (default: that of the settings)")
    images.add_argument("--steps", type=int, help="optimiser steps (default: those of the settings)")
    images.add_argument("--evaluate-every", type=int, help="steps between evaluations (default: that of the settings)")
    images.add_argument("--seed", type=int)
    images.add_argument("--studies", nargs="+", default=[], metavar="STUDY", help=f"some of {', '.join(STUDIES)}")
    images.add_argument("--images", type=int, default=500, help="images drawn for each score (default: 500)")
    images.add_argument("--weights", help="weights of Inception (default: in torch hub's cache)")
    images.add_argument("--download-weights", action="store_true", help="fetch them into that cache (95 MB)")
    images.add_argument("--resume", action="store_true", help="go on with an interrupted training in --output")
    images.add_argument("--accelerator", choices=("cuda", "cpu"), help="(default: cuda if there is one)")
    number_or_name = lambda text: int(text) if text.isdigit() else text
    images.add_argument("--devices", type=number_or_name, default="auto", help="of Lightning's trainer (default: auto)")
    images.add_argument("--strategy", default="auto", help="of Lightning's trainer, such as ddp (default: auto)")
    images.add_argument("--precision", default="32-true", help="such as bf16-mixed or 16-mixed (default: 32-true)")
    images.add_argument("--workers", type=int, default=0, help="processes that read images (default: 0)")
    images.add_argument("--output", default="images", help="folder for results (default: images)")
    images.set_defaults(run=_run_images)


def _run_images(arguments: argparse.Namespace) -> None:
    changes = {name: getattr(arguments, name) for name in ("schedule", "evaluate_every", "seed")}
    settings = arguments.config or IMAGE_SETS[arguments.dataset].default_config
    config = load_config(settings, n_steps=arguments.steps, **changes)
    if config.dataset != arguments.dataset:
        raise ValueError(f"The settings {arguments.config} are for {config.dataset}, not for {arguments.dataset}.")
    splits = load_images(arguments.dataset, arguments.data, download=arguments.download)
    names = ("download_weights", "resume", "devices", "strategy", "precision")
    options = {name: getattr(arguments, name) for name in names}
    options |= {"run_studies": arguments.studies, "n_images": arguments.images, "weights_path": arguments.weights}
    options |= {"n_workers": arguments.workers, "accelerator": arguments.accelerator or default_device()}
    scores = run_images(config, splits, arguments.output, progress=True, **options)
    if len(scores):
        print(scores.round(3).to_string(index=False))
    print(f"\nTables and images are in {Path(arguments.output).resolve()}")
