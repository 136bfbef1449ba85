"""The ``sccountsdiff benchmark images`` command."""

from __future__ import annotations

import argparse
from pathlib import Path

from sccountsdiff.command import Outcome, whole
from sccountsdiff.options import registered_names

LEAST_SCORED, REFERENCES = 10, ("train", "heldout")
"""As in ``images.config`` and ``images.run``, which are not imported for the sake of a help page."""

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
    add("--recipe", metavar="NAME", help="a table or figure of the paper, instead of --config")
    add("--dataset", choices=sets, help="(default: that of --recipe, else digits)")
    add("--data", help="file or folder with the images, for sets that are read from one")
    add("--download", action="store_true", help="fetch the images into the folder --data, for sets that can be fetched")
    add("--config", help="name of settings or a .yaml file (default: the paper's for the data set)")
    add("--schedule", choices=schedules, help="survival schedule (default: that of the settings)")
    add("--steps", type=whole(1), metavar="N", help="optimiser steps (default: those of the settings)")
    add("--batch-size", type=whole(1), metavar="N", help="images of a step (default: that of the settings)")
    add("--sampling-steps", type=whole(1), metavar="N", help="reverse steps (default: those of the settings)")
    evaluate = "steps between evaluations (default: that of the settings)"
    add("--evaluate-every", type=whole(1), metavar="N", help=evaluate)
    evaluated = "images drawn at each evaluation (default: those of the settings)"
    add("--evaluated", type=whole(1), metavar="N", help=evaluated)
    add("--checkpoint-every", type=whole(1), metavar="N", help="steps between checkpoints (default: at most 1000)")
    add("--seed", type=whole(0), metavar="N", help="(default: that of the settings)")
    add("--studies", nargs="+", default=[], metavar="STUDY", help=f"some of {', '.join(STUDIES)}")
    drawn = "images drawn for each score (default: those of the recipe, else 500)"
    add("--images", type=whole(LEAST_SCORED), metavar="N", help=drawn)
    add(
        "--reference", choices=REFERENCES, help="real images to compare with (default: heldout in a recipe, else train)"
    )
    add("--weights", help="weights of Inception (default: in torch hub's cache)")
    add("--download-weights", action="store_true", help="fetch them into that cache (95 MB)")
    add("--resume", action="store_true", help="go on with what was interrupted in --output")
    add("--dry-run", action="store_true", help="check everything, say what it takes, and stop")
    add("--accelerator", choices=("cuda", "cpu"), help="(default: cuda if there is one)")
    number_or_name = lambda text: int(text) if text.lstrip("-").isdigit() else text
    add("--devices", type=number_or_name, default="auto", help="how many, or which, as in 1,3 (default: all)")
    add("--strategy", default="auto", help="of Lightning's trainer, such as ddp (default: auto)")
    add("--precision", default="32-true", help="such as bf16-mixed or 16-mixed (default: 32-true)")
    add("--compile", action="store_true", help="compile the network, for training and drawing")
    add("--workers", type=whole(0), default=0, metavar="N", help="processes that read images (default: 0)")
    add("--output", default="images", help="folder for results (default: images)")
    parser.set_defaults(run=_run_images)


def _run_images(arguments: argparse.Namespace) -> Outcome:
    from sccountsdiff.benchmark.images import RECIPES, load_config, load_images, run_images, run_recipe
    from sccountsdiff.benchmark.images.data import IMAGE_SETS
    from sccountsdiff.benchmark.images.generation import PRECISIONS
    from sccountsdiff.benchmark.images.training import check_options, default_device
    from sccountsdiff.checks import one_of

    one_of("--recipe", arguments.recipe, (*RECIPES, None))
    recipe = RECIPES.get(arguments.recipe)
    changes = {name: getattr(arguments, name) for name in ("schedule", "evaluate_every", "seed", "batch_size")}
    changes |= {"n_steps": arguments.steps, "n_sampling_steps": arguments.sampling_steps}
    changes |= {"n_evaluated": arguments.evaluated}
    changes = {name: value for name, value in changes.items() if value is not None}
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
    one_of("--precision", arguments.precision, tuple(PRECISIONS))
    training = ("checkpoint_every", "devices", "strategy", "precision", "compile")
    options = {name: getattr(arguments, name) for name in training} | {"n_workers": arguments.workers}
    options |= {"accelerator": arguments.accelerator or default_device()}
    check_options(options)
    splits = load_images(dataset, arguments.data, download=arguments.download and not arguments.dry_run)
    options |= {name: getattr(arguments, name) for name in ("download_weights", "resume", "dry_run")}
    options |= {"weights_path": arguments.weights, "progress": not arguments.quiet}
    optional = {"n_images": arguments.images, "reference": arguments.reference}
    options |= {name: value for name, value in optional.items() if value is not None}
    if recipe:
        scores = run_recipe(arguments.recipe, splits, arguments.output, changes=changes, **options)
    else:
        scores = run_images(settings, splits, arguments.output, run_studies=arguments.studies, **options)
    values = {"command": "benchmark images", "output": arguments.output, "scores": scores.to_dict("records")}
    if arguments.dry_run:
        return Outcome("Nothing was started.", values)
    table = f"{scores.round(3).to_string(index=False)}\n" if len(scores) else ""
    return Outcome(f"{table}\nTables and images are in {Path(arguments.output).resolve()}", values)
