"""The ``sccountsdiff benchmark images`` command."""

from __future__ import annotations

import argparse
from pathlib import Path

from sccountsdiff.command import Outcome, whole
from sccountsdiff.options import registered_names

STUDIES = ("guidance", "attrition", "schedules")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``images``.

    Examples
    --------
    >>> parser = argparse.ArgumentParser()
    >>> add_options(parser)
    >>> parser.parse_args(["--steps", "10"]).steps
    10
    """
    add = parser.add_argument
    sets = registered_names("sccountsdiff.benchmark.images", "register_images")
    schedules = registered_names("sccountsdiff.diffusion.schedules", "register_schedule")
    add("--dataset", choices=sets, default="digits", help="(default: digits)")
    add("--data", help="file or folder with the images, for sets that are read from one")
    add("--download", action="store_true", help="fetch the images into the folder --data, for sets that can be fetched")
    add("--config", help="name of settings or a .yaml file (default: the paper's for the data set)")
    add("--schedule", choices=schedules, help="survival schedule (default: that of the settings)")
    add("--steps", type=whole(1), metavar="N", help="optimiser steps (default: those of the settings)")
    evaluate = "steps between evaluations (default: that of the settings)"
    add("--evaluate-every", type=whole(1), metavar="N", help=evaluate)
    add("--seed", type=whole(0), metavar="N", help="(default: that of the settings)")
    add("--studies", nargs="+", default=[], metavar="STUDY", help=f"some of {', '.join(STUDIES)}")
    add("--images", type=whole(1), default=500, metavar="N", help="images drawn for each score (default: 500)")
    add("--weights", help="weights of Inception (default: in torch hub's cache)")
    add("--download-weights", action="store_true", help="fetch them into that cache (95 MB)")
    add("--resume", action="store_true", help="go on with an interrupted training in --output")
    add("--accelerator", choices=("cuda", "cpu"), help="(default: cuda if there is one)")
    number_or_name = lambda text: int(text) if text.isdigit() else text
    add("--devices", type=number_or_name, default="auto", help="of Lightning's trainer (default: auto)")
    add("--strategy", default="auto", help="of Lightning's trainer, such as ddp (default: auto)")
    add("--precision", default="32-true", help="such as bf16-mixed or 16-mixed (default: 32-true)")
    add("--workers", type=whole(0), default=0, metavar="N", help="processes that read images (default: 0)")
    add("--output", default="images", help="folder for results (default: images)")
    parser.set_defaults(run=_run_images)


def _run_images(arguments: argparse.Namespace) -> Outcome:
    from sccountsdiff.benchmark.images import load_config, load_images, run_images
    from sccountsdiff.benchmark.images.data import IMAGE_SETS
    from sccountsdiff.benchmark.images.training import default_device

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
    scores = run_images(config, splits, arguments.output, progress=not arguments.quiet, **options)
    table = f"{scores.round(3).to_string(index=False)}\n" if len(scores) else ""
    values = {"command": "benchmark images", "output": arguments.output, "scores": scores.to_dict("records")}
    return Outcome(f"{table}\nTables and images are in {Path(arguments.output).resolve()}", values)
