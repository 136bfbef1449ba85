"""Run the fast tests of the core with the versions that are installed here, and note which ones and what came of it.

    python docs/benchmarks/versions.py --output docs/benchmarks/results/versions.csv

A row of the table is replaced if the versions are the same.
"""

from __future__ import annotations

import argparse
import platform
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd

from sccountsdiff.files import write_table

PACKAGES = ("anndata", "lightning", "mudata", "numpy", "pandas", "scanpy", "scipy", "scvi-tools", "torch")
TESTS = (
    "data",
    "diffusion",
    "model",
    "nn",
    "tl",
    "test_checkpoints.py",
    "test_checks.py",
    "test_cli.py",
    "test_command.py",
)
TESTS += ("test_compat.py", "test_files.py", "test_io.py", "test_module.py", "test_overview.py", "test_training.py")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("versions.csv"))
    parser.add_argument("--tests", nargs="+", default=TESTS, help="folders and files of tests")
    arguments = parser.parse_args()
    tests = [f"tests/{name}" for name in arguments.tests]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        options = ["-q", "-m", "not slow", "-p", "no:cacheprovider", "--tb=short", f"--junitxml={report}"]
        subprocess.run([sys.executable, "-m", "pytest", *options, *tests])
        counts = {
            name: int(count)
            for name, count in next(ElementTree.parse(report).iter("testsuite")).items()
            if count.isdigit()
        }
    row = {"python": platform.python_version(), **{name.replace("-", "_"): version(name) for name in PACKAGES}}
    failed = counts["failures"] + counts["errors"]
    result = {"passed": counts["tests"] - failed - counts["skipped"], "skipped": counts["skipped"], "failed": failed}
    old = pd.read_csv(arguments.output, dtype=str).to_dict("records") if arguments.output.exists() else []
    kept = [other for other in old if {name: other[name] for name in row} != row]
    write_table(arguments.output, pd.DataFrame([*kept, row | result]))
    raise SystemExit(int(failed > 0))


if __name__ == "__main__":
    main()
