import inspect
import subprocess
import sys
from pkgutil import iter_modules

import pytest

import sccountsdiff.benchmark as bm


def loaded_after(code):
    """Parts of the benchmark, and heavy libraries, that are loaded by some code."""
    code = f"import sys\n{code}\nprint(' '.join(sys.modules), file=sys.stderr)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr
    modules = found.splitlines()[-1].split()
    parts = {name.split(".")[2] for name in modules if name.startswith("sccountsdiff.benchmark.")}
    return parts | ({"torch", "xgboost", "diffusers"} & set(modules))


def test_the_package_alone_loads_nothing():
    assert loaded_after("import sccountsdiff.benchmark") == set()


def test_help_does_not_load_other_kinds_of_benchmarks():
    code = "from sccountsdiff.cli import main\ntry:\n    main(['benchmark', '--help'])\nexcept SystemExit:\n    pass"
    assert not {"images", "simulated", "paper", "xgboost", "diffusers"} & loaded_after(code)


def test_no_module_takes_the_name_of_a_function():
    """A module that is imported becomes an attribute of the package, and would stand in the place of the function."""
    modules = {module.name for module in iter_modules(bm.__path__)}
    functions = {name for name in bm.__all__ if inspect.isfunction(getattr(bm, name))}
    assert functions == {"list_methods", "list_metrics", "report", "run", "tune"} and not functions & modules


def test_everything_is_there_and_nothing_else():
    assert all(hasattr(bm, name) for name in bm.__all__) and set(bm.__all__) <= set(dir(bm))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        bm.nothing  # noqa: B018
