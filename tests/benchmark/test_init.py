import subprocess
import sys

import pytest

import sccountsdiff.benchmark as bm


def loaded_after(code):
    """Parts of the benchmark, and heavy libraries, that are loaded by some code."""
    code = f"import sys\n{code}\nprint(' '.join(sys.modules), file=sys.stderr)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr
    modules = found.splitlines()[-1].split()
    parts = {name.split(".")[2] for name in modules if name.startswith("sccountsdiff.benchmark.")}
    return parts | ({"torch", "xgboost", "igraph", "diffusers"} & set(modules))


def test_the_package_alone_loads_nothing():
    assert loaded_after("import sccountsdiff.benchmark") == set()


def test_help_and_demo_do_not_load_what_they_do_not_need():
    command = "from sccountsdiff.cli import main\ntry:\n    main(['benchmark', '--help'])\nexcept SystemExit:\n    pass"
    for code in (command, "import sccountsdiff.demo"):
        assert not {"images", "simulated", "paper", "xgboost", "igraph", "diffusers"} & loaded_after(code)


@pytest.mark.parametrize("module", ["runner", "reporting", "sweeps"])
def test_functions_are_functions_whatever_was_imported_before(module):
    code = f"import sccountsdiff.benchmark.{module}\nimport sccountsdiff.benchmark as bm\nassert callable(bm.run) and callable(bm.report)"
    assert module in loaded_after(code)


def test_everything_is_there_and_nothing_else():
    assert all(hasattr(bm, name) for name in bm.__all__) and set(bm.__all__) <= set(dir(bm))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        bm.nothing  # noqa: B018
