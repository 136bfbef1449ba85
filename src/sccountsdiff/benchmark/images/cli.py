"""The ``sccountsdiff benchmark images`` command."""

from __future__ import annotations

import argparse
from pathlib import Path

from sccountsdiff.benchmark.images import RECIPES, load_config, load_images, run_images, run_recipe
from sccountsdiff.benchmark.images.config import LEAST_SCORED
from sccountsdiff.benchmark.images.data import IMAGE_SETS
from sccountsdiff.benchmark.images.generation import PRECISIONS
from sccountsdiff.benchmark.images.run import REFERENCES
from sccountsdiff.benchmark.images.studies import STUDIES
from sccountsdiff.benchmark.images.training import check_options, default_device
from sccountsdiff.checks import one_of, whole_number
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
    images.add_argument("--dataset", choices=IMAGE_SETS.names(), help="(default: that of --recipe, else digits)")
    images.add_argument("--data", help="file or folder with the images, for sets that are read from one")
    images.add_argument("--download", action="store_true", help=f"fetch the images into the folder --data ({fetched})")
    images.add_argument("--config", help="name of settings or a .yaml file (default: the paper's for the data set)")
    schedules = SCHEDULES.names()
    images.add_argument("--schedule", choices=schedules, help="survival schedule (default: that of the settings)")
    images.add_argument("--steps", type=int, help="optimiser steps (default: those of the settings)")
    images.add_argument("--evaluate-every", type=int, help="steps between evaluations (default: that of the settings)")
    images.add_argument("--seed", type=int)
    add = images.add_argument
    add("--recipe", choices=tuple(RECIPES), help="a table or figure of the paper, instead of --config")
    add("--batch-size", type=int, help="images of an optimiser step (default: that of the settings)")
    add("--sampling-steps", type=int, help="reverse steps of a sample (default: those of the settings)")
    add("--evaluated", type=int, help="images drawn at each evaluation (default: those of the settings)")
    add("--studies", nargs="+", default=[], metavar="STUDY", help=f"some of {', '.join(STUDIES)}")
    add("--images", type=int, help="images drawn for each score (default: those of the recipe, else 500)")
    add(
        "--reference", choices=REFERENCES, help="real images to compare with (default: heldout in a recipe, else train)"
    )
    add("--weights", help="weights of Inception (default: in torch hub's cache)")
    add("--download-weights", action="store_true", help="fetch them into that cache (95 MB)")
    add("--resume", action="store_true", help="go on with what was interrupted in --output")
    add("--dry-run", action="store_true", help="check everything, say what it takes, and stop")
    add("--checkpoint-every", type=int, help="steps between checkpoints (default: at most 1000)")
    add("--accelerator", choices=("cuda", "cpu"), help="(default: cuda if there is one)")
    number_or_name = lambda text: int(text) if text.lstrip("-").isdigit() else text
    add("--devices", type=number_or_name, default="auto", help="how many, or which, as in 1,3 (default: all)")
    add("--strategy", default="auto", help="of Lightning's trainer, such as ddp (default: auto)")
    add("--precision", default="32-true", help=f"one of {', '.join(PRECISIONS)} (default: 32-true)")
    add("--compile", action="store_true", help="compile the network, for training and drawing")
    add("--workers", type=int, default=0, help="processes that read images (default: 0)")
    images.add_argument("--output", default="images", help="folder for results (default: images)")
    images.set_defaults(run=_run_images)


def _run_images(arguments: argparse.Namespace) -> None:
    recipe = RECIPES.get(arguments.recipe)
    changes = {name: getattr(arguments, name) for name in ("schedule", "evaluate_every", "seed", "batch_size")}
    changes |= {"n_steps": arguments.steps, "n_sampling_steps": arguments.sampling_steps}
    changes = {
        name: value for name, value in (changes | {"n_evaluated": arguments.evaluated}).items() if value is not None
    }
    dataset = arguments.dataset or (recipe.dataset if recipe else "digits")
    if recipe:
        if arguments.config or arguments.studies or arguments.schedule:
            raise ValueError("--recipe has its own settings: leave out --config, --schedule and --studies.")
        named, settings = arguments.recipe, next(iter(recipe.settings(**changes).values()))
    else:
        named = arguments.config or IMAGE_SETS[dataset].default_config
        settings = load_config(named, **changes)
    if settings.dataset != dataset:
        raise ValueError(f"{named} is for {settings.dataset}, not for {dataset}.")
    if arguments.images is not None:
        whole_number("--images", arguments.images, least=LEAST_SCORED)
    one_of("--precision", arguments.precision, tuple(PRECISIONS))
    training = ("checkpoint_every", "devices", "strategy", "precision", "compile")
    options = {name: getattr(arguments, name) for name in training} | {"n_workers": arguments.workers}
    options |= {"accelerator": arguments.accelerator or default_device()}
    check_options(options)
    splits = load_images(dataset, arguments.data, download=arguments.download and not arguments.dry_run)
    options |= {name: getattr(arguments, name) for name in ("download_weights", "resume", "dry_run")}
    options["weights_path"] = arguments.weights
    optional = {"n_images": arguments.images, "reference": arguments.reference}
    options |= {name: value for name, value in optional.items() if value is not None}
    if recipe:
        scores = run_recipe(arguments.recipe, splits, arguments.output, changes=changes, progress=True, **options)
    else:
        options["run_studies"] = arguments.studies
        scores = run_images(settings, splits, arguments.output, progress=True, **options)
    if arguments.dry_run:
        return
    if len(scores):
        print(scores.round(3).to_string(index=False))
    print(f"\nTables and images are in {Path(arguments.output).resolve()}")
