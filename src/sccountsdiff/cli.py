"""The ``sccountsdiff`` command: thin, for pipelines."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path

from sccountsdiff.model.settings import SamplingSettings


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; errors in the input are one line on standard error and exit code 2."""
    argv = list(sys.argv[1:] if argv is None else argv)
    arguments = _parser(with_benchmark="benchmark" in argv[:1]).parse_args(argv)
    try:
        arguments.run(arguments)
    except (ValueError, KeyError, TypeError, OSError, ImportError) as error:
        print(f"sccountsdiff: {error.args[0] if isinstance(error, KeyError) else error}", file=sys.stderr)
        return 2
    return 0


# Imports of torch and scvi-tools take seconds: only the commands that need them make them.


def _parser(with_benchmark: bool) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sccountsdiff", description="Diffusion on the natural numbers for counts.")
    parser.add_argument("--version", action="version", version=version("sccountsdiff"))
    commands = parser.add_subparsers(required=True, metavar="command")

    demo = commands.add_parser("demo", help="train and impute on bundled real data, and compare")
    demo.add_argument("--output", default="demo", help="folder for table, figure and imputed .h5ad (default: demo)")
    demo.add_argument("--seed", type=int, default=0)
    demo.add_argument("--max-epochs", type=int)
    demo.set_defaults(run=_demo)

    train = commands.add_parser("train", help="train a model on an .h5ad file and save it")
    train.add_argument("data", help=".h5ad file with raw counts")
    train.add_argument("model", help="folder to save the model to; must not exist")
    train.add_argument("--layer", help="layer with the counts (default: 'counts' if there is one, else X)")
    train.add_argument("--covariate", action="append", default=[], help="categorical column of obs; may be repeated")
    train.add_argument("--continuous", action="append", default=[], help="numeric column of obs; may be repeated")
    train.add_argument("--mask-layer", help="boolean layer, True = observed")
    train.add_argument("--backbone", default="mlp", help="name of the network (default: mlp)")
    train.add_argument("--schedule", default="cosine", help="name of the survival schedule (default: cosine)")
    train.add_argument("--head", help="name of the head (default: nb)")
    train.add_argument(
        "--observed-training",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="show a share of each training cell as it is",
    )
    train.add_argument("--max-epochs", type=int)
    train.add_argument("--seed", type=int, default=0)
    train.set_defaults(run=_train)

    impute = commands.add_parser("impute", help="impute an .h5ad file with a saved model")
    impute.add_argument("data", help=".h5ad file with raw counts")
    impute.add_argument("model", help="folder of a saved model")
    impute.add_argument("output", help=".h5ad file to write")
    impute.add_argument(
        "--sites", help="boolean layer of entries to fill in (default: what is missing, else the zeros)"
    )
    impute.add_argument("--n-samples", type=int, default=5)
    _add_sampling_settings(impute)
    impute.add_argument("--n-folds", type=int, default=10, help="folds for imputing all zeros (default: 10)")
    impute.add_argument("--mean", action="store_true", help="the conditional mean in one pass instead of draws")
    impute.add_argument(
        "--quantiles",
        type=float,
        nargs="+",
        metavar="Q",
        help="quantiles of the draws to write, as layers of their own",
    )
    impute.add_argument("--key-added", default="imputed", help="layer to write (default: imputed)")
    impute.add_argument("--batch-size", type=int)
    impute.add_argument("--seed", type=int, default=0)
    impute.set_defaults(run=_impute)

    if with_benchmark:
        from sccountsdiff.benchmark.cli import add_parser

        add_parser(commands)
    else:
        commands.add_parser("benchmark", help="compare imputation methods, or settings of CountsDiff")
    return parser


def _add_sampling_settings(parser: argparse.ArgumentParser) -> None:
    """An option for each setting of sampling, of the type of its default."""
    for setting in fields(SamplingSettings):
        meaning = re.sub(r":\w+:`~([^`]*)`", r"\1", setting.metadata["doc"]).replace("\n", " ").replace("`", "")
        default = "" if setting.default is None else f" (default: {setting.default})"
        kind = str if setting.default is None else type(setting.default)
        option = f"--{setting.name.replace('_', '-')}"
        parser.add_argument(option, type=kind, default=setting.default, help=meaning + default)


def _demo(arguments: argparse.Namespace) -> None:
    from sccountsdiff.demo import run_demo

    table = run_demo(arguments.output, seed=arguments.seed, max_epochs=arguments.max_epochs)
    print(table.round(3).to_string())
    print(f"\nTable, figure and imputed counts are in {Path(arguments.output).resolve()}")


def _train(arguments: argparse.Namespace) -> None:
    import anndata
    import scvi

    from sccountsdiff import CountsDiffImputer

    if Path(arguments.model).exists():
        raise ValueError(f"{arguments.model} already exists: choose another folder for the model.")
    scvi.settings.seed = arguments.seed
    adata = anndata.read_h5ad(arguments.data)
    layer = arguments.layer or ("counts" if "counts" in adata.layers else None)
    CountsDiffImputer.setup_anndata(
        adata,
        layer=layer,
        categorical_covariate_keys=arguments.covariate,
        continuous_covariate_keys=arguments.continuous,
        mask_layer=arguments.mask_layer,
    )
    model = CountsDiffImputer(
        adata,
        backbone=arguments.backbone,
        schedule=arguments.schedule,
        head=arguments.head,
        observed_training=arguments.observed_training,
    )
    model.train(max_epochs=arguments.max_epochs)
    model.save(arguments.model)
    print(f"Saved the model to {arguments.model}")


def _impute(arguments: argparse.Namespace) -> None:
    import anndata

    from sccountsdiff import CountsDiffImputer

    if not Path(arguments.output).resolve().parent.is_dir():
        raise ValueError(f"The folder of {arguments.output} does not exist.")
    adata = anndata.read_h5ad(arguments.data)
    model = CountsDiffImputer.load(arguments.model, adata=False)
    sampling = {setting.name: getattr(arguments, setting.name) for setting in fields(SamplingSettings)}
    if arguments.mean:
        sampling |= {"n_steps": 1, "final": "mean"}
    model.impute(
        adata,
        sites=arguments.sites,
        n_samples=arguments.n_samples,
        n_folds=arguments.n_folds,
        quantiles=arguments.quantiles,
        key_added=arguments.key_added,
        batch_size=arguments.batch_size,
        seed=arguments.seed,
        **sampling,
    )
    adata.write_h5ad(arguments.output)
    print(f"Wrote {arguments.output}")
