"""The README, the user guide and every docstring example run."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import logging
import pkgutil
import re
from pathlib import Path

import anndata
import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest

import sccountsdiff
import sccountsdiff.model.train
from sccountsdiff import CountsDiffImputer
from sccountsdiff.registry import Registry

ROOT = Path(__file__).parents[1]
MODULES = ["sccountsdiff", *sorted(info.name for info in pkgutil.walk_packages(sccountsdiff.__path__, "sccountsdiff."))]
PAGES = sorted((ROOT / "docs" / "user_guide").glob("*.md"))


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Files that examples write go to a temporary directory, figures and logs (as of loading a model) to nowhere."""
    monkeypatch.chdir(tmp_path)
    mpl.use("agg")
    logging.disable(logging.INFO)
    yield
    logging.disable(logging.NOTSET)
    plt.close("all")


@pytest.fixture(scope="module")
def example(train, tmp_path_factory):
    """Where the model is saved that the examples of methods call ``model``, and a copy of its ``adata``."""
    adata = sccountsdiff.datasets.pbmc68k()[:60, :25].copy()
    path = tmp_path_factory.mktemp("example") / "model"
    train(adata, 1).save(path)
    return path, adata.copy()


def import_or_skip(name):
    """Import a module of the package; skip if something it needs is an extra that is not installed."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name.startswith("sccountsdiff"):
            raise
        pytest.skip(f"{name} needs {error.name}")


def keep_registries(monkeypatch, module):
    """What an example registers is forgotten after it."""
    for value in vars(module).values():
        if isinstance(value, Registry):
            monkeypatch.setattr(value, "_entries", dict(value._entries))


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name, example, monkeypatch, capsys):
    module = import_or_skip(name)
    keep_registries(monkeypatch, module)
    path, adata = example
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.NORMALIZE_WHITESPACE)  # pandas pads its lines
    for test in doctest.DocTestFinder(exclude_empty=True).find(module):
        if any(re.search(r"\b(model|adata)\b", line.source) for line in test.examples):
            test.globs["adata"] = adata.copy()
            test.globs["model"] = CountsDiffImputer.load(path, adata=test.globs["adata"], accelerator="cpu")
        runner.run(test)
    assert runner.failures == 0, capsys.readouterr().out


def test_readme_examples(monkeypatch):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    assert blocks
    # The same code on fewer cells and for a single epoch: a reader waits for a minute or two.
    few = sccountsdiff.datasets.pbmc68k()[:20].copy()
    monkeypatch.setattr(sccountsdiff.datasets, "pbmc68k", few.copy)
    monkeypatch.setattr(sccountsdiff.model.train, "default_max_epochs", lambda *args: 1)
    namespace = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), namespace)
    imputed, counts = namespace["adata"].layers["imputed"], few.X.toarray()
    assert (imputed[counts == 0] > 0).any()
    assert (imputed[counts > 0] == counts[counts > 0]).all()


@pytest.fixture
def small(monkeypatch):
    """The bundled data with few cells and genes, and training for a single epoch: a reader waits for a minute or two."""
    adata = sccountsdiff.datasets.pbmc68k()
    genes = [*adata.var_names[:38], "GNLY", "NKG7"]  # those that the guide names
    small = adata[:60, genes].copy()
    monkeypatch.setattr(sccountsdiff.datasets, "pbmc68k", small.copy)
    monkeypatch.setattr(sccountsdiff.model.train, "default_max_epochs", lambda *args: 1)
    return small


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_pages_run_from_top_to_bottom(page, small, capsys):
    """Code blocks are run in order; those with prompts also have to print, or raise, what they show."""
    namespace = {}
    for language, block in re.findall(r"^```(python|pycon)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
        if language == "python":
            exec(compile(block, str(page), "exec"), namespace)
        else:
            test = doctest.DocTestParser().get_doctest(block, namespace, page.stem, str(page), 0)
            flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
            runner = doctest.DocTestRunner(verbose=False, optionflags=flags)
            runner.run(test, clear_globs=False)
            assert runner.failures == 0, capsys.readouterr().out
            namespace.update(test.globs)


def test_landing_page_leads_to_imputed_counts_in_ten_lines(small):
    small.write_h5ad("mine.h5ad")
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "index.md").read_text(), flags=re.DOTALL)
    assert len(block.splitlines()) <= 10
    exec(compile(block, "index.md", "exec"), {})
    written = anndata.read_h5ad("imputed.h5ad")
    counts, imputed = small.X.toarray(), written.layers["imputed"]
    assert (imputed[counts > 0] == counts[counts > 0]).all() and (imputed[counts == 0] > 0).any()


def test_defaults_in_the_guide_are_those_of_the_code():
    text = (ROOT / "docs" / "user_guide" / "choosing_arguments.md").read_text()
    callables = {
        "train": CountsDiffImputer.train,
        "CountsDiffImputer": CountsDiffImputer,
        "impute": CountsDiffImputer.impute,
    }
    n_checked = 0
    for name, rows in re.findall(r"^\| argument of `(\w+)`.*\n\|.*\n((?:\|.*\n)+)", text, re.MULTILINE):
        parameters = inspect.signature(callables[name]).parameters
        for arguments, default in re.findall(r"^\| (`.*?`) \| `(.*?)` \|", rows, re.MULTILINE):
            for argument in re.findall(r"`(\w+)`", arguments):
                assert parameters[argument].default == ast.literal_eval(default), f"{name}({argument}=)"
                n_checked += 1
    assert n_checked > 20
