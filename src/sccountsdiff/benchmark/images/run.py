"""The image study as one command: train, draw, score, show."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from lightning.pytorch.utilities import rank_zero_only
from torch import nn

from sccountsdiff.benchmark.images import studies
from sccountsdiff.benchmark.images.config import ImageConfig
from sccountsdiff.benchmark.images.data import IMAGE_SETS, Splits, first_images
from sccountsdiff.benchmark.images.features import load_inception, train_classifier
from sccountsdiff.benchmark.images.model import heldout_losses
from sccountsdiff.benchmark.images.plots import plot_histories
from sccountsdiff.benchmark.images.scores import ImageEvaluator
from sccountsdiff.benchmark.images.training import default_device, train
from sccountsdiff.files import write_table

logger = logging.getLogger("sccountsdiff")

MAIN_TRIALS = (studies.Trial(0.0), studies.Trial(1.0), studies.Trial(2.0))


def run_images(
    config: ImageConfig,
    splits: Splits,
    output: str | Path,
    *,
    run_studies: Sequence[str] = (),
    features: nn.Module | None = None,
    weights_path: str | Path | None = None,
    download_weights: bool = False,
    n_images: int = 500,
    resume: bool = False,
    **train_kwargs: Any,
) -> pd.DataFrame:
    """Train an image model, draw from it at guidance 0, 1 and 2, and score the images.

    Writes into a folder: the training (``config.yaml``, ``history.csv``, ``last.ckpt``, ``history.png``, a grid at every
    evaluation), ``losses.csv`` (held-out loss of the network and of predictions from single pixels), ``scores.csv``,
    the grids ``classes.png`` and ``attrition.png`` and, for each study, a table.

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
    n_images
        Images drawn for each score.
    resume
        Continue a run that was interrupted.
    **train_kwargs
        Arguments of :func:`~sccountsdiff.benchmark.images.train`.

    Returns
    -------
    The table of scores; empty if there is no feature network.

    Examples
    --------
    >>> import torch
    >>> from sccountsdiff.benchmark.images import load_config, load_images
    >>> config = load_config("digits", channels=(8, 8), n_steps=2, n_sampling_steps=2)
    >>> table = run_images(config, load_images("digits"), "out", features=torch.nn.Flatten(), n_images=20)
    >>> table["guidance"].tolist()
    [0.0, 1.0, 2.0]
    """
    output = Path(output)
    unknown = set(run_studies) - set(studies.STUDIES)
    if unknown:
        raise ValueError(f"Unknown studies: {', '.join(sorted(unknown))}. Known: {', '.join(studies.STUDIES)}.")
    device = train_kwargs.setdefault("accelerator", default_device())
    classifier = None
    if features is None and config.dataset in IMAGE_SETS and IMAGE_SETS[config.dataset].trains_classifier:
        features = classifier = train_classifier(splits.train, seed=config.seed, device=device)
    elif features is None:
        features = _inception(weights_path, download_weights)
    evaluator = None if features is None else ImageEvaluator(features, splits.train, device=device)
    if run_studies and evaluator is None:
        raise ValueError("The studies need scores, and these the weights of Inception or another feature network.")
    evaluate = studies.evaluation(splits.train, n_images, evaluator, output)
    model = train(config, splits, output, evaluate=evaluate, resume=resume, **train_kwargs)
    drawn = {"n_images": n_images, "classifier": classifier, "seed": config.seed}
    if "schedules" in run_studies:
        studies.schedules(config, splits, evaluator, output, train_kwargs=train_kwargs, **drawn)
    if rank_zero_only.rank:  # of several processes that trained together, one draws and writes
        return pd.DataFrame()

    losses = pd.Series(heldout_losses(model, splits.heldout), name="heldout_loss")
    write_table(output / "losses.csv", losses, index=True, index_label="predictor")
    plot_histories({config.schedule: pd.read_csv(output / "history.csv")}, output / "history.png")
    studies.class_grid(model, output / "classes.png", seed=config.seed)
    studies.attrition_grid(model, output / "attrition.png", seed=config.seed)
    if evaluator is None:
        return pd.DataFrame()

    trials = MAIN_TRIALS if config.conditional else (studies.Trial(None),)
    scores = studies.compare(model, trials, evaluator, splits.train, **drawn)
    if classifier is not None:
        scores["agreement_real"] = classifier.agreement(*first_images(splits.heldout, len(splits.heldout)))
    scores["frechet_real"] = evaluator.score(first_images(splits.heldout, n_images)[0])["frechet"]
    write_table(output / "scores.csv", scores)
    for name, sweep in studies.IMAGE_SWEEPS.items():
        if name in run_studies:
            write_table(output / f"{name}.csv", sweep(model, evaluator, splits.train, **drawn))
    return scores


def _inception(weights_path: str | Path | None, download: bool) -> nn.Module | None:
    try:
        return load_inception(weights_path, download=download)
    except FileNotFoundError as error:
        if weights_path is not None:
            raise
        logger.warning("No Frechet distance and no inception score: %s", error)
        return None
