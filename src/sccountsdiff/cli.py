"""The ``sccountsdiff`` command: the methods of the model on files, with the names that they have in Python."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sccountsdiff import __version__, io
from sccountsdiff.command import Outcome, Parser, Stop, add_general_options, stoppable, whole
from sccountsdiff.files import check_can_write, check_folder
from sccountsdiff.options import add_options, arguments_of, given
from sccountsdiff.quiet import quiet

if TYPE_CHECKING:
    import numpy as np
    from anndata import AnnData
    from mudata import MuData

    from sccountsdiff.model import CountsDiffImputer

INPUT_ERRORS = (ValueError, KeyError, TypeError, OSError, ImportError, RuntimeError)
"""What is raised for input that cannot be used; these become one line."""

METHODS = {"new": "CountsDiffImputer.__init__", "normalize": "get_normalized_expression"}
"""Methods of the model that have other names here."""

ALLOW_PICKLE = "SCCOUNTSDIFF_ALLOW_PICKLE"
"""Environment variable that allows pickled embedders of the benchmark."""

NOT_ON_FILES = ("adata", "dir_path", "out", "registry", "return_mean", "return_numpy", "seed", "silent")
"""Arguments that make no sense here, or that all commands have in common."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit code is 2 for input that cannot be used, with one line on standard error.

    A benchmark in which every method fails has the code 1, a run that is stopped 130 (SIGINT) or 143 (SIGTERM).
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    with stoppable() as stop:
        try:
            arguments = read_command(argv)
            outcome = _run(arguments, stop)
        except BaseException as error:
            if "--traceback" in argv and not isinstance(error, SystemExit):  # which help ends with
                traceback.print_exc()
            if stop:
                _complain(f"stopped by {stop.name}; nothing was written.")
                return stop.code
            if not isinstance(error, INPUT_ERRORS):
                raise
            message = error.args[0] if isinstance(error, KeyError) and error.args else error
            _complain(" ".join(str(message).split()) or type(error).__name__)
            return 2
        printed = _print(arguments, outcome)
        return stop.code or printed or outcome.code


def read_command(argv: Sequence[str]) -> argparse.Namespace:
    """The options of a command line, and the function that does the work as ``run``.

    Examples
    --------
    >>> read_command(["denoise", "cells.h5ad", "model", "deeper.h5ad", "--depth", "3"]).depth
    3.0
    """
    arguments = _parser(argv).parse_args(argv)
    arguments.argv = list(argv)
    return arguments


def _run(arguments: argparse.Namespace, stop: Stop) -> Outcome:
    """Do the work; only what it comes to goes to standard output, whatever libraries print."""
    arguments.stop = stop
    if arguments.command in ("benchmark", "demo"):
        check_folder(arguments.output or arguments.table)
    logger = logging.getLogger("sccountsdiff")
    level = logger.level
    with redirect_stdout(sys.stderr), quiet():
        warnings.showwarning = lambda message, *_, **__: _complain(f"warning: {message}")
        if arguments.quiet:
            logger.setLevel(logging.WARNING)
        allowed = os.environ.get(ALLOW_PICKLE)
        if getattr(arguments, "allow_pickle", False):
            os.environ[ALLOW_PICKLE] = "1"  # for what commands load deep inside
        try:
            return arguments.run(arguments)
        finally:
            logger.setLevel(level)
            if allowed is None:
                os.environ.pop(ALLOW_PICKLE, None)


def _print(arguments: argparse.Namespace, outcome: Outcome) -> int:
    """Write the summary to standard output; the exit code is not 0 if that takes no more."""
    if arguments.quiet and not arguments.json:
        return 0
    text = outcome.text
    if arguments.json:
        from sccountsdiff.overview import plain

        text = json.dumps(plain(outcome.values))
    try:
        print(text, flush=True)
    except OSError as error:  # a full disk, or a pipe that nobody reads
        _complain(f"the summary cannot be written: {error.strerror or error}.")
        # Python would try once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


def _complain(message: str) -> None:
    print(f"sccountsdiff: {message}", file=sys.stderr)


# The parser ---------------------------------------------------------------------------------------------------------


def _parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of all commands, with the options of the one that is asked for."""
    parser = Parser(prog="sccountsdiff", description="Diffusion on the natural numbers for single-cell counts.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="command", title="commands")
    for name, (about, add) in COMMANDS.items():
        command = commands.add_parser(name, help=about, description=about[0].upper() + about[1:] + ".")
        command.set_defaults(command=name)
        if name == "benchmark" == "".join(argv[:1]):
            _add_benchmark(command, argv[1:2])
        elif name in argv[:1]:
            add(command)
    return parser


def _add_derived(parser: argparse.ArgumentParser, title: str, *sources: str, **types: str) -> None:
    """Options for the arguments of a function; of several, those of the last one count."""
    methods = [METHODS.get(source, source) for source in sources]
    found = {argument.name: argument for method in methods for argument in arguments_of("sccountsdiff.model", method)}
    group = parser.add_argument_group(title)
    names = add_options(group, found.values(), leave_out=NOT_ON_FILES, types=types)
    parser.set_defaults(derived={**(parser.get_default("derived") or {}), title: names})


def _given(arguments: argparse.Namespace, title: str) -> dict[str, Any]:
    """The options of a group of derived ones that were on the command line."""
    return given(arguments, arguments.derived[title])


def _add_files(parser: argparse.ArgumentParser, *, reads_data: bool = True) -> None:
    if reads_data:
        parser.add_argument("data", help=f"raw counts: {io.READABLE}")
    parser.add_argument("model", help="folder of a saved model")
    parser.add_argument("output", help="file to write: .h5ad, .h5mu or .zarr")


def _add_train(parser: argparse.ArgumentParser) -> None:
    about = f"raw counts: {io.READABLE}; in the layer counts if there is one, unless --layer says where"
    parser.add_argument("data", help=about)
    parser.add_argument("model", help="folder to save the model to")
    _add_derived(parser, "set-up", "setup_mudata", "setup_anndata")
    _add_derived(parser, "network", "new")
    _add_derived(parser, "training", "train")
    add_general_options(parser, seed=True, overwrite=True)
    parser.set_defaults(run=_train)


def _add_impute(parser: argparse.ArgumentParser) -> None:
    _add_files(parser)
    _add_derived(parser, "imputation", "impute", sites="str")
    _add_derived(parser, "loading", "load")
    add_general_options(parser, seed=True, overwrite=True)
    parser.set_defaults(run=_impute)


def _add_denoise(parser: argparse.ArgumentParser) -> None:
    _add_files(parser)
    _add_derived(parser, "denoising", "denoise")
    _add_result(parser, "denoised")
    parser.set_defaults(run=_denoise)


def _add_normalize(parser: argparse.ArgumentParser) -> None:
    _add_files(parser)
    _add_derived(parser, "normalisation", "normalize")
    _add_result(parser, "normalized")
    parser.set_defaults(run=_normalize)


def _add_result(parser: argparse.ArgumentParser, key: str) -> None:
    if not any("--key-added" in action.option_strings for action in parser._actions):
        parser.add_argument("--key-added", default=key, metavar="NAME", help=f"layer to write (default: {key})")
    _add_derived(parser, "loading", "load")
    add_general_options(parser, seed=True, overwrite=True)


def _add_generate(parser: argparse.ArgumentParser) -> None:
    _add_files(parser, reads_data=False)
    _add_derived(parser, "generation", "generate")
    _add_derived(parser, "loading", "load")
    add_general_options(parser, seed=True, overwrite=True)
    parser.set_defaults(run=_generate)


def _add_inspect(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", help=f"folder of a saved model, or data: {io.READABLE}")
    _add_derived(parser, "loading", "load")
    add_general_options(parser)
    parser.set_defaults(run=_inspect)


def _add_demo(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", default="demo", help="folder for table, figure and imputed .h5ad (default: demo)")
    parser.add_argument("--max-epochs", type=whole(1), metavar="N", help="epochs of the training")
    add_general_options(parser, seed=True, overwrite=True)
    parser.set_defaults(run=_demo)


def _add_benchmark(parser: argparse.ArgumentParser, kind: Sequence[str]) -> None:
    from sccountsdiff.benchmark.cli import add_kinds

    add_kinds(parser, kind)


COMMANDS: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None]]] = {
    "train": ("train a model on a file of counts, and save it", _add_train),
    "impute": ("fill in counts of a file with a saved model", _add_impute),
    "denoise": ("expected counts of the same cells, sequenced deeper", _add_denoise),
    "normalize": ("expected expression, scaled to a common depth", _add_normalize),
    "generate": ("draw new cells from a saved model", _add_generate),
    "inspect": ("say what is in a saved model or a data file", _add_inspect),
    "benchmark": ("compare imputation methods, or settings of CountsDiff", _add_benchmark),
    "demo": ("train and impute on bundled real data, and compare", _add_demo),
}


# The commands -------------------------------------------------------------------------------------------------------
# Imports of torch and scvi-tools take seconds: only the work itself makes them, after what is wrong was found. They turn
# their own reports on, which are turned off again where they are used.


def _train(arguments: argparse.Namespace) -> Outcome:
    io.check_free(arguments.model, overwrite=arguments.overwrite)
    checkpoint = _given(arguments, "training").get("checkpoint")
    if checkpoint is not None:
        check_folder(checkpoint)
    check_can_write(Path(arguments.model) / "model.json" if Path(arguments.model).is_dir() else arguments.model)
    started = time.monotonic()
    data = io.read(arguments.data)

    import scvi
    from anndata import AnnData

    from sccountsdiff.data.counts import default_layer
    from sccountsdiff.model import CountsDiffImputer
    from sccountsdiff.overview import describe_model

    with quiet():
        scvi.settings.seed = arguments.seed
    setup = _given(arguments, "set-up")
    if isinstance(data, AnnData):
        if "modalities" in setup:
            raise ValueError(f"--modalities is for MuData, but {arguments.data} has no modalities.")
        CountsDiffImputer.setup_anndata(data, **{"layer": default_layer(data)} | setup)
    else:
        if not (setup.get("modalities") or {}).get("layer"):
            raise ValueError(
                f"{arguments.data} has the modalities {', '.join(data.mod)}: say which hold counts, as in --modalities "
                f"layer={next(iter(data.mod))} or, for several, layer={','.join(data.mod)}."
            )
        several = lambda name: name.split(",") if isinstance(name, str) and "," in name else name
        names = {key: several(name) for key, name in setup["modalities"].items()}
        CountsDiffImputer.setup_mudata(data, **setup | {"modalities": names})
    model = CountsDiffImputer(data, **_given(arguments, "network"))
    try:
        model.train(**_given(arguments, "training"), enable_progress_bar=not arguments.quiet)
    except (KeyboardInterrupt, SystemExit):
        if not model.is_trained:
            raise
    model.save(arguments.model, overwrite=arguments.overwrite)
    training = describe_model(model)["training"]
    values = {"command": "train", "model": arguments.model, "cells": data.n_obs, "genes": len(model.gene_names)}
    values |= {"seed": arguments.seed, **training, "stopped_by": arguments.stop.name or None}
    losses = ", ".join(f"{name.replace('_', ' ')} {training[name]:.5g}" for name in training if name.endswith("loss"))
    stopped = f"Stopped by {arguments.stop.name}; what it had learnt is kept.\n" if arguments.stop else ""
    text = f"{stopped}Trained on {data.n_obs} cells for {training.get('epochs', 0)} epochs ({losses}).\n"
    return _finished(values, f"{text}Saved the model to {arguments.model}", started)


def _impute(arguments: argparse.Namespace) -> Outcome:
    started = time.monotonic()
    model, data = _load(arguments)
    options = _typed(model, _given(arguments, "imputation"))
    model.impute(data, seed=arguments.seed, silent=arguments.quiet, **options)
    return _write(arguments, model, data, started)


def _denoise(arguments: argparse.Namespace) -> Outcome:
    started = time.monotonic()
    model, data = _load(arguments)
    options = _typed(model, _given(arguments, "denoising"))
    call = lambda: model.denoise(data, silent=arguments.quiet, **options)
    _add_layer(arguments, model, data, call, model.gene_names, options)
    return _write(arguments, model, data, started)


def _normalize(arguments: argparse.Namespace) -> Outcome:
    started = time.monotonic()
    model, data = _load(arguments)
    options = _typed(model, _given(arguments, "normalisation"))
    call = lambda: model.get_normalized_expression(data, return_numpy=True, silent=arguments.quiet, **options)
    _add_layer(arguments, model, data, call, options.get("gene_list", model.gene_names), options)
    return _write(arguments, model, data, started)


def _generate(arguments: argparse.Namespace) -> Outcome:
    io.check_target(arguments.output, "AnnData", overwrite=arguments.overwrite)
    started = time.monotonic()
    model = _load_model(arguments)
    options = _typed(model, _given(arguments, "generation"))
    cells = model.generate(seed=arguments.seed, silent=arguments.quiet, **options)
    io.write(cells, arguments.output, overwrite=arguments.overwrite)
    values = {"command": "generate", "output": arguments.output, "cells": cells.n_obs, "genes": cells.n_vars}
    values |= {"seed": arguments.seed}
    return _finished(values, f"Wrote {cells.n_obs} new cells to {arguments.output}", started)


def _inspect(arguments: argparse.Namespace) -> Outcome:
    from sccountsdiff.overview import describe_data, describe_model, to_text

    if io.is_data(arguments.path):
        values = describe_data(io.read(arguments.path))
    else:
        from sccountsdiff.model import CountsDiffImputer

        options = {"accelerator": "cpu"} | _given(arguments, "loading")
        with quiet():
            values = describe_model(CountsDiffImputer.load(arguments.path, adata=False, **options))
    values = {"path": arguments.path, **values}
    return Outcome(to_text(values), values)


def _demo(arguments: argparse.Namespace) -> Outcome:
    folder = Path(arguments.output)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        io.check_free(folder, overwrite=arguments.overwrite)
    started = time.monotonic()
    from sccountsdiff.demo import run_demo

    with quiet():
        table = run_demo(folder, seed=arguments.seed, max_epochs=arguments.max_epochs, silent=arguments.quiet)
    values = {"command": "demo", "output": arguments.output, "scores": table.to_dict("index")}
    text = f"{table.round(3).to_string()}\n\nTable, figure and imputed counts are in {folder.resolve()}"
    return _finished(values, text, started)


# Parts of them ------------------------------------------------------------------------------------------------------


def _load_model(arguments: argparse.Namespace) -> CountsDiffImputer:
    import scvi

    from sccountsdiff.model import CountsDiffImputer

    with quiet():
        scvi.settings.seed = arguments.seed
        return CountsDiffImputer.load(arguments.model, adata=False, **_given(arguments, "loading"))


def _load(arguments: argparse.Namespace) -> tuple[CountsDiffImputer, AnnData | MuData]:
    """Model and data, after a look at where the result is to go."""
    io.check_target(arguments.output, overwrite=arguments.overwrite)
    data = io.read(arguments.data)
    io.check_target(arguments.output, type(data).__name__, overwrite=arguments.overwrite)
    return _load_model(arguments), data


def _add_layer(
    arguments: argparse.Namespace,
    model: CountsDiffImputer,
    data: AnnData | MuData,
    compute: Callable[[], np.ndarray],
    genes: Sequence[str],
    options: dict[str, Any],
) -> None:
    """Compute what there is of some genes, and write it as a layer; it has no values for genes that are not among them."""
    import numpy as np

    from sccountsdiff.compat import setup_args
    from sccountsdiff.model.results import check_key, check_result, write_result

    tables, setup = model._cells(data, options.get("layer")), setup_args(model.registry_)
    in_use = {"the counts": options.get("layer", setup["layer"]), "their mask": setup["mask_layer"]}
    check_key(arguments.key_added, [""], in_use)
    check_result(data, tables, arguments.key_added, [""])
    values = compute()
    layer = np.full(tables.adata.shape, np.nan, values.dtype)
    places = tables.adata.var_names.get_indexer(list(genes))  # -1 for a gene that is predicted, but not in the data
    layer[:, places[places >= 0]] = values[:, places >= 0]
    note = {name: value for name, value in options.items() if value is not None}
    note |= {"command": arguments.command, "version": __version__}
    write_result(data, tables, arguments.key_added, {arguments.key_added: layer}, note, keep=in_use.values())


def _write(arguments: argparse.Namespace, model: CountsDiffImputer, data: AnnData | MuData, started: float) -> Outcome:
    from sccountsdiff.model.results import written_layers

    tables = model._cells(data, getattr(arguments, "layer", None))
    layers = written_layers(data, tables, getattr(arguments, "key_added", "imputed"))
    io.write(data, arguments.output, overwrite=arguments.overwrite)
    values = {"command": arguments.command, "output": arguments.output, "layers": layers}
    values |= {"cells": tables.adata.n_obs, "genes": tables.adata.n_vars, "seed": arguments.seed}
    return _finished(values, f"Wrote {arguments.output} with {', '.join(layers)}", started)


def _finished(values: dict[str, Any], text: str, started: float) -> Outcome:
    seconds = time.monotonic() - started
    return Outcome(text, values | {"seconds": round(seconds, 3), "version": __version__})


def _typed(model: CountsDiffImputer, options: dict[str, Any]) -> dict[str, Any]:
    """The options, with categories as the model knows them."""
    named = {"covariates", "transform_covariates"} & options.keys()
    return options | {name: _typed_covariates(model, options[name]) for name in named}


def _typed_covariates(model: CountsDiffImputer, covariates: dict[str, Any] | Path) -> dict[str, Any]:
    """Categories as the model knows them: they may be numbers, or text that looks like one."""
    import pandas as pd

    if isinstance(covariates, Path):
        covariates = pd.read_csv(covariates, sep="\t" if covariates.suffix == ".tsv" else ",").to_dict("list")
    known = {key: {str(category): category for category in known} for key, known in model.categories.items()}
    typed = lambda key, value: known.get(key, {}).get(str(value), value)
    return {
        key: [typed(key, v) for v in value] if isinstance(value, list) else typed(key, value)
        for key, value in covariates.items()
    }
