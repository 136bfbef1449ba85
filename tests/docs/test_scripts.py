"""The scripts behind the saved results can be started."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parents[2] / "docs" / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_imports_only_what_there_is(script):
    """Under another name than ``__main__`` a script imports what it needs, and runs nothing."""
    assert callable(runpy.run_path(str(script))["main"])
