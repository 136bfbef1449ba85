"""Models go to the hub and come back; tried with a folder in the place of the hub."""

from __future__ import annotations

import fnmatch
import shutil
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from sccountsdiff import CountsDiffImputer

QUICK = {"n_samples": 1, "n_steps": 2, "seed": 5, "silent": True}


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub whose repositories are folders; as far as it is asked for, its interface is that of huggingface_hub."""
    huggingface_hub = pytest.importorskip("huggingface_hub")
    root = tmp_path / "hub"

    def create_repo(self, repo_id, *, private=None, exist_ok=False):
        (root / repo_id).mkdir(parents=True, exist_ok=exist_ok)
        return SimpleNamespace(repo_id=repo_id)

    def upload_folder(self, *, repo_id, folder_path, commit_message, delete_patterns):
        for path in (root / repo_id).iterdir():
            if any(fnmatch.fnmatch(path.name, pattern) for pattern in delete_patterns):
                path.unlink()
        shutil.copytree(folder_path, root / repo_id, dirs_exist_ok=True)
        return f"https://hub/{repo_id}"

    def snapshot_download(repo_id, *, revision=None, token=None, allow_patterns):
        fetched = tmp_path / "cache" / repo_id
        fetched.mkdir(parents=True, exist_ok=True)
        for path in (root / repo_id).iterdir():
            if any(fnmatch.fnmatch(path.name, pattern) for pattern in allow_patterns):
                shutil.copy(path, fetched)
        return str(fetched)

    monkeypatch.setattr(huggingface_hub.HfApi, "create_repo", create_repo)
    monkeypatch.setattr(huggingface_hub.HfApi, "upload_folder", upload_folder)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    return root


def test_there_and_back(hub, trained, query):
    assert trained.push_to_hub("me/model") == "https://hub/me/model"
    assert "library_name: sccountsdiff" in (hub / "me" / "model" / "README.md").read_text()
    again = CountsDiffImputer.from_pretrained("me/model", adata=False, accelerator="cpu")
    expected = trained.impute(query.copy(), **QUICK)
    np.testing.assert_array_equal(again.impute(query, **QUICK).toarray(), expected.toarray())


def test_what_is_replaced_goes_and_what_is_dangerous_is_not_fetched(hub, trained, plain, tmp_path):
    trained.push_to_hub("me/model", save_anndata=True)
    plain.push_to_hub("me/model")
    assert len(list((hub / "me" / "model").iterdir())) == 3
    (hub / "me" / "model" / "model.pt").write_bytes(b"")
    CountsDiffImputer.from_pretrained("me/model", adata=False, accelerator="cpu")
    assert not (tmp_path / "cache" / "me" / "model" / "model.pt").exists()


def test_the_arguments_are_those_of_the_library():
    """The hub above is no better than what it is given: the real one takes the same."""
    import inspect

    hub = pytest.importorskip("huggingface_hub")
    assert {"repo_id", "private", "exist_ok"} <= set(inspect.signature(hub.HfApi.create_repo).parameters)
    wanted = {"repo_id", "folder_path", "commit_message", "delete_patterns"}
    assert wanted <= set(inspect.signature(hub.HfApi.upload_folder).parameters)
    wanted = {"repo_id", "revision", "token", "allow_patterns"}
    assert wanted <= set(inspect.signature(hub.snapshot_download).parameters)


def test_from_a_folder_and_without_the_library(saved, plain, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert CountsDiffImputer.from_pretrained(saved, adata=False, accelerator="cpu").is_trained
    for share in (lambda: plain.push_to_hub("me/model"), lambda: CountsDiffImputer.from_pretrained("me/model")):
        with pytest.raises(ImportError, match=r"pip install 'sccountsdiff\[hub\]'"):
            share()
