"""Commands on the pages are understood, and the workflows run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from sccountsdiff import datasets, io
from sccountsdiff.cli import read_command

ROOT = Path(__file__).parents[2]
WORKFLOWS = ROOT / "docs" / "workflows"
PAGES = [ROOT / "README.md", *sorted(path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts)]


def commands():
    for page in PAGES:
        for block in re.findall(r"^```bash\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
            for line in block.replace("\\\n", " ").splitlines():
                for part in re.split(r"\s[|>]\s|&&", line):
                    words = shlex.split(part, comments=True)
                    if words[:1] == ["sccountsdiff"]:
                        yield pytest.param(words[1:], id=f"{page.stem}: {' '.join(words[1:4])}")


COMMANDS = list(commands())


def test_there_are_some():
    assert len(COMMANDS) > 15


@pytest.mark.parametrize("words", COMMANDS)
def test_a_command_on_a_page_is_understood(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for table in (word for word in words if word.endswith(".csv")):
        Path(table).touch()
    assert callable(read_command(words).run)


def in_workflows():
    """Commands of the workflows, with a word in place of what they fill in."""
    for path in sorted(WORKFLOWS.iterdir()):
        for line in re.findall(r"^\s*\"?(sccountsdiff .*?)\"?$", path.read_text(encoding="utf-8"), re.MULTILINE):
            filled = re.sub(r"\$?\{[^}]*[oO]ptions[^}]*\}", "", line.partition(" > ")[0])
            yield pytest.param(shlex.split(re.sub(r"\$?\{[^}]*\}", "x", filled))[1:], id=f"{path.name}: {line[:24]}")


@pytest.mark.parametrize("words", in_workflows())
def test_a_command_of_a_workflow_is_understood(words):
    assert callable(read_command(words).run)


@pytest.mark.slow
def test_the_snakemake_workflow(tmp_path):
    pytest.importorskip("snakemake", reason="needs snakemake")
    cells = datasets.pbmc68k()[:90, :30].copy()
    io.write(cells[:60].copy(), tmp_path / "train.h5ad")
    (tmp_path / "samples").mkdir()
    for name, rows in (("a", slice(60, 75)), ("b", slice(75, 90))):
        io.write(cells[rows].copy(), tmp_path / "samples" / f"{name}.h5ad")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sccountsdiff").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m sccountsdiff "$@"\n')
    (tmp_path / "bin" / "sccountsdiff").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(WORKFLOWS / "Snakefile"), "--cores", "1"]
    options = ["train_options=--max-epochs 1 --n-hidden 8", "impute_options=--n-samples 1 --n-steps 2"]
    subprocess.run([*command, "--config", *options], cwd=tmp_path, env=environment, check=True)
    for name in "ab":
        layers = io.read(tmp_path / "results" / f"{name}.h5ad").layers
        assert {"imputed", "normalized"} <= set(layers)
