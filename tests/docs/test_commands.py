"""Commands on the pages are understood, and the workflows run."""

from __future__ import annotations

import json
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


@pytest.fixture
def samples(tmp_path):
    """A folder with cells to train on and two samples; the command's own name finds this package."""
    cells = datasets.pbmc68k()[:90, :30].copy()
    io.write(cells[:60].copy(), tmp_path / "train.h5ad")
    (tmp_path / "samples").mkdir()
    for name, rows in (("a", slice(60, 75)), ("b", slice(75, 90))):
        io.write(cells[rows].copy(), tmp_path / "samples" / f"{name}.h5ad")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sccountsdiff").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m sccountsdiff "$@"\n')
    (tmp_path / "bin" / "sccountsdiff").chmod(0o755)
    return tmp_path


def run(command, folder, samples):
    environment = {**os.environ, "PATH": f"{samples / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run(command, cwd=folder, env=environment, check=True)


TRAIN_OPTIONS, IMPUTE_OPTIONS = "--max-epochs 1 --n-hidden 8", "--n-samples 1 --n-steps 2"


@pytest.mark.slow
def test_the_snakemake_workflow(samples):
    pytest.importorskip("snakemake", reason="needs snakemake")
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(WORKFLOWS / "Snakefile"), "--cores", "1"]
    options = [f"train_options={TRAIN_OPTIONS}", f"impute_options={IMPUTE_OPTIONS}"]
    run([*command, "--config", *options], samples, samples)
    for name in "ab":
        layers = io.read(samples / "results" / f"{name}.h5ad").layers
        assert {"imputed", "normalized"} <= set(layers)


def process(name):
    """Names of the inputs, texts of the outputs and the script of a process of the Nextflow workflow."""
    text = (WORKFLOWS / "main.nf").read_text(encoding="utf-8")
    body = re.search(rf"^process {name} \{{\n(.*?)^\}}", text, re.DOTALL | re.MULTILINE)[1]
    inputs, outputs, script = re.search(r'input:\n(.*?)output:\n(.*?)script:\s*"""(.*?)"""', body, re.DOTALL).groups()
    return re.findall(r"path (\w+)", inputs), re.findall(r'path "([^"]+)"', outputs), script


@pytest.mark.slow
def test_the_processes_of_the_nextflow_workflow(samples):
    """Each runs as Nextflow would run it: in a folder of its own, its inputs linked into it, its outputs to be there after."""
    params = {"params.train_options": TRAIN_OPTIONS, "params.impute_options": IMPUTE_OPTIONS}

    def done(name, *given):
        names, outputs, script = process(name)
        folder = samples / f"work_{name}_{given[0].stem}"
        folder.mkdir()
        filled_in = dict(params)
        for variable, path in zip(names, given, strict=True):
            (folder / path.name).symlink_to(path)
            filled_in |= {variable: path.name, f"{variable}.name": path.name, f"{variable}.baseName": path.stem}
        fill = lambda text: re.sub(r"\$\{([\w.]+)\}", lambda found: filled_in[found[1]], text)
        run(["bash", "-e", "-u", "-c", fill(script)], folder, samples)
        return [folder / fill(output) for output in outputs]

    model, summary = done("TRAIN", samples / "train.h5ad")
    assert json.loads(summary.read_text(encoding="utf-8"))["command"] == "train"
    for sample in sorted((samples / "samples").iterdir()):
        (imputed,) = done("IMPUTE", sample, model)
        (normalized,) = done("NORMALIZE", imputed, model)
        assert {"imputed", "normalized"} <= set(io.read(normalized).layers)
