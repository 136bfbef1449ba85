"""What is written as JSON comes back as it was, and nothing that a file names is run."""

from __future__ import annotations

import json
import math
import sys

import numpy as np
import pandas as pd
import pytest
import torch

from sccountsdiff.diffusion import Fisher
from sccountsdiff.model.json_values import find_class, from_json, to_json
from sccountsdiff.nn import MLP, Poisson


def through_text(value):
    return from_json(json.loads(json.dumps(to_json(value), allow_nan=False)))


@pytest.mark.parametrize(
    "value",
    [None, True, 0, -(2**70), 0.1, math.inf, -math.inf, "", "ünï\0\n", [], [1, [2.5, None]], (1, ("a",)), {}, {"a": {"b": 1}},
     {1: "a", (2, 3): "b", "$x": 0}],
)  # fmt: skip
def test_plain_values(value):
    again = through_text(value)
    assert again == value and type(again) is type(value)


def test_nan():
    assert math.isnan(through_text(math.nan))


@pytest.mark.parametrize(
    "array",
    [
        np.array(["B", "NK", "T cell"]),
        np.array(["B", "a much longer name"], dtype=object),
        np.array([1, "one", None, 2.5, True], dtype=object),
        np.arange(6, dtype=np.int16).reshape(2, 3),
        np.array([True, False]),
        np.array([0.1, np.nan, -np.inf], dtype=np.float32),
        np.array([1e-300, math.pi]),
        np.array([1, 2], dtype=">i4"),
        np.array(["2024-01-01", "NaT"], dtype="datetime64[ns]"),
        np.empty((0, 3)),
        np.empty(0, dtype=object),
    ],
    ids=lambda array: str(array.dtype),
)
def test_arrays_keep_values_and_type(array):
    again = through_text(array)
    assert again.dtype == array.dtype.newbyteorder("<") and again.shape == array.shape and again.flags.writeable
    np.testing.assert_array_equal(again, array)


def test_scalars_tensors_and_tables():
    scalar = through_text(np.float32(0.1))
    assert scalar == np.float32(0.1) and scalar.dtype == np.float32
    assert torch.equal(through_text(torch.arange(4.0)), torch.arange(4.0))
    table = pd.DataFrame(
        {"loss": pd.Series([1.5, None], dtype=object), "n": [1, 2]}, index=pd.Index([3, 4], name="epoch")
    )
    pd.testing.assert_frame_equal(through_text(table), table)


def test_parts_by_name_and_settings():
    assert through_text(MLP) is MLP and through_text(Poisson) is Poisson
    schedule = through_text(Fisher(n_grid=20, log_p_min=-9.0))
    assert type(schedule) is Fisher and vars(schedule) == {"n_grid": 20, "log_p_min": -9.0}


def test_a_class_that_moved_is_found_by_its_name():
    assert find_class("backbone", "__main__.MLP") is MLP
    with pytest.raises(
        ValueError, match="a backbone of its own, the class mine.Deep, which is not defined here: import"
    ):
        find_class("backbone", "mine.Deep")


def test_what_is_no_data_is_refused_with_its_place():
    with pytest.raises(TypeError, match=r"settings\['activation'\] is of type builtins\.type, which cannot be saved"):
        to_json({"activation": torch.nn.ReLU}, "settings")
    with pytest.raises(TypeError, match=r"x\[0\] is of type builtins\.builtin_function_or_method"):
        to_json([print], "x")


@pytest.mark.parametrize(
    "hostile",
    [
        {"$class": {"kind": "backbone", "name": "antigravity.Backbone"}},
        {"$class": {"kind": "backbone", "name": "os.system"}},
        {"$part": {"kind": "schedule", "name": "subprocess.Popen", "settings": {"args": ["true"]}}},
        {"$class": {"kind": "function", "name": "os.system"}},
        {"$reduce": ["os.system", "true"]},
        {"$array": {"dtype": "O", "shape": [1], "bytes": "AAAAAAAAAAA="}},
        {"$array": {"dtype": "O8", "bytes": "AAAAAAAAAAA=", "shape": [1]}},
    ],
)
def test_nothing_is_imported_or_called_because_a_file_names_it(hostile):
    with pytest.raises((ValueError, KeyError)):
        from_json(hostile)
    assert "antigravity" not in sys.modules
