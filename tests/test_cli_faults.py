"""Commands under faults: full disks, folders that take no files, models that are pickles."""

import errno
import os
import re
import subprocess
import sys
from contextlib import contextmanager

import pytest
import torch

from sccountsdiff import datasets, io
from sccountsdiff import files as own_files
from sccountsdiff.benchmark.cli import add_kinds
from sccountsdiff.cli import COMMANDS, main, read_command
from sccountsdiff.command import Parser
from sccountsdiff.model.saving import read_model

SMALL = ["--n-hidden", "8", "--n-layers", "1", "--max-epochs", "2", "--accelerator", "cpu"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A small .h5ad file, and a model trained on it."""
    folder = tmp_path_factory.mktemp("cli")
    adata = datasets.pbmc68k()[:80, :40].copy()
    adata.write_h5ad(folder / "data.h5ad")
    assert main(["train", str(folder / "data.h5ad"), str(folder / "model"), *SMALL]) == 0
    return folder


SMALL_DATA = ["--dataset", "{data}", "--min-cells", "1"]
ONE_METRIC = ["--metrics", "rmse", "--bootstrap", "0", "--output", "{output}"]
WRITING = [
    ["train", "{data}", "{output}", *SMALL],
    ["train", "{data}", "{data}.model", *SMALL, "--checkpoint", "{output}"],
    ["impute", "{data}", "{model}", "{output}.h5ad", "--n-folds", "1"],
    ["impute", "{data}", "{model}", "{output}.zarr", "--n-folds", "1"],
    ["denoise", "{data}", "{model}", "{output}.h5ad"],
    ["normalize", "{data}", "{model}", "{output}.h5ad", "--n-folds", "1"],
    ["generate", "{model}", "{output}.h5ad", "--n-cells", "2", "--n-steps", "1"],
    ["demo", "--max-epochs", "1", "--output", "{output}"],
    ["benchmark", "imputation", *SMALL_DATA, "--methods", "zero", *ONE_METRIC],
    ["benchmark", "tune", *SMALL_DATA, "--methods", "scvi", "--output", "{output}"],
    ["benchmark", "sweep", "n_steps", *SMALL_DATA, "--values", "1", "--max-epochs", "1", *ONE_METRIC],
    ["benchmark", "images", "--steps", "1", "--accelerator", "cpu", "--output", "{output}"],
    ["benchmark", "simulated", "--quick", "--output", "{output}"],
    [
        "benchmark",
        "speed",
        "--genes",
        "20",
        "--cells",
        "40",
        "--repeats",
        "1",
        "--max-epochs",
        "1",
        "--output",
        "{output}",
    ],
    ["benchmark", "paper", "heart_mcar", "--data", "{data}", "--output", "{output}"],
]
"""All commands that write, as small as they can be."""

writing = pytest.mark.parametrize("arguments", WRITING, ids=lambda arguments: " ".join(arguments[:2]))


def test_no_command_is_left_out():
    """But `inspect`, which prints."""
    benchmark = Parser()
    add_kinds(benchmark)
    (kinds,) = (action.choices for action in benchmark._actions if isinstance(action.choices, dict))
    assert {command[0] for command in WRITING} == set(COMMANDS) - {"inspect"}
    assert {command[1] for command in WRITING if command[0] == "benchmark"} == set(kinds)


@pytest.mark.skipif(not os.path.isdir("/sys/kernel"), reason="needs a folder that nobody can write to")
@writing
def test_a_folder_that_takes_no_files_is_one_line_before_any_work(files, monkeypatch, capsys, arguments):
    monkeypatch.setattr(io, "read", lambda path: pytest.fail("began to work"))
    names = {"data": files / "data.h5ad", "model": files / "model", "output": "/sys/kernel/out"}
    assert main([argument.format(**names) for argument in arguments]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("sccountsdiff: /sys/kernel/out") and printed.err.count("\n") == 1
    assert "cannot be written: " in printed.err and printed.out == ""


@contextmanager
def no_larger_than(n_bytes):
    """A full disk, as far as a process can tell: no file may grow beyond some size."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.skipif(os.name == "nt", reason="there are no such limits")
@writing
def test_a_full_disk_is_one_line_before_any_work(files, tmp_path, monkeypatch, capsys, arguments):
    monkeypatch.setattr(io, "read", lambda path: pytest.fail("began to work"))
    names = {"data": files / "data.h5ad", "model": files / "model", "output": tmp_path / "out"}
    with no_larger_than(100):
        assert main([argument.format(**names) for argument in arguments]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith(f"sccountsdiff: {tmp_path / 'out'}") and printed.err.count("\n") == 1
    assert "cannot be written: File too large" in printed.err and printed.out == ""
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="there are no such limits")
@writing
def test_a_disk_that_fills_up_is_one_line_and_leaves_all_as_it_was(files, tmp_path, monkeypatch, capsys, arguments):
    monkeypatch.setattr(own_files, "ROOM", 0)  # there was enough when the work began
    if arguments[1] == "paper":
        pytest.skip("needs an atlas; its results are those of `imputation`")
    if arguments[1] in ("images", "tune"):
        pytest.importorskip("diffusers" if arguments[1] == "images" else "sklearn")
    before = {path: path.read_bytes() for path in files.rglob("*") if path.is_file()}
    names = {"data": files / "data.h5ad", "model": files / "model", "output": tmp_path / "out"}
    with no_larger_than(100):
        code = main([argument.format(**names) for argument in arguments])
    printed = capsys.readouterr()
    line = printed.err.strip().splitlines()[-1]
    assert code == 2 and line.startswith("sccountsdiff: ") and printed.out == "" and "Traceback" not in printed.err
    assert re.search(r"out.* cannot be written: .*[Ff]ile too large", line)
    assert {path: path.read_bytes() for path in files.rglob("*") if path.is_file()} == before
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert all(path.stat().st_size <= 100 for path in left), "what is there is whole"
    assert not [path for path in left if path.name.startswith(".")], "nothing half-written is left"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is full")
@pytest.mark.parametrize("device", ["/dev/full", "pipe"])
def test_a_summary_that_cannot_be_written_is_one_line(files, device):
    """A summary that goes to a file on a full disk, or to a program that has ended."""
    read, write = os.pipe()
    os.close(read)
    target = write if device == "pipe" else os.open(device, os.O_WRONLY)
    given = [sys.executable, "-m", "sccountsdiff", "inspect", str(files / "data.h5ad"), "--json"]
    answer = subprocess.run(given, stdout=target, stderr=subprocess.PIPE, text=True)
    os.close(target)
    assert answer.returncode == 1 and answer.stderr.startswith("sccountsdiff: the summary cannot be written: ")
    assert answer.stderr.count("\n") == 1


def test_the_input_stays_if_it_is_to_be_replaced_and_that_fails(files, tmp_path, monkeypatch, capsys):
    path = tmp_path / "data.h5ad"
    path.write_bytes((files / "data.h5ad").read_bytes())

    def fail(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    assert main(["impute", str(path), str(files / "model"), str(path), "--overwrite", "--n-folds", "1"]) == 2
    assert "data.h5ad cannot be written: No space left on device" in capsys.readouterr().err
    assert path.read_bytes() == (files / "data.h5ad").read_bytes() and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("command", ["impute", "denoise", "normalize", "generate", "inspect"])
def test_pickled_models_are_loaded_only_if_asked_for(files, tmp_path, capsys, command):
    """By all commands that take a model."""
    pickled = tmp_path / "model"
    pickled.mkdir()
    saved = read_model(files / "model")
    weights = {name: value.clone() for name, value in saved.weights.items()}  # on their own, not parts of one file
    torch.save({"attr_dict": saved.attributes, "model_state_dict": weights}, pickled / "model.pt")
    data, output = str(files / "data.h5ad"), str(tmp_path / "out.h5ad")
    paths = {"generate": [str(pickled), output, "--n-cells", "2", "--n-steps", "1"], "inspect": [str(pickled)]}
    given = [command, *paths.get(command, [data, str(pickled), output])]
    assert main(given) == 2 and "model.pt can run any code" in capsys.readouterr().err
    assert main([*given, "--allow-pickle"]) == 0


@pytest.mark.parametrize("kind", [["imputation"], ["paper", "heart_mcar"]])
def test_pickled_embedders_too(kind):
    assert read_command(["benchmark", *kind, "--embedder", "folder", "--allow-pickle"]).allow_pickle
