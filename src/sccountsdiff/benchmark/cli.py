"""The ``sccountsdiff benchmark`` command."""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

from sccountsdiff.benchmark import sweeps
from sccountsdiff.benchmark.baselines import BASELINES, Baseline, CountsDiff, SCGPTPretrained
from sccountsdiff.benchmark.datasets import DATASETS, Dataset, load_dataset
from sccountsdiff.benchmark.missingness import MISSINGNESS
from sccountsdiff.benchmark.preprocessing import Ranking
from sccountsdiff.benchmark.reporting import png, report
from sccountsdiff.benchmark.results import label
from sccountsdiff.benchmark.runner import TEST_SHARE, run
from sccountsdiff.benchmark.tuning import GRIDS, tune
from sccountsdiff.diffusion.schedules import SCHEDULES

SHOWN = ("spearman", "rmse", "energy_distance", "mmd", "molecule_poisson", "molecule_mse")
"""Metrics of the table that the command prints."""

CELL_OPTIONS = ("n_genes", "gene_ranking", "min_cells", "n_cells", "test_share")
RUN_OPTIONS = (*CELL_OPTIONS, "protocol", "seeds")
RUN_OPTIONS += ("n_bootstrap", "bootstrap_cells", "output", "retry_failed")
"""What ``imputation`` and ``sweep`` pass on as it is, and the part of it that says which cells and genes are compared."""

OTHER_KINDS = {
    "images": "train on images, pixels as counts, and draw new ones",
    "simulated": "Gaussian, masked and count diffusion on simulated counts whose law is known",
    "paper": "make a table of the paper, at full size or scaled down",
}
"""Kinds of benchmarks that have a package, and in it a module ``cli``, of their own."""


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Add ``benchmark imputation``, ``tune``, ``sweep``, ``images``, ``simulated`` and ``paper`` to the commands of a parser.

    Examples
    --------
    >>> parser = argparse.ArgumentParser()
    >>> add_parser(parser.add_subparsers())
    >>> parser.parse_args(["benchmark", "imputation", "--seeds", "0", "1"]).seeds
    [0, 1]
    """
    benchmark = commands.add_parser("benchmark", help="compare imputation methods, or settings of CountsDiff")
    kinds = benchmark.add_subparsers(required=True, metavar="kind", parser_class=_KindParser)

    imputation = kinds.add_parser("imputation", help="hide counts of test cells and compare methods that fill them in")
    imputation.set_defaults(run=_run_imputation)
    _add_data(imputation)
    add_run_options(imputation, output="benchmark")
    add_models(imputation)
    add = imputation.add_argument
    add("--methods", nargs="+", metavar="METHOD", help=f"some of {', '.join(BASELINES)}")
    patterns = f"some of {', '.join(MISSINGNESS)}; may have a rate, or the modality, as in mcar:0.3 (default: mcar)"
    denoising = "molecules hides a tenth of the molecules, and methods denoise"
    add("--missingness", nargs="+", default=["mcar"], metavar="PATTERN", help=f"{patterns}; {denoising}")
    add("--n-samples", type=int, nargs="+", default=[1, 5], help="draws (default: 1 5)")
    add("--quick", action="store_true", help="short training, fewer cells, genes and metrics")

    tuned = kinds.add_parser("tune", help="choose settings of methods on validation cells")
    tuned.set_defaults(run=_run_tune)
    _add_cells(tuned)
    add = tuned.add_argument
    add("--methods", nargs="+", metavar="METHOD", help=f"some of {', '.join(GRIDS)} (default: all of these)")
    add("--missingness", default="mcar", metavar="PATTERN", help="(default: mcar)")
    add("--metric", help="that is decisive (default: Poisson loss of a mean, energy distance of a draw)")
    add("--seeds", type=int, nargs="+", default=[0], help="of the comparison, whose test cells are not used")
    add("--output", default="tuning", help="folder for results; continues what is there (default: tuning)")

    sweep = kinds.add_parser("sweep", help="vary one setting of CountsDiff")
    sweep.set_defaults(run=_run_sweep)
    add = sweep.add_argument
    add("setting", choices=tuple(sweeps.SWEEPS))
    _add_data(sweep)
    add_run_options(sweep, output="sweep", metrics="the paper's")
    add("--values", nargs="+", help="values of the setting (default: the paper's)")
    add("--schedules", nargs="+", help=f"for attrition and guidance: train with some of {', '.join(SCHEDULES)}")
    add("--missingness", default="mcar:0.4", metavar="PATTERN", help="(default: mcar:0.4)")
    add("--max-epochs", type=int, help="epochs of each training (default: the model's own)")

    for kind, purpose in OTHER_KINDS.items():
        kinds.add_parser(kind, help=purpose, module=f"sccountsdiff.benchmark.{kind}.cli")
    kinds.add_parser("speed", help="time of training and imputing", module="sccountsdiff.benchmark.speed_cli")


class _KindParser(argparse.ArgumentParser):
    """Parser of a kind of benchmark; it may be that of a module, which is imported when there are arguments to read."""

    def __init__(self, *args: Any, module: str | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.module = module

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[argparse.Namespace, list[str]]:
        if self.module is None:
            return super().parse_known_args(args, namespace)
        command, _, kind = self.prog.rpartition(" ")
        kinds = argparse.ArgumentParser().add_subparsers(prog=command)
        import_module(self.module).add_parser(kinds)
        return kinds.choices[kind].parse_known_args(args, namespace)


def _add_cells(parser: argparse.ArgumentParser) -> None:
    """Options that say which cells and genes are compared."""
    add = parser.add_argument
    add(
        "--dataset",
        default="pbmc68k",
        help=f".h5ad or .h5mu file with raw counts, or {', '.join(DATASETS)} (default: pbmc68k)",
    )
    add("--layer", help="layer of the file with the counts, or X (default: counts if there is one, else X)")
    add("--label", help="column of obs with the type of each cell")
    add("--covariate", action="append", default=[], help="column of obs; may be repeated")
    add("--batch", help="column of obs with the batch of each cell: each lacks another panel")
    add("--modality", help="column of var with the modality of each gene (default for .h5mu files: feature_types)")
    add("--genes", dest="n_genes", metavar="N", type=int, help="most variable genes to keep (default: all)")
    add("--gene-ranking", choices=get_args(Ranking), default="cv")
    add("--min-cells", type=int, default=10, help="leave out genes found in fewer cells (default: 10)")
    add("--cells", dest="n_cells", metavar="N", type=int, help="keep at most this many cells, at random")
    add("--test-share", type=float, default=TEST_SHARE, help=f"share of the cells to test with (default: {TEST_SHARE})")


def _add_data(parser: argparse.ArgumentParser) -> None:
    """The same, and which entries are hidden, and how often cells are resampled."""
    _add_cells(parser)
    add = parser.add_argument
    add("--protocol", choices=("all", "paper"), default="all", help="which entries may be hidden")
    resamples = "resamples for standard errors, 0 for none (default: 10)"
    add("--bootstrap", dest="n_bootstrap", metavar="N", type=int, default=10, help=resamples)
    add("--bootstrap-cells", type=int, metavar="N", help="cells in each resample, and for MMD, at most (default: all)")


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
    add("--seeds", type=int, nargs="+", default=[0])
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


def _dataset(arguments: argparse.Namespace) -> Dataset:
    columns = {"covariates": arguments.covariate, "label": arguments.label}
    columns |= {"batch": arguments.batch, "modality": arguments.modality}
    return load_dataset(arguments.dataset, **columns, layer=arguments.layer)


def _run_tune(arguments: argparse.Namespace) -> None:
    options = {name: getattr(arguments, name) for name in (*CELL_OPTIONS, "missingness", "metric", "output")}
    for method in tune(_dataset(arguments), arguments.methods, seed=arguments.seeds, **options).values():
        print(label(method, method.name))
    print(f"\nAll scores are in {Path(arguments.output).resolve()}")


def _chosen(arguments: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Arguments of the command that are arguments of :func:`run`."""
    return {name: getattr(arguments, name) for name in (*RUN_OPTIONS, *names)}


def _run_imputation(arguments: argparse.Namespace) -> None:
    options = _chosen(arguments, "missingness", "metrics", "n_samples", "embedder", "quick")
    table = run(_dataset(arguments), methods=_methods(arguments), **options)
    page = report(table, arguments.output)
    values = table[table["metric"].notna() & (table["group"] != "reference")]
    rows = ["dataset", "missingness", "method", "n_samples"]
    columns = [metric for metric in SHOWN if metric in set(values["metric"])]
    if columns:
        shown = values.pivot_table(index=rows, columns="metric", values="value", sort=False)[columns]
        print(shown.round(4).to_string())
    for method, error in table[table["error"].notna()].drop_duplicates("method")[["method", "error"]].to_numpy():
        print(f"{method} failed: {error}")
    print(f"\nTable and report are in {page.parent.resolve()}")


def _methods(arguments: argparse.Namespace) -> list[str | Baseline] | None:
    """The methods by their names, but for the one that needs weights."""
    if arguments.weights is None:
        return arguments.methods
    name = SCGPTPretrained.name
    if name not in (arguments.methods or ()):
        raise ValueError(f"--weights goes with --methods {name}.")
    pretrained = SCGPTPretrained(weights_path=arguments.weights, unknown_genes="mean")
    return [pretrained if method == name else method for method in arguments.methods]


def _run_sweep(arguments: argparse.Namespace) -> None:
    options = _chosen(arguments, "missingness") | {"method": CountsDiff(max_epochs=arguments.max_epochs)}
    if arguments.metrics:
        options["metrics"] = arguments.metrics
    if arguments.schedules:
        if arguments.setting not in ("attrition", "guidance"):
            raise ValueError(f"--schedules goes with attrition and guidance, not with {arguments.setting}.")
        options["schedules"] = arguments.schedules
    if arguments.values:
        kind = {"attrition": float, "guidance": float, "n_steps": int}.get(arguments.setting, str)
        options["values"] = [kind(value) for value in arguments.values]
    table = sweeps.SWEEPS[arguments.setting](_dataset(arguments), **options)
    output = Path(arguments.output)
    table.to_csv(output / f"{arguments.setting}.csv", index=False)
    (output / f"{arguments.setting}.png").write_bytes(png(sweeps.plot(table)))
    print(sweeps.summarise(table).to_string())
    print(f"\nTable and plot are in {output.resolve()}")
