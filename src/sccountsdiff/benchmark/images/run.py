"""The image study as one command: train, draw, score, show; for any settings, or for a table or figure of the paper."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from lightning.pytorch.utilities import rank_zero_only
from torch import nn

from sccountsdiff.benchmark.images import studies
from sccountsdiff.benchmark.images.config import LEAST_SCORED, ImageConfig
from sccountsdiff.benchmark.images.data import IMAGE_SETS, CountImages, Splits, first_images
from sccountsdiff.benchmark.images.features import load_inception, train_classifier
from sccountsdiff.benchmark.images.generation import PRECISIONS
from sccountsdiff.benchmark.images.model import heldout_losses
from sccountsdiff.benchmark.images.planning import describe, plan
from sccountsdiff.benchmark.images.plots import plot_histories
from sccountsdiff.benchmark.images.recipes import RECIPES, ImageRecipe
from sccountsdiff.benchmark.images.scores import ImageEvaluator
from sccountsdiff.benchmark.images.training import check_options, default_device, own_device, read_history, train
from sccountsdiff.checks import one_of, whole_number
from sccountsdiff.files import check_folder, write_table

logger = logging.getLogger("sccountsdiff")

MAIN_TRIALS = (studies.Trial(0.0), studies.Trial(1.0), studies.Trial(2.0))
REFERENCES = ("train", "heldout")
DRAWING = {"precision": "32-true", "compile": False, "progress": False}
"""Options of training that hold for drawing as well, and their defaults."""

NO_JUDGE = "nothing (there are no weights of Inception)"


@dataclasses.dataclass
class _Bench:
    """What all trainings of a study share: the images, where and how to compute, and what scores."""

    splits: Splits
    reference: str
    train_kwargs: dict[str, Any]
    devices: list[torch.device]
    evaluator: ImageEvaluator | None = None

    @classmethod
    def check(
        cls,
        configs: Iterable[ImageConfig],
        splits: Splits,
        output: Path,
        n_images: int,
        reference: str,
        train_kwargs: dict[str, Any],
    ) -> _Bench:
        """Refuse what cannot work, before any work."""
        whole_number("n_images", n_images, least=LEAST_SCORED)
        one_of("reference", reference, REFERENCES)
        precision = train_kwargs.setdefault("precision", "32-true")
        one_of("precision", precision, tuple(PRECISIONS))
        train_kwargs["accelerator"] = train_kwargs.get("accelerator") or default_device()
        devices = check_options(train_kwargs)
        for config in configs:
            if config.batch_size % len(devices):
                n = len(devices)
                raise ValueError(
                    f"`batch_size` {config.batch_size} cannot be shared evenly by {n} `devices`: change either."
                )
        check_folder(output)
        return cls(splits, reference, train_kwargs, devices)

    @property
    def real(self) -> CountImages:
        """The images that drawn ones are compared with."""
        return getattr(self.splits, self.reference)

    @property
    def drawing(self) -> dict[str, Any]:
        """How to draw images: like the training."""
        return {name: self.train_kwargs.get(name, default) for name, default in DRAWING.items()}

    def judge_by(self, features: nn.Module | None, cache: Path) -> None:
        """Score in the features of this network."""
        if features is not None:
            self.evaluator = ImageEvaluator(features, self.real, device=own_device(self.devices), cache=cache)

    def train(self, config: ImageConfig, folder: Path, **options: Any):
        """Train a model with scores on the way."""
        evaluate = studies.evaluation(self.real, config.n_evaluated, self.evaluator, folder, **self.drawing)
        return train(config, self.splits, folder, evaluate=evaluate, **options, **self.train_kwargs)


def run_images(
    config: ImageConfig,
    splits: Splits,
    output: str | Path,
    *,
    run_studies: Sequence[str] = (),
    features: nn.Module | None = None,
    weights_path: str | Path | None = None,
    download_weights: bool = False,
    reference: str = "train",
    n_images: int = 500,
    resume: bool = False,
    dry_run: bool = False,
    **train_kwargs: Any,
) -> pd.DataFrame:
    """Train an image model, draw from it at guidance 0, 1 and 2, and score the images.

    Writes into a folder: the training (``config.yaml``, ``history.csv``, ``last.ckpt``, ``history.png``, a grid at every
    evaluation), ``losses.csv`` (held-out loss of the network and of predictions from single pixels), ``scores.csv``,
    the grids ``classes.png`` and ``attrition.png`` and, for each study, a table. Finished blocks of images are kept in
    ``drawn``, the moments of the real images' features in ``reference``.

    Parameters
    ----------
    config
        Settings.
    splits
        Images.
    output
        Folder.
    run_studies
        Some of ``"guidance"``, ``"attrition"`` and ``"schedules"``.
    features
        Network in whose feature space images are compared. By default that of the image set: for the digits a classifier
        trained on them, which also says how often the digit asked for is found, and Inception for the others.
    weights_path
        File with the weights of Inception; by default in torch hub's cache. Without them there are no scores.
    download_weights
        Fetch them into that cache if they are not there.
    reference
        ``"train"`` or ``"heldout"``: the images that drawn ones are compared with.
    n_images
        Images drawn for each score after the training; those on the way are ``config.n_evaluated``.
    resume
        Continue a run that was interrupted.
    dry_run
        Check images, weights, devices and folder, print what the training will take, and stop: nothing is written.
    **train_kwargs
        Arguments of :func:`~sccountsdiff.benchmark.images.train`. ``precision`` and ``compile`` hold for drawing as well,
        and images are drawn on all ``devices``.

    Returns
    -------
    The table of scores; empty if there is no feature network. From a dry run, what the training will take.

    Examples
    --------
    >>> import torch
    >>> from sccountsdiff.benchmark.images import load_config, load_images
    >>> config = load_config("digits", channels=(8, 8), n_steps=2, n_sampling_steps=2, n_evaluated=20)
    >>> table = run_images(config, load_images("digits"), "out", features=torch.nn.Flatten(), n_images=20)
    >>> table["guidance"].tolist()
    [0.0, 1.0, 2.0]
    """
    output = Path(output)
    unknown = set(run_studies) - set(studies.STUDIES)
    if unknown:
        raise ValueError(f"Unknown studies: {', '.join(sorted(unknown))}. Known: {', '.join(studies.STUDIES)}.")
    if not config.conditional and set(run_studies) - {"attrition"}:
        raise ValueError("The studies of guidance and schedules begin with settings that have conditions.")
    bench = _Bench.check([config], splits, output, n_images, reference, train_kwargs)
    trials = MAIN_TRIALS if config.conditional else (studies.Trial(None),)
    trains_classifier = config.dataset in IMAGE_SETS and IMAGE_SETS[config.dataset].trains_classifier
    inception = None
    if features is None and not trains_classifier:
        inception = _inception(weights_path, download_weights and not dry_run, needed=bool(run_studies))
    if dry_run:
        judge = "a classifier of the images" if trains_classifier else "Inception" if inception else NO_JUDGE
        print(_found(splits, bench, "the network passed" if features is not None else judge))
        return _plans({config.dataset: (config, [(trial, n_images) for trial in trials])}, bench)
    classifier = None
    if features is None and trains_classifier:
        features = classifier = train_classifier(splits.train, seed=config.seed, device=own_device(bench.devices))
    bench.judge_by(features if features is not None else inception, output / "reference")
    evaluator = bench.evaluator
    model = bench.train(config, output, resume=resume)
    drawn = {"n_images": n_images, "classifier": classifier, "seed": config.seed, **bench.drawing}
    drawn["devices"] = bench.devices
    if "schedules" in run_studies:
        studies.schedules(config, splits, evaluator, output, train_kwargs=train_kwargs, **drawn)
    if rank_zero_only.rank:  # of several processes that trained together, one draws and writes
        return pd.DataFrame()

    drawn["folder"] = output / "drawn"
    losses = pd.Series(heldout_losses(model, splits.heldout), name="heldout_loss")
    write_table(output / "losses.csv", losses.to_frame(), index=True, index_label="predictor")
    plot_histories({config.schedule: read_history(output / "history.csv")}, output / "history.png")
    studies.class_grid(model, output / "classes.png", seed=config.seed, **bench.drawing)
    studies.attrition_grid(model, output / "attrition.png", seed=config.seed, **bench.drawing)
    if evaluator is None:
        return pd.DataFrame()

    scores = studies.compare(model, trials, evaluator, bench.real, **drawn)
    if classifier is not None:
        scores["agreement_real"] = classifier.agreement(*first_images(splits.heldout, len(splits.heldout)))
    scores["frechet_real"] = evaluator.score(first_images(splits.heldout, n_images)[0])["frechet"]
    _write(scores, output / "scores.csv")
    for name, sweep in studies.IMAGE_SWEEPS.items():
        if name in run_studies:
            _write(sweep(model, evaluator, bench.real, **drawn), output / f"{name}.csv")
    return scores


def run_recipe(
    name: str,
    splits: Splits,
    output: str | Path,
    *,
    features: nn.Module | None = None,
    weights_path: str | Path | None = None,
    download_weights: bool = False,
    reference: str = "heldout",
    n_images: int | None = None,
    resume: bool = False,
    dry_run: bool = False,
    changes: dict[str, Any] | None = None,
    **train_kwargs: Any,
) -> pd.DataFrame:
    """Make one of the paper's tables or figures of images.

    Each model is trained in a folder of its own name in ``output``; recipes with the same ``output`` share them if they are
    resumed. The table is ``<recipe>.csv``, with the paper's values beside, and is written after each row; a figure is
    ``<recipe>.png``.

    Parameters
    ----------
    name
        Name of the recipe (``sccountsdiff.benchmark.images.RECIPES``).
    splits
        Images of its data set.
    output
        Folder.
    features, weights_path, download_weights
        As in :func:`run_images`; a table without weights or another network is an error.
    reference
        ``"train"`` or ``"heldout"``: the images that drawn ones are compared with. The paper's code takes held-out ones.
    n_images
        Images for each row instead of the recipe's number.
    resume
        Continue what was interrupted.
    dry_run
        Check images, weights, devices and folder, print what the recipe will take, and stop: nothing is written.
    changes
        Settings of the trainings to change, such as ``n_steps``; smaller ones scale the recipe down.
    **train_kwargs
        Arguments of :func:`~sccountsdiff.benchmark.images.train`, as for :func:`run_images`.

    Returns
    -------
    The table: settings, scores, and the paper's scores; for curves, their values. From a dry run, what the recipe will take.

    Examples
    --------
    >>> import numpy as np, torch
    >>> from sccountsdiff.benchmark.images import ArrayImages, Splits
    >>> few = ArrayImages(np.zeros((20, 3, 8, 8), "uint8"), np.arange(20) % 10, "0123456789")
    >>> tiny = {"channels": (8, 8), "layers_per_block": 1, "n_steps": 1, "n_sampling_steps": 2, "n_evaluated": 10}
    >>> options = {"features": torch.nn.Flatten(), "n_images": 10, "changes": tiny | {"batch_size": 4}}
    >>> table = run_recipe("cifar10_attrition", Splits(few, few), "out", **options)
    >>> table["paper_frechet"].tolist()
    [9.666, 9.562, 9.507, 10.4, 12.727]
    """
    if name not in RECIPES:
        raise KeyError(f"Unknown recipe {name!r}; known: {', '.join(RECIPES)}.")
    recipe, output = RECIPES[name], Path(output)
    settings = recipe.settings(**changes or {})
    least = n_images if n_images is not None else min((row.n_images for row in recipe.rows), default=LEAST_SCORED)
    bench = _Bench.check(settings.values(), splits, output, least, reference, train_kwargs)
    judge = "the network passed"
    if features is None:
        needed = bool(recipe.rows) and not dry_run
        features, judge = _inception(weights_path, download_weights and not dry_run, needed=needed), "Inception"
    if dry_run:
        print(_found(splits, bench, judge if features is not None else NO_JUDGE))
        rows = {n: [(row.trial, n_images or row.n_images) for row in recipe.rows if row.config == n] for n in settings}
        return _plans({n: (config, rows[n]) for n, config in settings.items()}, bench)
    bench.judge_by(features, output / "reference")
    models, folders = {}, {}
    for config_name, config in settings.items():
        # Recipes that change the training, such as its length, do not share models with others.
        folders[config_name] = output / (f"{name}_{config_name}" if recipe.changes else config_name)
        models[config_name] = bench.train(config, folders[config_name], resume=resume)
    if rank_zero_only.rank:
        return pd.DataFrame()
    drawing = {**bench.drawing, "devices": bench.devices}
    if recipe.figure:
        return _draw_figure(recipe, models, folders, output / f"{name}.png", drawing)
    table: list[pd.DataFrame] = []
    for row in recipe.rows:
        options = {"n_images": n_images or row.n_images, "folder": folders[row.config] / "drawn", **drawing}
        scores = studies.compare(models[row.config], [row.trial], bench.evaluator, bench.real, **options)
        theirs = ("frechet", "inception_score", "inception_score_sd")
        paper = {f"paper_{score}": getattr(row, score) for score in theirs} | {"paper_n_images": row.n_images}
        table.append(scores.assign(**paper))
        table[-1].insert(0, "settings", row.config)
        _write(pd.concat(table, ignore_index=True), output / f"{name}.csv")
    return pd.concat(table, ignore_index=True)


def _draw_figure(recipe: ImageRecipe, models, folders, path: Path, drawing: dict[str, Any]) -> pd.DataFrame:
    if recipe.figure == "curves":
        histories = {
            model.config.schedule: read_history(folders[name] / "history.csv") for name, model in models.items()
        }
        plot_histories(histories, path)
        table = pd.concat([rows.assign(schedule=name) for name, rows in histories.items()], ignore_index=True)
        _write(table, path.with_suffix(".csv"))
        return table
    (model,) = models.values()
    drawing = drawing | {"n_columns": recipe.n_columns, "seed": model.config.seed, "guidance": recipe.drawn.guidance}
    if recipe.figure == "classes":
        studies.class_grid(model, path, attrition=recipe.drawn.attrition, **drawing)
    else:
        studies.attrition_grid(model, path, **drawing)
    return pd.DataFrame({"figure": [str(path)]})


def _write(table: pd.DataFrame, path: Path) -> None:
    write_table(path, table)


def _found(splits: Splits, bench: _Bench, judge: str) -> str:
    """What a dry run found, as lines."""
    shape = " x ".join(map(str, splits.train.shape))
    devices = ", ".join(map(str, bench.devices))
    return "\n".join([
        f"images: {len(splits.train):,} to train on and {len(splits.heldout):,} held out, {shape}",
        f"scores: by {judge}, against the {len(bench.real):,} images of '{bench.reference}'",
        f"devices: {devices}; precision {bench.train_kwargs['precision']}",
    ])  # fmt: skip


def _plans(trainings: dict[str, tuple[ImageConfig, Iterable]], bench: _Bench) -> pd.DataFrame:
    n_devices = len(bench.devices)
    options = {"precision": bench.train_kwargs["precision"], "n_devices": n_devices}
    plans = {
        name: plan(config, bench.splits.train, trials=list(trials), **options)
        for name, (config, trials) in trainings.items()
    }
    print(describe(plans, n_devices))
    flat = {name: what | {f"hours_{d}": h for d, h in what["hours"].items()} for name, what in plans.items()}
    return pd.DataFrame(flat).drop(index="hours").T


def _inception(weights_path: str | Path | None, download: bool, *, needed: bool) -> nn.Module | None:
    try:
        return load_inception(weights_path, download=download)
    except FileNotFoundError as error:
        if weights_path is not None:
            raise
        if needed:
            raise ValueError(
                f"This needs scores, and these the weights of Inception or another network. {error}"
            ) from None
        logger.warning("No Frechet distance and no inception score: %s", error)
        return None
