"""Tables and figures of the study."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from sccountsdiff.benchmark.reporting import png
from sccountsdiff.benchmark.simulated import plots
from sccountsdiff.benchmark.simulated.study import COMPARED, TRUE_SAMPLE, Study
from sccountsdiff.files import write_bytes, write_table, write_text


def closest(marginal: pd.DataFrame) -> pd.Series:
    """In how many dimensions, over all seeds, each compared model has the variance nearest to the true one.

    Examples
    --------
    >>> table = pd.DataFrame(
    ...     {"setting": "wide", "seed": 0, "dimension": 0, "model": ["gaussian", "masked", "countsdiff"]}
    ... )
    >>> closest(table.assign(variance=[0.5, 3.0, 0.9], true_variance=1.0)).to_dict()
    {('wide', 'countsdiff'): 1}
    """
    compared = marginal[marginal["model"].isin(COMPARED)]
    error = (compared["variance"] - compared["true_variance"]).abs()
    best = compared.loc[error.groupby([compared[key] for key in ("setting", "seed", "dimension")]).idxmin()]
    return best.groupby(["setting", "model"]).size()


def summarise(study: Study) -> pd.DataFrame:
    """A row for each setting and model: means over seeds (and dimensions), and how the variances compare.

    ``variance_ratio`` is the median over seeds and dimensions of variance / true variance, with its smallest and largest
    value; ``closest`` says in how many dimensions of all seeds the variance is the closest of the three compared.

    Parameters
    ----------
    study
        From :func:`run_study`.

    Returns
    -------
    The table.

    Examples
    --------
    >>> from sccountsdiff.benchmark import simulated
    >>> study = simulated.run_study(seeds=[0], quick=True, silent=True)
    >>> int(simulated.summarise(study)["closest"].sum())
    10
    """
    keys = ["setting", "model"]
    joint = study.joint.groupby(keys, sort=False)[["n_parameters", "joint_swd", "joint_mmd"]].mean()
    marginal = study.marginal.assign(ratio=study.marginal["variance"] / study.marginal["true_variance"])
    groups = marginal.groupby(keys, sort=False)
    table = joint.join(groups.agg(marginal_mmd=("mmd", "mean"), marginal_w1=("wasserstein_1", "mean")))
    table = table.join(groups["ratio"].agg(variance_ratio="median", smallest="min", largest="max"))
    table["closest"] = closest(study.marginal).reindex(table.index).fillna(0).astype(int)
    table["n_parameters"] = table["n_parameters"].round().astype(int)
    return table.reset_index()


def variance_table(study: Study, setting: str, seed: int) -> pd.DataFrame:
    """Variance in each dimension, of the truth and of each model, as in the paper's table.

    Parameters
    ----------
    study
        From :func:`run_study`.
    setting, seed
        Which of the repetitions to show.

    Returns
    -------
    A row for each dimension.

    Examples
    --------
    >>> from sccountsdiff.benchmark import simulated
    >>> study = simulated.run_study(seeds=[0], quick=True, silent=True)
    >>> simulated.variance_table(study, "wide", 0).columns.tolist()[:4]
    ['dimension', 'truth', 'gaussian', 'masked']
    """
    part = study.marginal.query("setting == @setting and seed == @seed and model != @TRUE_SAMPLE")
    table = part.pivot(index="dimension", columns="model", values="variance")[list(dict.fromkeys(part["model"]))]
    table.insert(0, TRUE_SAMPLE, part.drop_duplicates("dimension").set_index("dimension")["true_variance"])
    return table.rename_axis(columns=None).reset_index()


def write_report(study: Study, output: str | Path) -> Path:
    """Write all tables (``.csv``), figures (``.png``) and a page that shows them (``simulated.md``).

    Parameters
    ----------
    study
        From :func:`run_study`.
    output
        Folder; it is made if it is not there.

    Returns
    -------
    Path of the page.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from sccountsdiff.benchmark import simulated
    >>> study = simulated.run_study(seeds=[0], quick=True, silent=True)
    >>> with TemporaryDirectory() as folder:
    ...     write_report(study, folder).name
    'simulated.md'
    """
    output = Path(output)
    output.mkdir(parents=True, exist_ok=True)
    setting, seed = study.joint[["setting", "seed"]].iloc[0]
    tables = {
        "summary": ("Distances to the truth, and variances", summarise(study)),
        "variance": (f"Variance in each dimension ({setting}, seed {seed})", variance_table(study, setting, seed)),
        "rounding": ("Rounding, with the exact denoiser", study.rounding),
        "joint": (None, study.joint),  # too long for the page
        "marginal": (None, study.marginal),
    }
    page = ["# Simulated counts\n"]
    for name, (heading, table) in tables.items():
        write_table(output / f"simulated_{name}.csv", table, float_format="%.4g")
        page += [f"## {heading}\n", frame_to_markdown(table)] if heading else []
    shown = [model for model in (TRUE_SAMPLE, *COMPARED) if (setting, model) in study.samples]
    samples = {model: study.samples[setting, model] for model in shown}
    figures = {
        "variance": plots.variances(study.marginal),
        "histograms": plots.histograms(samples),
        "joint": plots.joint_density(samples),
        "rounding": plots.roundings(study.rounded),
    }
    for name, figure in figures.items():
        write_bytes(output / f"simulated_{name}.png", png(figure))
        page.append(f"![{name}](simulated_{name}.png)\n")
    target = output / "simulated.md"
    write_text(target, "\n".join(page))
    return target


def frame_to_markdown(table: pd.DataFrame) -> str:
    """A table in Markdown, numbers with three digits.

    Examples
    --------
    >>> print(frame_to_markdown(pd.DataFrame({"model": ["a"], "value": [0.12345]})))
    | model | value |
    |---|---|
    | a | 0.123 |
    <BLANKLINE>
    """
    text = lambda value: f"{value:.3g}" if isinstance(value, float | np.floating) else str(value)
    first, *others = (f"| {' | '.join(map(text, row))} |" for row in (table.columns, *table.itertuples(index=False)))
    return "\n".join([first, "|---" * len(table.columns) + "|", *others, ""])
