"""Options of commands, read off the sources of what they call.

Torch and scvi-tools take seconds to import, a help page must not. So signatures, docstrings and registered names are read
from the files of the package without importing them; they cannot differ from what Python is offered.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache, partial
from pathlib import Path
from typing import Any

from sccountsdiff.model.settings import SamplingSettings

REQUIRED = inspect.Parameter.empty
GENES = ("genes", "gene_list")
"""Arguments that may also be given as a file with a name in each line."""


@dataclass(frozen=True)
class Argument:
    """An argument of a function: its name, the text of its type, its default, and what it means.

    Examples
    --------
    >>> Argument("seed", "int | None", None, "Seed.").option
    '--seed'
    """

    name: str
    annotation: str
    default: Any
    doc: str

    @property
    def option(self) -> str:
        """The name of the option."""
        return f"--{self.name.replace('_', '-')}"


def arguments_of(module: str, function: str) -> list[Argument]:
    """Arguments of a function, those of sampling included, without importing its module.

    Parameters
    ----------
    module
        Module of the function; or a package, for a method of a class of one of its modules, wherever that is.
    function
        Its name, with that of its class in front if there are several.

    Examples
    --------
    >>> depth = next(a for a in arguments_of("sccountsdiff.model", "denoise") if a.name == "depth")
    >>> depth.annotation, depth.default, depth.doc
    ('float | None', None, "Depth in units of the cell's own; above 1. Default: 2, unless ``target_sum`` is given.")
    """
    owner, _, name = function.rpartition(".")
    tree, scope, found = next(
        (tree, scope, node)
        for tree in map(_tree, _files(module))
        for scope in tree.body
        if isinstance(scope, ast.ClassDef) and owner in ("", scope.name)
        for node in scope.body
        if isinstance(node, ast.FunctionDef) and node.name == name
    )
    constants = {
        node.targets[0].id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    value = lambda node: _literal(constants.get(node.id, node) if isinstance(node, ast.Name) else node)
    given = found.args
    positional = [*given.posonlyargs, *given.args]
    defaults = [REQUIRED] * (len(positional) - len(given.defaults)) + list(map(value, given.defaults))
    defaults += [REQUIRED if node is None else value(node) for node in given.kw_defaults]
    docs = parameter_docs(ast.get_docstring(scope if name == "__init__" else found) or "")
    arguments = [
        Argument(arg.arg, ast.unparse(arg.annotation) if arg.annotation else "", default, docs.get(arg.arg, ""))
        for arg, default in zip([*positional, *given.kwonlyargs], defaults, strict=True)
        if arg.arg not in ("self", "cls")
    ]
    for decorator in found.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "takes_sampling_settings":
            changed = {keyword.arg: value(keyword.value) for keyword in decorator.keywords}
            left_out = changed.pop("leave_out", ())
            place = [argument.name for argument in arguments].index(value(decorator.args[0])) + 1
            arguments[place:place] = [
                Argument(f.name, str(f.type), changed.get(f.name, f.default), f.metadata["doc"])
                for f in fields(SamplingSettings)
                if f.name not in left_out
            ]
    return arguments


def parameter_docs(docstring: str) -> dict[str, str]:
    """What a numpydoc docstring says about each parameter.

    Examples
    --------
    >>> from sccountsdiff.registry import Registry
    >>> parameter_docs(Registry.__doc__)
    {'kind': 'What the entries are, in the singular; used in error messages.'}
    """
    _, _, rest = inspect.cleandoc(docstring).partition("Parameters\n----------\n")
    section = re.split(r"\n\n\w[\w ]*\n-{3,}\n", rest)[0]
    docs: dict[str, str] = {}
    for names, text in re.findall(r"^(\S.*)\n((?:(?:[ ]+.*)?\n?)+)", section, re.MULTILINE):
        docs |= dict.fromkeys((name.strip().lstrip("*") for name in names.split(",")), " ".join(text.split()))
    return docs


def registered_names(package: str, register: str) -> list[str]:
    """Names under which a decorator registers things in a module or in those of a package, without importing them.

    Examples
    --------
    >>> registered_names("sccountsdiff.diffusion.schedules", "register_schedule")
    ['cosine', 'fisher', 'blackout']
    """
    return [
        _literal(decorator.args[0])
        for path in _files(package)
        for node in _tree(path).body
        for decorator in getattr(node, "decorator_list", ())
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == register
    ]


def add_options(
    parser: argparse._ActionsContainer,
    arguments: Iterable[Argument],
    *,
    leave_out: Iterable[str] = (),
    types: Mapping[str, str] | None = None,
) -> list[str]:
    """Add an option for each argument that can be given as text; the names of those that were added.

    An option that is not given is not in the namespace, so that the default is the one of Python.

    Parameters
    ----------
    parser
        Parser, or group of one.
    arguments
        From :func:`arguments_of`.
    leave_out
        Arguments that get no option.
    types
        Types to take in place of those of some arguments.

    Examples
    --------
    >>> parser = argparse.ArgumentParser()
    >>> add_options(parser, arguments_of("sccountsdiff.model", "denoise"), leave_out=["silent", "out"])
    ['depth', 'target_sum', 'final', 'unseen', 'guidance', 'layer', 'transform_covariates', 'unseen_to_null', 'batch_size']
    >>> parser.parse_args(["--depth", "3", "--unseen"])
    Namespace(depth=3.0, unseen=True)
    """
    added = []
    for argument in arguments:
        how = _how_to_read((types or {}).get(argument.name, argument.annotation))
        if how is None or argument.name in leave_out:
            continue
        if argument.name in GENES:
            how |= {"action": NamesOrFile, "metavar": "GENE|FILE"}
        required = argument.default is REQUIRED
        parser.add_argument(
            argument.option, default=argparse.SUPPRESS, required=required, help=_help_of(argument), **how
        )
        added.append(argument.name)
    return added


def given(arguments: argparse.Namespace, names: Iterable[str]) -> dict[str, Any]:
    """The options, of those named, that were on the command line.

    Examples
    --------
    >>> given(argparse.Namespace(depth=3.0, seed=0), ["depth", "final"])
    {'depth': 3.0}
    """
    return {name: getattr(arguments, name) for name in names if hasattr(arguments, name)}


class NamesOrFile(argparse.Action):
    """Names, or one file with a name in each line."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        """Read the file, if it is one."""
        if len(values) == 1 and Path(values[0]).is_file():
            lines = Path(values[0]).read_text(encoding="utf-8").splitlines()
            values = [line.strip() for line in lines if line.strip()]
            if not values:
                raise argparse.ArgumentError(self, "the file has no names in it")
        setattr(namespace, self.dest, values)


def pair(text: str) -> tuple[str, Any]:
    """``KEY=VALUE``, the value as Python would read it if it can, else as text.

    Examples
    --------
    >>> pair("lr=1e-3"), pair("layer=rna")
    (('lr', 0.001), ('layer', 'rna'))
    """
    key, sign, value = text.partition("=")
    if not sign or not key:
        raise ValueError(f"{text!r} must be KEY=VALUE")
    return key, _literal(value)


class Pairs(argparse.Action):
    """``KEY=VALUE`` as a dictionary."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        """Take the pairs apart."""
        try:
            setattr(namespace, self.dest, dict(map(pair, values)))
        except ValueError as error:
            raise argparse.ArgumentError(self, str(error)) from None


class PairsOrTable(Pairs):
    """The same, or the path of a table with a column for each key."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        """Leave the reading of a table to those who need it."""
        if len(values) == 1 and Path(values[0]).is_file():
            setattr(namespace, self.dest, Path(values[0]))
        elif len(values) == 1 and "=" not in values[0]:
            raise argparse.ArgumentError(self, f"{values[0]!r} is neither KEY=VALUE nor a table that exists")
        else:
            super().__call__(parser, namespace, values, option)


def _number_or_text(text: str) -> int | str:
    return int(text) if text.isdigit() else text


def _number_or_one_of(choices: tuple[str, ...], text: str) -> float | str:
    try:
        return text if text in choices else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number or {' or '.join(choices)}, not {text!r}") from None


def _how_to_read(annotation: str) -> dict[str, Any] | None:
    """Arguments of ``add_argument`` for a type; ``None`` for one that text cannot be turned into."""
    if not annotation:
        return None
    names, items, choices, is_pairs = set(), set(), [], False
    for part in _parts_of_union(ast.parse(annotation, mode="eval").body):
        kind = ast.unparse(part.value if isinstance(part, ast.Subscript) else part).rpartition(".")[2]
        inside = part.slice if isinstance(part, ast.Subscript) else None
        if kind == "Literal":
            elements = inside.elts if isinstance(inside, ast.Tuple) else [inside]
            choices += [choice for choice in map(_literal, elements) if isinstance(choice, str)]
        elif kind in ("Sequence", "list", "tuple", "Iterable") and inside is not None:
            items |= {ast.unparse(inside)} & set(_SIMPLE)
        elif kind in ("dict", "Mapping"):
            is_pairs = True
        elif kind in _SIMPLE:
            names.add(kind)
    if "bool" in names:
        return {"action": argparse.BooleanOptionalAction}
    if is_pairs:
        is_table = "DataFrame" in annotation
        metavar = "KEY=VALUE|TABLE.csv" if is_table else "KEY=VALUE"
        return {"action": PairsOrTable if is_table else Pairs, "nargs": "+", "metavar": metavar}
    if items and not names & {"str", "Path"}:
        return {"nargs": "+", "type": _SIMPLE[items.pop()], "metavar": "VALUE"}
    if choices and not names:
        return {"type": str, "metavar": "|".join(choices)}
    if choices and "float" in names:
        return {"type": partial(_number_or_one_of, tuple(choices)), "metavar": "|".join(["NUMBER", *choices])}
    if {"int", "str"} <= names:
        return {"type": _number_or_text, "metavar": "VALUE"}
    kind = next((kind for kind in ("float", "int", "str", "Path") if kind in names), None)
    return None if kind is None else {"type": _SIMPLE[kind], "metavar": _METAVARS.get(kind, "VALUE")}


_SIMPLE: dict[str, Callable[[str], Any]] = {"bool": bool, "int": int, "float": float, "str": str, "Path": str}
_METAVARS = {"int": "N", "float": "NUMBER", "str": "NAME", "Path": "PATH"}


def _help_of(argument: Argument) -> str:
    text = re.sub(r":\w+:`~?([^`]*)`", r"\1", argument.doc).replace("`", "")
    text = " ".join(text.split()) or argument.name
    shows_default = argument.default not in (None, REQUIRED, ()) and "efault" not in text
    return (text + (f" (default: {argument.default})" if shows_default else "")).replace("%", "%%")


def _parts_of_union(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        yield from _parts_of_union(node.left)
        yield from _parts_of_union(node.right)
    else:
        yield node


def _literal(code: ast.expr | str) -> Any:
    """What a piece of code stands for; its text if that is not plain."""
    try:
        return ast.literal_eval(code)
    except (ValueError, SyntaxError):
        return code if isinstance(code, str) else ast.unparse(code)


def _files(module: str) -> list[Path]:
    """The source of a module of this package, or those of a package; to ask Python for them would import what is above."""
    path = Path(__file__).parent.joinpath(*module.split(".")[1:])
    return sorted(path.glob("*.py")) if path.is_dir() else [path.with_suffix(".py")]


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))
