"""The simulated-counts study: three kinds of diffusion on the same counts, with the same budget."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from sccountsdiff.benchmark.metrics import mmd, sliced_wasserstein
from sccountsdiff.benchmark.simulated.countsdiff import CountsDiffusion
from sccountsdiff.benchmark.simulated.data import NegativeBinomialToy
from sccountsdiff.benchmark.simulated.gaussian import GaussianDiffusion
from sccountsdiff.benchmark.simulated.masked import MaskedDiffusion
from sccountsdiff.benchmark.simulated.networks import Budget, CountModel, fit, matched_width
from sccountsdiff.benchmark.simulated.rounding import rounding_study
from sccountsdiff.files import replacing, set_aside
from sccountsdiff.seeding import global_seed

N_PROJECTIONS = 100  # as in the paper
JOINT_MMD_SAMPLES, MARGINAL_MMD_SAMPLES = 2_000, 1_000  # its cost grows with the square, and there are ten marginals

TRUE_SAMPLE = "truth"
"""Name under which a second, independent sample of the true law is scored: what sampling noise alone amounts to."""

COMPARED = ("gaussian", "masked", "countsdiff")
MODELS: dict[str, Callable[[Tensor, int], CountModel]] = {
    "gaussian": GaussianDiffusion,
    "masked": MaskedDiffusion,
    "countsdiff": CountsDiffusion,
    "gaussian, plain": partial(GaussianDiffusion, plain=True),
    "countsdiff, bare softplus": partial(CountsDiffusion, known_decay=False),
}


@dataclass(frozen=True)
class Setting:
    """Counts and learning rate of one comparison.

    Parameters
    ----------
    mean_range
        Smallest and largest mean of a dimension.
    learning_rate
        Highest learning rate of Adam.
    models
        Names of the models to compare.

    Examples
    --------
    >>> Setting().learning_rate
    0.001
    """

    mean_range: tuple[float, float] = (0.05, 0.5)
    learning_rate: float = 1e-3
    models: tuple[str, ...] = COMPARED


WIDE = (0.05, 2.0)
SETTINGS = {
    "stated": Setting(models=(*COMPARED, "gaussian, plain")),
    "wide": Setting(mean_range=WIDE, models=tuple(MODELS)),
    "wide, fast learning": Setting(mean_range=WIDE, learning_rate=1e-2),
}
"""``stated`` has the means of the paper's text; they cannot reach the variances of its table, those of ``wide`` can."""

QUICK = Budget(n_train=500, n_gradient_steps=20, n_samples=200, n_sampling_steps=10, n_rounded=200)
QUICK_SETTINGS = {"wide": SETTINGS["wide"]}


@dataclass(frozen=True)
class Study:
    """Results of :func:`~sccountsdiff.benchmark.simulated.run_study`.

    Attributes
    ----------
    joint
        A row for each setting, seed and model: parameters, joint distances.
    marginal
        A row for each setting, seed, model and dimension: marginal distances, mean, variance, the true variance.
    rounding
        From :func:`rounding_study`.
    samples
        Samples of the first seed, by setting and model.
    rounded
        Samples of the rounding study.

    Examples
    --------
    >>> from sccountsdiff.benchmark import simulated
    >>> study = simulated.run_study(seeds=[0], quick=True, silent=True)
    >>> isinstance(study, Study), sorted(study.rounding["regime"].unique())
    (True, ['higher counts', 'low counts'])
    """

    joint: pd.DataFrame
    marginal: pd.DataFrame
    rounding: pd.DataFrame
    samples: dict[tuple[str, str], np.ndarray] = field(repr=False)
    rounded: dict[tuple[str, int, str], np.ndarray] = field(repr=False)


def run_study(
    output: str | Path | None = None,
    *,
    seeds: Sequence[int] = (0, 1, 2),
    settings: dict[str, Setting] | None = None,
    budget: Budget | None = None,
    quick: bool = False,
    silent: bool = False,
    device: str | torch.device | None = None,
) -> Study:
    """Train all models on simulated counts, draw from them, and compare with the truth.

    Each seed has its own negative binomials, training counts, weights and draws; the models of a seed share the counts.

    Parameters
    ----------
    output
        Folder for tables and figures; default: none are written. What models have drawn is kept in ``drawn`` there, so that
        a study that was interrupted goes on.
    seeds
        One repetition each.
    settings
        Comparisons by name; default: ``SETTINGS``.
    budget
        What each model may use; default: steps and samples as in the paper.
    quick
        A few steps and samples, to see that everything runs; the numbers mean nothing.
    silent
        No progress bars.
    device
        Where to train and draw; default: torch's default device.

    Returns
    -------
    Scores, samples and the rounding study.

    Examples
    --------
    >>> from sccountsdiff.benchmark import simulated
    >>> study = simulated.run_study(seeds=[0], quick=True, silent=True)
    >>> study.joint["model"].tolist()
    ['truth', 'gaussian', 'masked', 'countsdiff', 'gaussian, plain', 'countsdiff, bare softplus']
    """
    seeds = list(seeds)
    if not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0:
        raise ValueError(f"`seeds` must be different whole numbers of at least 0, and at least one; not {seeds}.")
    if quick and (budget is not None or settings is not None):
        raise ValueError("`quick` has a budget and settings of its own: leave out `budget` and `settings`.")
    settings = settings or (QUICK_SETTINGS if quick else SETTINGS)
    budget = budget or (QUICK if quick else Budget())
    needs = f"a positive learning rate and models among {', '.join(MODELS)}"
    for name, setting in settings.items():
        if not set(setting.models) <= set(MODELS) or not setting.learning_rate > 0:
            raise ValueError(f"Setting {name!r} needs {needs}; found {setting}.")
    kept = None if output is None else Path(output) / "drawn"
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)

    joint, marginal, samples = [], {}, {}
    for (name, setting), seed in product(settings.items(), seeds):
        truth, variance, drawn = _repeat(setting, budget, seed, f"{name}, seed {seed}", silent, device, kept)
        for model, (n_parameters, x) in drawn.items():
            row = {"setting": name, "seed": seed, "model": model, "n_parameters": n_parameters}
            joint.append(row | joint_scores(truth, x))
            marginal[name, seed, model] = marginal_scores(truth, x).assign(true_variance=variance)
            if seed == seeds[0]:
                samples[name, model] = x
    n_steps = budget.n_sampling_steps
    rounding, rounded = rounding_study(budget.n_rounded, (max(1, n_steps // 10), n_steps))
    keys = ["setting", "seed", "model"]
    marginal = pd.concat(marginal, names=keys).reset_index(keys).reset_index(drop=True)
    study = Study(pd.DataFrame(joint), marginal, rounding, samples, rounded)
    if output is not None:
        from sccountsdiff.benchmark.simulated.report import write_report  # it imports this file

        write_report(study, output)
    return study


def _repeat(
    setting: Setting,
    budget: Budget,
    seed: int,
    name: str,
    silent: bool,
    device: str | torch.device | None,
    kept: Path | None,
) -> tuple[np.ndarray, np.ndarray, dict[str, tuple[int, np.ndarray]]]:
    """Truth, true variances, and the size and samples of each model, for one setting and seed."""
    device = torch.get_default_device() if device is None else torch.device(device)
    toy = NegativeBinomialToy.draw(seed, mean_range=setting.mean_range)
    rng = np.random.default_rng([seed, 1])
    train = torch.as_tensor(toy.sample(budget.n_train, rng), device=device)
    truth, again = toy.sample(budget.n_samples, rng), toy.sample(budget.n_samples, rng)
    drawn = {TRUE_SAMPLE: (0, again)}
    with global_seed(seed):  # draws initial weights that nobody uses
        target = MaskedDiffusion(train, budget.masked_width).n_parameters
    matched = matched_width(train.shape[1], train.shape[1], target)
    for kind in setting.models:
        about = repr((kind, setting.mean_range, setting.learning_rate, budget, seed, device.type))
        file = None if kept is None else kept / f"{hashlib.sha256(about.encode()).hexdigest()[:16]}.npz"
        if file is not None and (found := _read(file)) is not None:
            drawn[kind] = found
            continue
        with global_seed(seed):  # initial weights
            model = MODELS[kind](train, budget.masked_width if kind == "masked" else matched).to(device)
        generator = torch.Generator(device=device).manual_seed(seed)
        fit(model, train, budget, setting.learning_rate, generator, description=f"{name}: {kind}", silent=silent)
        x = model.sample(budget.n_samples, budget.n_sampling_steps, generator)
        drawn[kind] = (model.n_parameters, x.cpu().numpy())
        if file is not None:
            with replacing(file) as beside, beside.open("wb") as whole:
                np.savez(whole, n_parameters=model.n_parameters, samples=drawn[kind][1])
    return truth, np.diag(toy.covariance), drawn


def _read(file: Path) -> tuple[int, np.ndarray] | None:
    """Size and samples of a model that was drawn from before; a damaged file is put aside."""
    if not file.is_file():
        return None
    try:
        with np.load(file, allow_pickle=False) as arrays:
            return int(arrays["n_parameters"]), arrays["samples"]
    except (EOFError, KeyError, OSError, ValueError, zipfile.BadZipFile) as error:
        set_aside(file, error)
        return None


def joint_scores(truth: np.ndarray, samples: np.ndarray) -> dict[str, float]:
    """Squared maximum mean discrepancy and sliced Wasserstein distance.

    Examples
    --------
    >>> x = np.random.default_rng(0).poisson(2.0, (50, 3)).astype(float)
    >>> joint_scores(x, x)
    {'joint_mmd': 0.0, 'joint_swd': 0.0}
    """
    return {
        "joint_mmd": mmd(truth, samples, max_cells=JOINT_MMD_SAMPLES),
        "joint_swd": sliced_wasserstein(truth, samples, n_projections=N_PROJECTIONS),
    }


def marginal_scores(truth: np.ndarray, samples: np.ndarray) -> pd.DataFrame:
    """For each dimension: squared maximum mean discrepancy, Wasserstein-1 distance, mean, variance, share of zeros.

    Examples
    --------
    >>> x = np.arange(4.0)[:, None]
    >>> marginal_scores(x, x + 2)["wasserstein_1"].tolist()
    [2.0]
    """
    columns = range(truth.shape[1])
    return pd.DataFrame(
        {
            "dimension": columns,
            "mmd": [mmd(truth[:, [d]], samples[:, [d]], max_cells=MARGINAL_MMD_SAMPLES) for d in columns],
            "wasserstein_1": np.abs(np.sort(truth, axis=0) - np.sort(samples, axis=0)).mean(axis=0),
            "mean": samples.mean(axis=0, dtype=np.float64),
            "variance": samples.var(axis=0, dtype=np.float64),
            "zeros": (samples == 0).mean(axis=0),
        }
    )
