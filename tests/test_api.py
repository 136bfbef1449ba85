"""The API page lists every public name, and the docstring of each says what it does, takes and returns, with an example."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
from pathlib import Path

import pytest

from sccountsdiff import CountsDiffImputer

PAGE = Path(__file__).parents[1] / "docs" / "api.md"
ROOTS = [
    "sccountsdiff",
    "sccountsdiff.benchmark",
    # Not imported with their packages, but meant to be used.
    "sccountsdiff.benchmark.images.studies",
    "sccountsdiff.benchmark.simulated.plots",
]
INHERITED = ("history", "is_trained", "train_indices", "validation_indices", "view_anndata_setup")
SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}\n", re.MULTILINE)


def public_in(module):
    """Names of a module and of the modules it makes public: those of ``__all__``, or else what is defined there."""
    names = getattr(module, "__all__", None)
    if names is None:
        is_own = lambda value: callable(value) and getattr(value, "__module__", None) == module.__name__
        names = [name for name, value in vars(module).items() if is_own(value) and not name.startswith("_")]
    for name in names:
        value = getattr(module, name)
        if inspect.ismodule(value):
            yield from public_in(value)
        else:
            yield f"{module.__name__}.{name}", value


PUBLIC = dict(pair for root in ROOTS for pair in public_in(importlib.import_module(root)))
DESCRIBED = {name: value for name, value in PUBLIC.items() if inspect.isclass(value) or inspect.isfunction(value)}


def members(cls):
    """Methods and properties that this package gives a class."""
    for base in inspect.getmro(cls):
        if base.__module__.startswith("sccountsdiff"):
            for name, value in vars(base).items():
                if not name.startswith("_") and isinstance(value, classmethod | staticmethod | property):
                    yield name, value.fget if isinstance(value, property) else value.__func__
                elif not name.startswith("_") and inspect.isfunction(value) and value.__name__ == name:
                    yield name, value


METHODS = {f"CountsDiffImputer.{name}": value for name, value in members(CountsDiffImputer)}


def sections(docstring):
    """The text before the first heading, and the text under each heading."""
    first, *rest = SECTION.split(inspect.cleandoc(docstring or ""))
    return first.strip(), dict(zip(rest[::2], rest[1::2], strict=True))


def described(docstring):
    """Names of the parameters and attributes that a docstring describes."""
    _, parts = sections(docstring)
    lines = (parts.get("Parameters", "") + "\n" + parts.get("Attributes", "")).splitlines()
    names = [name for line in lines if line and not line[0].isspace() for name in line.split(",")]
    return {name.strip().lstrip("*") for name in names}


def arguments(value):
    """Names of the arguments of a function, or of a class with a constructor of its own."""
    if inspect.isclass(value) and not getattr(value.__init__, "__module__", "").startswith("sccountsdiff"):
        return []
    return [name for name in inspect.signature(value).parameters if name not in ("self", "cls")]


def complaints(value):
    """What is missing in the docstring of a class or a function."""
    summary, parts = sections(value.__doc__)
    if not summary:
        yield "says not what it does"
    known = described(value.__doc__)
    if inspect.isclass(value):  # may send its readers to the class from which it has an argument
        for base in inspect.getmro(value)[1:]:
            if re.search(rf":class:`[~\w.]*\b{base.__name__}`", value.__doc__ or ""):
                known |= described(base.__doc__)
    lacking = [name for name in arguments(value) if name not in known]
    if lacking:
        yield f"does not describe {', '.join(lacking)}"
    returned = inspect.signature(value).return_annotation if inspect.isfunction(value) else None
    if returned not in (None, "None") and not parts.get("Returns", "").strip():
        yield "says not what it returns"
    if not doctest.DocTestParser().get_examples(value.__doc__ or ""):
        yield "has no example"


def on_page():
    """Full names of the entries of the API page."""
    module = ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if found := re.fullmatch(r"\.\. currentmodule:: ([\w.]+)", line):
            module = found[1]
        elif found := re.fullmatch(r"(?:\.\. data::| {4,}) *([A-Za-z][\w.]*)", line):
            yield f"{module}.{found[1]}"


def test_the_lists_are_not_empty():
    some = {
        "diffusion.thin",
        "pl.history",
        "benchmark.metrics.rmse",
        "benchmark.paper.RECIPES",
        "benchmark.sweeps.plot",
    }
    assert {f"sccountsdiff.{name}" for name in some} <= set(PUBLIC) and len(DESCRIBED) > 150
    assert {"CountsDiffImputer.impute", "CountsDiffImputer.setup_mudata", "CountsDiffImputer.gene_names"} <= set(
        METHODS
    )


def test_every_public_name_is_on_the_page_once():
    entries = list(on_page())
    assert len(entries) == len(set(entries))
    unknown = [name for name in entries if name not in PUBLIC]
    assert not unknown, f"on the page, but not public: {', '.join(unknown)}"
    shown = {id(PUBLIC[name]) for name in entries}  # a name may be public in two places
    missing = [
        name
        for name, value in PUBLIC.items()
        if name not in entries and (name not in DESCRIBED or id(value) not in shown)
    ]
    assert not missing, f"public, but not on the page: {', '.join(missing)}"


def test_the_page_names_what_the_model_inherits():
    text = PAGE.read_text(encoding="utf-8")
    assert all(hasattr(CountsDiffImputer, name) for name in INHERITED)
    assert not [name for name in INHERITED if not re.search(rf"`(?:model|CountsDiffImputer)\.{name}\b", text)]


@pytest.mark.parametrize("name", [*DESCRIBED, *METHODS])
def test_docstring_is_complete(name):
    found = list(complaints(METHODS.get(name, DESCRIBED.get(name))))
    assert not found, f"{name} {'; '.join(found)}"


def test_every_method_says_what_it_does():
    classes = {value for value in DESCRIBED.values() if inspect.isclass(value)}
    mute = [f"{c.__name__}.{name}" for c in classes for name, value in members(c) if not sections(value.__doc__)[0]]
    assert not mute, f"no docstring: {', '.join(mute)}"


def test_what_is_missing_is_noticed():
    def mute(counts):
        return counts

    def told(counts) -> int:
        """Count the counts.

        Parameters
        ----------
        counts
            Numbers.

        Returns
        -------
        Their number.

        Examples
        --------
        >>> 1
        1
        """

    expected = ["says not what it does", "does not describe counts", "says not what it returns", "has no example"]
    assert list(complaints(mute)) == expected
    assert not list(complaints(told))
    told.__doc__ = told.__doc__.replace("Returns", "Gives back").replace(">>> 1", "1")
    assert list(complaints(told)) == expected[2:]
