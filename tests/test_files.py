"""Files that are whole or not there."""

import os

import pytest

from sccountsdiff.files import check_can_write, replacing


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


def test_a_folder_that_takes_no_files_is_refused(tmp_path, monkeypatch):
    def refuse(self, *args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.touch", refuse)
    with pytest.raises(OSError, match="table.csv cannot be written: Permission denied"):
        check_can_write(tmp_path / "table.csv")


def test_checking_leaves_nothing_behind(tmp_path):
    check_can_write(tmp_path / "table.csv")
    assert os.listdir(tmp_path) == []
