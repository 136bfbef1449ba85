import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from anndata import AnnData
from scipy import sparse

from sccountsdiff.benchmark.results import ResultStore, describe, fingerprint, label


def test_rows_come_back_exactly(tmp_path):
    rows = [{"value": 0.1 + 0.2, "error": None}, {"value": float("nan"), "error": "x"}]
    ResultStore(tmp_path).save({"seed": 1, "metrics": ("a",)}, rows)
    back = ResultStore(tmp_path).load({"metrics": ["a"], "seed": 1})
    assert back[0] == rows[0] and np.isnan(back[1]["value"])
    assert ResultStore(tmp_path).load({"seed": 2, "metrics": ("a",)}) is None
    (file,) = (tmp_path / "results").iterdir()
    assert json.loads(file.read_text())["configuration"]["seed"] == 1


def test_a_write_that_is_cut_off_leaves_no_result(tmp_path, monkeypatch):
    store = ResultStore(tmp_path)
    monkeypatch.setattr("pathlib.Path.replace", lambda *arguments: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        store.save({"seed": 1}, [])
    assert ResultStore(tmp_path).load({"seed": 1}) is None


def test_without_a_folder_results_live_in_memory():
    store = ResultStore(None)
    store.save({"seed": 1}, [{"value": 1}])
    assert store.load({"seed": 1}) == [{"value": 1}]


def test_what_failed_is_made_again_if_asked_for(tmp_path):
    for seed, error in ((1, None), (2, "ValueError: too small")):
        ResultStore(tmp_path).save({"seed": seed}, [{"error": None}, {"error": error}])
    assert ResultStore(tmp_path).load({"seed": 2}) is not None
    again = ResultStore(tmp_path, retry_failed=True)
    assert again.load({"seed": 1}) is not None and again.load({"seed": 2}) is None


def test_the_fingerprint_is_of_the_values():
    counts = np.array([[0.0, 2.0], [3.0, 0.0]])
    obs = {"type": ["a", "b"], "other": ["x", "y"]}
    dense = fingerprint(AnnData(counts, obs=obs), ["type"])
    assert fingerprint(AnnData(sparse.csc_matrix(counts), obs=obs), ["type"]) == dense
    assert fingerprint(AnnData(counts, obs=obs | {"other": ["z", "z"]}), ["type"]) == dense
    assert fingerprint(AnnData(counts, obs=obs | {"type": ["b", "b"]}), ["type"]) != dense
    assert fingerprint(AnnData(counts[::-1], obs=obs), ["type"]) != dense
    renamed = AnnData(counts, obs=obs)
    renamed.var_names = ["g", "h"]
    assert fingerprint(renamed, ["type"]) != dense


def test_names_show_settings_that_are_not_the_default():
    @dataclass
    class Thing:
        size: int = 3
        options: dict = field(default_factory=dict)

    assert label(Thing(), "thing") == "thing"
    assert label(Thing(4, {"a": 1}), "thing") == "thing(size=4, options={'a': 1})"
    assert describe(Thing()) == {"class": "Thing", "size": 3, "options": {}}
    assert label(object(), "plain") == "plain"


def test_numbers_and_the_same_numbers_as_text_are_told_apart():
    """Methods take the former as continuous, the latter as categories."""
    counts = np.ones((3, 2))
    numbers, names = ({"age": values} for values in ([1.0, 2.0, 3.0], ["1.0", "2.0", "3.0"]))
    assert fingerprint(AnnData(counts, obs=numbers), ["age"]) != fingerprint(AnnData(counts, obs=names), ["age"])


def test_where_a_column_ends_matters():
    counts = np.ones((2, 1))
    tables = ({"a": ["x", "y"], "b": ["z", "w"]}, {"a": ["x", "y\0z"], "b": ["w", ""]})
    first, second = (fingerprint(AnnData(counts, obs=table), ["a", "b"]) for table in tables)
    assert first != second


def test_a_path_stands_for_what_is_there(tmp_path):
    @dataclass
    class Pretrained:
        weights: Path

    def key(path):
        return describe(Pretrained(path))["weights"]

    for folder in ("here", "there"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "model.pt").write_bytes(b"weights")
    assert key(tmp_path / "here") == key(tmp_path / "there") is not None
    assert key(tmp_path / "here" / "model.pt") not in (None, key(tmp_path / "here"))
    assert key(tmp_path / "nowhere") is None
    (tmp_path / "there" / "model.pt").write_bytes(b"other weights")
    assert key(tmp_path / "here") != key(tmp_path / "there")
    assert label(Pretrained(Path("here")), "x") == "x(weights='here')"
