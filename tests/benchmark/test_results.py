import copy
import json
import os
import pickle
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from anndata import AnnData
from scipy import sparse

from sccountsdiff.benchmark.missingness import MCAR
from sccountsdiff.benchmark.results import ResultStore, by_content, code_digest, describe, fingerprint, label


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
    described = describe(Thing())
    assert described.pop("code") == code_digest(Thing) and described == {"class": "Thing", "size": 3, "options": {}}
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


def defined(source, name="Own"):
    """What a file with this source would define."""
    namespace = {"__name__": "mine", "dataclass": dataclass, "MCAR": MCAR, "np": np}
    exec(source, namespace)
    return namespace[name]


METHOD = """
SCALE = {scale}

def helper(x):
    return inner(x) * SCALE

def inner(x):
    return x + {shift}

def unused(x):
    return {unused}

@dataclass(frozen=True)
class Own(MCAR):
    rate: float = 0.5

    def draw(self, counts):
        {comment}
        return [helper(count) for count in counts]
"""


def uses_others():
    return json.dumps(label(np.random.default_rng(0), "x")), field(default=1), sparse.csr_matrix((1, 1))


class TestCode:
    ORIGINAL = {"scale": 2, "shift": 1, "unused": 0, "comment": "# why"}

    @pytest.mark.parametrize(
        ("change", "is_other"),
        [
            ({}, False),
            ({"scale": 3}, True),
            ({"shift": 2}, True),
            ({"unused": 5}, False),
            ({"comment": "# because"}, False),
        ],
        ids=str,
    )
    def test_results_go_by_what_the_code_does(self, change, is_other):
        first, second = (defined(METHOD.format(**(self.ORIGINAL | more))) for more in ({}, change))
        assert (code_digest(first) != code_digest(second)) == is_other
        assert (describe(first()) != describe(second())) == is_other

    def test_what_others_have_made_is_left_out(self):
        """It has state of its own, and a version."""
        before = code_digest(uses_others)
        uses_others()
        label.seen = ["something"]
        assert code_digest(uses_others) == before
        del label.seen

    def test_use_does_not_change_it(self):
        own = defined(METHOD.format(**self.ORIGINAL))
        before = code_digest(own)
        copy.deepcopy(own())
        assert code_digest(own) == before

    def test_that_of_the_package_goes_by_its_version(self):
        assert code_digest(MCAR) is None and "code" not in describe(MCAR(0.25))

    def test_methods_of_all_kinds_count(self):
        template = """
class Own:
    CONSTANT = {constant}
    @property
    def a(self): return {a}
    @staticmethod
    def b(): return {b}
    @classmethod
    def c(cls): return {c}
    def d(self, x={d}): return lambda: x + {e}
"""
        values = dict.fromkeys(["constant", "a", "b", "c", "d", "e"], 1)
        digests = {code_digest(defined(template.format(**(values | {name: 2})))) for name in [*values, "none"]}
        assert len(digests) == 7

    def test_functions_as_settings(self):
        one, same, other = (defined(f"def Own(x):\n    return x + {n}") for n in (1, 1, 2))
        assert by_content(one) == by_content(same) != by_content(other)


@pytest.mark.parametrize("make", [np.array, torch.tensor, sparse.csr_matrix, pd.Series], ids=lambda make: make.__name__)
def test_long_arrays_are_told_apart_in_the_middle(make):
    values = np.zeros(5000)
    other = values.copy()
    other[2500] = 1
    one, same, different = (by_content({"x": [make(array)]}) for array in (values, values.copy(), other))
    assert one == same != different
    json.dumps(one)


@pytest.mark.parametrize("content", ["", '{"rows": [', "[]", '{"rows": 3}', '{"rows": [1]}', "\x00"])
def test_a_damaged_result_is_named_put_aside_and_made_again(tmp_path, caplog, content):
    ResultStore(tmp_path).save({"seed": 1}, [{"value": 1.5, "error": None}])
    (file,) = (tmp_path / "results").iterdir()
    file.write_text(content)
    store = ResultStore(tmp_path)
    assert store.load({"seed": 1}) is None and file.name in caplog.text
    assert file.with_name(file.name + ".damaged").read_text() == content
    store.save({"seed": 1}, [{"value": 2.5, "error": None}])
    assert ResultStore(tmp_path).load({"seed": 1})[0]["value"] == 2.5


def test_a_hostile_result_is_not_run(tmp_path):
    class Touch:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "touched"),)

    ResultStore(tmp_path).save({"seed": 1}, [])
    (file,) = (tmp_path / "results").iterdir()
    for hostile in (
        pickle.dumps(Touch()),
        pickle.dumps({"rows": [Touch()]}, protocol=0),
        b'{"rows": "__import__(\'os\')"}',
    ):
        file.write_bytes(hostile)
        assert ResultStore(tmp_path).load({"seed": 1}) is None and not file.exists()
    assert not (tmp_path / "touched").exists()
    pickle.loads(pickle.dumps(Touch()))
    assert (tmp_path / "touched").exists(), "otherwise the proof proves nothing"
