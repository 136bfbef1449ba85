"""Files that are whole or not there."""

import ast
import hashlib
import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from sccountsdiff import files
from sccountsdiff.files import check_can_write, check_folder, digest_of_file, remove_leftovers, replacing, set_aside


def test_the_target_is_replaced(tmp_path):
    target = tmp_path / "table.csv"
    target.write_text("old")
    with replacing(target) as beside:
        assert beside.suffix == ".csv" and beside.parent == target.parent
        beside.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("error", [OSError("No space left on device"), KeyboardInterrupt()])
def test_the_target_stays_if_writing_fails(tmp_path, error):
    target = tmp_path / "table.csv"
    target.write_text("old")
    with pytest.raises(type(error)), replacing(target) as beside:
        beside.write_text("half")
        raise error
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_link_keeps_leading_to_its_file(tmp_path):
    target, link = tmp_path / "table.csv", tmp_path / "link.csv"
    target.write_text("old")
    link.symlink_to(target)
    with replacing(link) as beside:
        beside.write_text("new")
    assert link.is_symlink() and target.read_text() == "new"


@pytest.mark.skipif(not os.path.isdir("/sys/kernel"), reason="needs a folder that nobody can write to")
def test_a_folder_that_takes_no_files_is_refused():
    with pytest.raises(OSError, match="table.csv cannot be written: Permission denied"):
        check_can_write("/sys/kernel/table.csv")
    with pytest.raises(OSError, match="results cannot be written: Permission denied"):
        check_folder("/sys/kernel/results")


@pytest.mark.skipif(os.name == "nt", reason="there are no such limits")
def test_room_is_asked_for(tmp_path):
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        check_can_write(tmp_path / "table.csv", 1000)
        with pytest.raises(OSError, match="table.csv cannot be written: File too large"):
            check_can_write(tmp_path / "table.csv", 1001)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert os.listdir(tmp_path) == []


def test_checking_leaves_nothing_behind(tmp_path):
    check_can_write(tmp_path / "table.csv")
    assert os.listdir(tmp_path) == []


def test_what_a_killed_process_left_goes_but_not_what_is_being_written(tmp_path):
    dead = subprocess.Popen(["true"])
    dead.wait()
    mine, other = (tmp_path / f".a.{host}.{dead.pid}-0.partial.csv" for host in (files._HOST, "elsewhere"))
    running = tmp_path / f".a.{files._HOST}.{os.getpid()}-{files._RUN}.partial.csv"
    same_number = tmp_path / f".a.{files._HOST}.{os.getpid()}-0.partial.csv"  # in an earlier container
    for path in (mine, other, running, same_number):
        path.write_text("half")
    remove_leftovers(tmp_path)
    assert not mine.exists() and other.exists() and running.exists() and not same_number.exists()
    mine.write_text("half")
    with replacing(tmp_path / "b.csv") as beside:
        beside.write_text("whole")
    assert not mine.exists()


def test_a_name_that_no_process_has_is_no_obstacle(tmp_path):
    """Whoever may write to a folder may put anything there."""
    strange = tmp_path / f".a.{files._HOST}.{10**30}-0.partial.csv"
    strange.write_text("half")
    files.write_text(tmp_path / "b.csv", "whole")
    assert list(tmp_path.iterdir()) == [tmp_path / "b.csv"]


@pytest.mark.parametrize("n_bytes", [None, 3000])
def test_what_a_killed_process_tried_to_write_goes_too(tmp_path, monkeypatch, n_bytes):
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", lambda *_, **__: None)  # it did not live to see that
        check_can_write(tmp_path / "table.csv", n_bytes)
    assert len(os.listdir(tmp_path)) == 1
    remove_leftovers(tmp_path)
    assert len(os.listdir(tmp_path)) == 1, "it may still be at it"
    monkeypatch.setattr(files, "_RUN", "another")
    remove_leftovers(tmp_path)
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(os.name == "nt", reason="permissions of POSIX")
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_who_may_read_a_file_stays_the_same(tmp_path, mode):
    target, folder = tmp_path / "cells.h5ad", tmp_path / "cells.zarr"
    target.write_text("old")
    write_folder(folder, "old")
    target.chmod(mode)
    folder.chmod(mode | 0o100)
    files.write_text(target, "new")
    with replacing(folder) as beside:
        write_folder(beside, "new")
    assert target.read_text() == (folder / "part").read_text() == "new"
    assert target.stat().st_mode & 0o777 == mode and folder.stat().st_mode & 0o777 == mode | 0o100


def write_folder(path, content):
    path.mkdir()
    (path / "part").write_text(content)


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("is_killed", [False, True])
def test_a_folder_is_replaced_or_stays(tmp_path, monkeypatch, number, is_killed):
    """Whatever rename it is that fails, or that a process does not live to see."""
    target, rename, count = tmp_path / "cells.zarr", Path.replace, 0
    write_folder(target, "old")

    def replace(self, to):
        nonlocal count
        count += 1
        if count == number:
            raise KeyboardInterrupt
        return rename(self, to)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", replace)
        if is_killed:
            patch.setattr(files, "_put_back", lambda *_: None)
        with suppress(KeyboardInterrupt), replacing(target) as beside:
            write_folder(beside, "new")
    monkeypatch.setattr(files, "_RUN", "another")
    remove_leftovers(tmp_path)
    assert (target / "part").read_text() == ("new" if number == 0 else "old")
    assert list(tmp_path.iterdir()) == [target]


def test_what_cannot_be_read_is_set_aside_and_named(tmp_path, caplog):
    (tmp_path / "last.ckpt").write_text("half")
    aside = set_aside(tmp_path / "last.ckpt", ValueError("cut short\nand more"))
    assert aside == tmp_path / "last.ckpt.damaged" and aside.read_text() == "half"
    assert "last.ckpt is damaged (cut short): set aside as last.ckpt.damaged" in caplog.text
    assert not (tmp_path / "last.ckpt").exists()


def test_too_little_space_is_found_before(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=2**20))
    check_can_write(tmp_path / "table.csv", 2**20)
    with pytest.raises(OSError, match="table.csv cannot be written: 3 MiB are needed, 1 are free"):
        check_can_write(tmp_path / "table.csv", 3 * 2**20)


def test_without_a_size_there_must_be_some_room(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=2**20 - 1))
    check_can_write(tmp_path / "table.csv", 1000)
    for check, name in ((check_can_write, "table.csv"), (check_folder, "new"), (check_folder, "")):
        with pytest.raises(OSError, match="cannot be written: 1 MiB are needed, 0 are free"):
            check(tmp_path / name)


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(IsADirectoryError, match="cannot be written: it is a folder"):
        check_can_write(tmp_path)


def test_a_digest_is_that_of_the_contents(tmp_path):
    (tmp_path / "file").write_bytes(b"abc")
    assert digest_of_file(tmp_path / "file") == hashlib.sha256(b"abc").hexdigest()


WRITERS = {
    "to_csv",
    "to_json",
    "savefig",
    "save_file",
    "savez",
    "write_text",
    "write_bytes",
    "write_h5ad",
    "write_zarr",
}


def written_in_place(source):
    """Lines that write to a file other than one beside its target."""
    tree = ast.parse(source)
    beside = {"beside", "buffer"}  # the latter in memory
    for node in ast.walk(tree):
        if isinstance(node, ast.With):
            calls = [item for item in node.items if isinstance(item.context_expr, ast.Call) and item.optional_vars]
            # What is opened is counted too: it is the file beside, or one to be read.
            beside |= {item.optional_vars.id for item in calls if isinstance(item.optional_vars, ast.Name)}
        if isinstance(node, ast.Lambda):  # which is given the file beside
            beside |= {argument.arg for argument in node.args.args}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in WRITERS:
            names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
            if not names & beside:
                found.append(node.lineno)
    return found


def test_files_are_written_beside_their_target_everywhere():
    package = Path(files.__file__).parent
    found = {
        str(path.relative_to(package)): lines
        for path in package.rglob("*.py")
        if (lines := written_in_place(path.read_text(encoding="utf-8")))
    }
    assert not found


def test_what_is_written_in_place_is_found():
    assert written_in_place("table.to_csv(path)") == [1]
    assert written_in_place("(folder / 'x').write_bytes(content)") == [1]
    assert not written_in_place("with replacing(path) as beside:\n    table.to_csv(beside)")
