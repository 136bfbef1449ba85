"""Each module has a file of tests where one looks for it, and is named for what it holds."""

from __future__ import annotations

import ast
import warnings
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "src" / "sccountsdiff"
MODULES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py") if not path.stem.startswith("__"))


def test_every_module_has_its_tests():
    files = [TESTS / module.with_name(f"test_{module.name}") for module in MODULES]
    lacking = [
        path.relative_to(TESTS)
        for path in files
        if not (path.is_file() and "def test_" in path.read_text(encoding="utf-8"))
    ]
    assert not lacking, f"no tests in {', '.join(map(str, lacking))}"


def test_no_file_begins_with_an_underscore():
    """A file is internal because its package does not name it, not by its own name."""
    underscored = [str(path) for path in MODULES if any(part.startswith("_") for part in path.parts)]
    assert not underscored


def test_no_file_of_the_core_is_too_long_to_be_read():
    paths = [path for path in TESTS.rglob("*.py") if path.relative_to(TESTS).parts[0] != "benchmark"]
    long = {path.name: n for path in paths if (n := len(path.read_text(encoding="utf-8").splitlines())) > 400}
    assert not long


def private_names(source: str) -> set[str]:
    """Names that scvi-tools keeps to itself, as a piece of code imports or reaches for them."""
    tree = ast.parse(source)
    found, aliases = set(), {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                aliases[name.asname or name.name.split(".")[0]] = name.name if name.asname else name.name.split(".")[0]
                found |= {name.name} if is_private(name.name) else set()
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for name in node.names:
                full = f"{node.module}.{name.name}"
                aliases[name.asname or name.name] = full
                found |= {full} if is_private(full) else set()
    for node in ast.walk(tree):
        chain, part = [], node
        while isinstance(part, ast.Attribute):
            chain.append(part.attr)
            part = part.value
        if chain and isinstance(part, ast.Name) and part.id in aliases:
            full = ".".join([aliases[part.id], *reversed(chain)])
            found |= {full} if is_private(full) else set()
    return found


def is_private(name: str) -> bool:
    first, *parts = name.split(".")
    return first == "scvi" and any(part.startswith("_") and not part.startswith("__") for part in parts)


def test_private_names_of_scvi_tools_are_left_to_one_file():
    found = {str(module): private_names((PACKAGE / module).read_text(encoding="utf-8")) for module in MODULES}
    assert found.pop("compat.py")
    assert not {module: names for module, names in found.items() if names}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from scvi.data._constants import _SETUP_ARGS_KEY", {"scvi.data._constants._SETUP_ARGS_KEY"}),
        ("from scvi.data import _utils", {"scvi.data._utils"}),
        ("import scvi.data._manager", {"scvi.data._manager"}),
        ("import scvi\nscvi.settings._seed = 3", {"scvi.settings._seed"}),
        ("from scvi import settings as s\ns._seed", {"scvi.settings._seed"}),
        ("import scvi\nscvi.settings.seed, scvi.__version__, self._seed", set()),
        ("import torch\ntorch._standard_gamma(x)", set()),
    ],
)
def test_private_names_are_found(source, expected):
    assert private_names(source) == expected


def unpickles(source: str) -> list[int]:
    """Lines that read a file in a way that can run what is in it."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        called = ast.unparse(node.func)
        options = {option.arg: ast.unparse(option.value) for option in node.keywords}
        is_safe = {
            "torch.load": options.get("weights_only") == "True",
            "torch.hub.load_state_dict_from_url": options.get("weights_only") == "True",
            "trainer.fit": "ckpt_path" not in options or options.get("weights_only") in ("True", "weights_only"),
            "np.load": options.get("allow_pickle", "False") == "False",
        }
        never = ("pickle.load", "pickle.loads", "yaml.load", "yaml.unsafe_load", "joblib.load", "pd.read_pickle")
        if called in never or not is_safe.get(called.removeprefix("self."), True):
            found.append(node.lineno)
    return found


def test_nothing_is_unpickled_but_where_that_is_asked_for():
    found = {str(module): lines for module in MODULES if (lines := unpickles((PACKAGE / module).read_text("utf-8")))}
    assert list(found) == ["model/pickled.py"]


@pytest.mark.parametrize(
    "line",
    [
        "pickle.load(file)",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "np.load(path, allow_pickle=True)",
    ],
)
def test_what_is_unpickled_is_found(line):
    assert unpickles(line) == [1] and not unpickles(
        "torch.load(path, weights_only=True), np.load(path), json.load(file)"
    )


@pytest.mark.parametrize("kind", [DeprecationWarning, PendingDeprecationWarning, FutureWarning])
def test_what_we_call_and_will_go_is_an_error(kind):
    """By the settings of pytest; what libraries call themselves is their own affair."""
    with pytest.raises(kind):
        warnings.warn_explicit("it will go", kind, "base.py", 1, module="sccountsdiff.model.base")
    with pytest.warns(kind):
        warnings.warn_explicit("it will go", kind, "other.py", 1, module="scvi.model")
