"""The ``sccountsdiff benchmark`` command.

What takes seconds to import is imported by the work itself, so that help and mistakes are shown at once.
"""

from __future__ import annotations

import argparse
import shlex
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sccountsdiff.command import Outcome, add_general_options, whole
from sccountsdiff.io import READABLE
from sccountsdiff.options import registered_names

if TYPE_CHECKING:
    import pandas as pd

    from sccountsdiff.benchmark.baselines import Baseline
    from sccountsdiff.benchmark.datasets import Dataset

SHOWN = ("spearman", "rmse", "energy_distance", "mmd", "molecule_poisson", "molecule_mse")
"""Metrics of the table that the command prints."""

CELL_OPTIONS = ("n_genes", "gene_ranking", "min_cells", "n_cells", "test_share")
RUN_OPTIONS = (*CELL_OPTIONS, "protocol", "seeds")
RUN_OPTIONS += ("n_bootstrap", "bootstrap_cells", "output", "retry_failed")
"""What ``imputation`` and ``sweep`` pass on as it is, and the part of it that says which cells and genes are compared."""

RANKINGS = ("cv", "pearson_residuals", "variance")

VALUES = {"attrition": float, "guidance": float, "n_steps": int, "schedule": str, "rounding": str}
"""Settings that ``sweep`` varies, and what their values are."""

KINDS = {
    "imputation": "hide counts of test cells and compare methods that fill them in",
    "tune": "choose settings of methods on validation cells",
    "sweep": "vary one setting of CountsDiff",
    "images": "train on images, pixels as counts, and draw new ones",
    "simulated": "Gaussian, masked and count diffusion on simulated counts whose law is known",
    "paper": "make a table of the paper, at full size or scaled down",
    "speed": "time of training and imputing, method by method in turns",
}


def add_kinds(benchmark: argparse.ArgumentParser, wanted: Sequence[str] = tuple(KINDS)) -> None:
    """Add the kinds of benchmarks to a parser, with the options of those that are wanted.

    Examples
    --------
    >>> parser = argparse.ArgumentParser()
    >>> add_kinds(parser)
    >>> parser.parse_args(["imputation", "--seeds", "0", "1"]).seeds
    [0, 1]
    """
    kinds = benchmark.add_subparsers(required=True, metavar="kind", title="kinds")
    own = {"imputation": _add_imputation, "tune": _add_tune, "sweep": _add_sweep}
    for name, about in KINDS.items():
        kind = kinds.add_parser(name, help=about, description=about[0].upper() + about[1:] + ".")
        if name in wanted:
            add = own.get(name) or import_module(f"sccountsdiff.benchmark.commands.{name}").add_options
            add(kind)
            add_general_options(kind)


def _add_imputation(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=_run_imputation)
    _add_data(parser)
    add_run_options(parser, output="benchmark")
    add_models(parser)
    add = parser.add_argument
    methods = ", ".join(registered_names("sccountsdiff.benchmark.baselines", "register_baseline"))
    add("--methods", nargs="+", metavar="METHOD", help=f"some of {methods}")
    names = ", ".join(registered_names("sccountsdiff.benchmark.missingness", "register_missingness"))
    patterns = f"some of {names}; may have a rate, or the modality, as in mcar:0.3 (default: mcar)"
    denoising = "molecules hides a tenth of the molecules, and methods denoise"
    add("--missingness", nargs="+", type=_pattern, default=["mcar"], metavar="PATTERN", help=f"{patterns}; {denoising}")
    add("--n-samples", type=whole(1), nargs="+", default=[1, 5], metavar="N", help="draws (default: 1 5)")
    add("--quick", action="store_true", help="short training, fewer cells, genes and metrics")


def _add_tune(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=_run_tune)
    _add_cells(parser)
    add = parser.add_argument
    add("--methods", nargs="+", metavar="METHOD", help="(default: all with settings to choose from)")
    add("--missingness", type=_pattern, default="mcar", metavar="PATTERN", help="(default: mcar)")
    add("--metric", help="that is decisive (default: Poisson loss of a mean, energy distance of a draw)")
    seeds = "of the comparison, whose test cells are not used (default: 0)"
    add("--seeds", type=whole(0), nargs="+", default=[0], metavar="N", help=seeds)
    add("--output", default="tuning", help="folder for results; continues what is there (default: tuning)")


def _add_sweep(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=_run_sweep)
    add = parser.add_argument
    add("setting", choices=tuple(VALUES), help=f"one of {', '.join(VALUES)}", metavar="setting")
    _add_data(parser)
    add_run_options(parser, output="sweep", metrics="the paper's")
    add("--values", nargs="+", metavar="VALUE", help="values of the setting (default: the paper's)")
    schedules = registered_names("sccountsdiff.diffusion.schedules", "register_schedule")
    about = f"for attrition and guidance: train with some of {', '.join(schedules)}"
    add("--schedules", nargs="+", choices=schedules, metavar="SCHEDULE", help=about)
    add("--missingness", type=_pattern, default="mcar:0.4", metavar="PATTERN", help="(default: mcar:0.4)")
    add("--max-epochs", type=whole(1), metavar="N", help="epochs of each training (default: the model's own)")


def _add_cells(parser: argparse.ArgumentParser) -> None:
    """Options that say which cells and genes are compared."""
    add = parser.add_argument
    names = ", ".join(registered_names("sccountsdiff.benchmark.datasets", "register_dataset"))
    add("--dataset", default="pbmc68k", help=f"{READABLE} with raw counts, or {names} (default: pbmc68k)")
    add("--layer", help="layer of the file with the counts, or X (default: counts if there is one, else X)")
    add("--label", help="column of obs with the type of each cell")
    add("--covariate", action="append", default=[], help="column of obs; may be repeated")
    add("--batch", help="column of obs with the batch of each cell: each lacks another panel")
    add(
        "--modality",
        help="column of var with the modality of each gene (default if the file has modalities: feature_types)",
    )
    add("--testable", help="column of obs, true for the cells that may be test cells (default: any may be)")
    add("--n-genes", "--genes", metavar="N", type=whole(1), help="most variable genes to keep (default: all)")
    add("--gene-ranking", choices=RANKINGS, default="cv", help="how variable a gene is (default: cv)")
    add("--min-cells", type=whole(0), metavar="N", default=10, help="leave out rarer genes (default: 10)")
    add("--n-cells", "--cells", metavar="N", type=whole(1), help="keep at most this many cells, at random")
    add("--test-share", type=float, default=0.1, help="share of the cells to test with (default: 0.1)")


def _add_data(parser: argparse.ArgumentParser) -> None:
    """The same, and which entries are hidden, and how often cells are resampled."""
    _add_cells(parser)
    add = parser.add_argument
    add("--protocol", choices=("all", "paper"), default="all", help="which entries may be hidden")
    resamples = "resamples for standard errors, 0 for none (default: 10)"
    add("--n-bootstrap", "--bootstrap", metavar="N", type=whole(0), default=10, help=resamples)
    add("--bootstrap-cells", type=whole(2), metavar="N", help="cells in each resample, and for MMD (default: all)")


def add_run_options(parser: argparse.ArgumentParser, output: str | None, metrics: str = "all that apply") -> None:
    """Add the options of all comparisons, with the default folder for results and, for the help, the default metrics.

    Examples
    --------
    >>> parser = argparse.ArgumentParser()
    >>> add_run_options(parser, output="results")
    >>> parser.parse_args([]).output
    'results'
    """
    add = parser.add_argument
    add("--seeds", type=whole(0), nargs="+", default=[0], metavar="N", help="repetitions (default: 0)")
    add("--metrics", nargs="+", metavar="METRIC", help=f"names of metrics (default: {metrics})")
    folder = output or "name of the table"
    add("--output", default=output, help=f"folder for results; continues what is there (default: {folder})")
    add("--retry-failed", action="store_true", help="try again what failed in an earlier run")


def add_models(parser: argparse.ArgumentParser) -> None:
    """Add the options that name folders with trained models.

    Examples
    --------
    >>> parser = argparse.ArgumentParser()
    >>> add_models(parser)
    >>> parser.parse_args(["--embedder", "census"]).embedder
    'census'
    """
    weights = "released weights of scGPT, for scgpt_pretrained; unknown genes get their mean"
    parser.add_argument("--weights", metavar="FOLDER", help=weights)
    embedder = "saved scvi-tools model for scFID (default: train one)"
    parser.add_argument("--embedder", metavar="FOLDER", help=embedder)
    trust = "load an embedder that is a pickle, and can run any code: only if you trust who made it"
    parser.add_argument("--allow-pickle", action="store_true", help=trust)


def _pattern(text: str) -> str:
    """A missingness pattern that hides something; its name is looked up later."""
    try:
        rate = float(text.partition(":")[2] or 1)
    except ValueError:
        return text  # the name of a modality
    if not 0 < rate <= 1:
        raise argparse.ArgumentTypeError(f"must hide a share above 0 and at most 1, not {text}")
    return text


# The work -----------------------------------------------------------------------------------------------------------


def _dataset(arguments: argparse.Namespace) -> Dataset:
    from sccountsdiff.benchmark.datasets import load_dataset

    columns = {"covariates": arguments.covariate, "label": arguments.label}
    columns |= {"batch": arguments.batch, "modality": arguments.modality, "testable": arguments.testable}
    return load_dataset(arguments.dataset, **columns, layer=arguments.layer)


def _run_tune(arguments: argparse.Namespace) -> Outcome:
    from sccountsdiff.benchmark.results import label
    from sccountsdiff.benchmark.tuning import tune

    options = {name: getattr(arguments, name) for name in (*CELL_OPTIONS, "missingness", "metric", "output")}
    options |= {"seed": arguments.seeds, "silent": arguments.quiet}
    chosen = [label(method, method.name) for method in tune(_dataset(arguments), arguments.methods, **options).values()]
    text = "\n".join([*chosen, "", f"All scores are in {Path(arguments.output).resolve()}"])
    return Outcome(text, {"command": "benchmark tune", "output": arguments.output, "chosen": chosen})


def _chosen(arguments: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Arguments of the command that are arguments of :func:`run`."""
    return {name: getattr(arguments, name) for name in (*RUN_OPTIONS, *names)} | {"silent": arguments.quiet}


def _run_imputation(arguments: argparse.Namespace) -> Outcome:
    from sccountsdiff.benchmark.provenance import describe_run, save
    from sccountsdiff.benchmark.reporting import report
    from sccountsdiff.benchmark.runner import run

    started = time.monotonic()
    options = _chosen(arguments, "missingness", "metrics", "n_samples", "embedder", "quick")
    dataset = _dataset(arguments)
    table = run(dataset, methods=_methods(arguments), **options)
    about = {name: options[name] for name in (*CELL_OPTIONS, "missingness", "seeds", "protocol", "quick")}
    about = describe_run(dataset, **about, command=shlex.join(["sccountsdiff", *arguments.argv]))
    save(about | {"Total time": f"{time.monotonic() - started:.0f} s"}, arguments.output)
    page = report(table, arguments.output)
    values = table[table["metric"].notna() & (table["group"] != "reference")]
    rows = ["dataset", "missingness", "method", "n_samples"]
    columns = [metric for metric in SHOWN if metric in set(values["metric"])]
    parts = []
    if columns:
        shown = values.pivot_table(index=rows, columns="metric", values="value", sort=False)[columns]
        parts.append(shown.round(4).to_string())
    return comparison_outcome(
        "imputation", table, parts, f"Table and report are in {page.parent.resolve()}", page.parent
    )


def comparison_outcome(kind: str, table: pd.DataFrame, parts: Sequence[str], where: str, output: Path) -> Outcome:
    """What a comparison came to; the exit code is 1 if no method could be scored.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"method": ["magic"], "group": "x", "metric": None, "value": None, "error": "No graph."})
    >>> outcome = comparison_outcome("imputation", table, [], "Tables are here", Path("out"))
    >>> outcome.code, outcome.values["failed"]
    (1, {'magic': 'No graph.'})
    """
    failures = table[table["error"].notna() & table["metric"].isna()].drop_duplicates("method")
    failed = dict(zip(failures["method"], failures["error"].astype(str), strict=True))
    scored = table[table["metric"].notna() & (table["group"] != "reference")]
    texts = [*parts, *(f"{method} failed: {error}" for method, error in failed.items())]
    columns = [
        name for name in ("dataset", "missingness", "method", "n_samples", "seed", "metric", "value") if name in scored
    ]
    values = {"command": f"benchmark {kind}", "output": str(output), "failed": failed}
    values["scores"] = scored[columns].to_dict("records")
    return Outcome("\n".join([*texts, "", where]), values, code=0 if len(scored) else 1)


def _methods(arguments: argparse.Namespace) -> list[str | Baseline] | None:
    """The methods by their names, but for the one that needs weights."""
    if arguments.weights is None:
        return arguments.methods
    from sccountsdiff.benchmark.baselines import SCGPTPretrained

    name = SCGPTPretrained.name
    if name not in (arguments.methods or ()):
        raise ValueError(f"--weights goes with --methods {name}.")
    pretrained = SCGPTPretrained(weights_path=arguments.weights, unknown_genes="mean")
    return [pretrained if method == name else method for method in arguments.methods]


def _run_sweep(arguments: argparse.Namespace) -> Outcome:
    if arguments.schedules and arguments.setting not in ("attrition", "guidance"):
        raise ValueError(f"--schedules goes with attrition and guidance, not with {arguments.setting}.")
    values = _values(arguments)

    from sccountsdiff.benchmark import sweeps
    from sccountsdiff.benchmark.baselines import CountsDiff
    from sccountsdiff.benchmark.reporting import png
    from sccountsdiff.files import write_bytes, write_table

    options = _chosen(arguments, "missingness") | {"method": CountsDiff(max_epochs=arguments.max_epochs)}
    for name, value in (("metrics", arguments.metrics), ("schedules", arguments.schedules), ("values", values)):
        options |= {name: value} if value else {}
    table = sweeps.SWEEPS[arguments.setting](_dataset(arguments), **options)
    output = Path(arguments.output)
    write_table(output / f"{arguments.setting}.csv", table)
    write_bytes(output / f"{arguments.setting}.png", png(sweeps.plot(table)))
    where = f"Table and plot are in {output.resolve()}"
    return comparison_outcome("sweep", table, [sweeps.summarise(table).to_string()], where, output)


def _values(arguments: argparse.Namespace) -> list:
    """The values of the setting, as numbers if they are."""
    kind = VALUES[arguments.setting]
    try:
        return [kind(value) for value in arguments.values or ()]
    except ValueError:
        what = "whole numbers" if kind is int else "numbers"
        raise ValueError(f"--values of {arguments.setting} must be {what}, not {arguments.values}.") from None
