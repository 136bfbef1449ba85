"""Messages name what is meant: layers, options, and the entry that is wrong."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from sccountsdiff.data.messages import first_entry, listing, matrix_name, some_of, suggestion, values_of


def test_names_of_matrices():
    assert matrix_name(None) == "adata.X"
    assert matrix_name("umi's") == 'adata.layers["umi\'s"]'


def test_lists():
    assert listing({"a": 1, "b": 2}) == "'a', 'b'"
    assert listing([]) == "none"


@pytest.mark.parametrize(
    ("n", "at_most", "expected"),
    [(3, 5, "0, 1, 2"), (5, 5, "0, 1, 2, 3, 4"), (6, 5, "0, 1, 2, 3, 4, ..."), (3, 1, "0, ..."), (0, 5, "")],
)
def test_some_of_many(n, at_most, expected):
    assert some_of(range(n), at_most) == expected
    assert some_of(np.arange(n), at_most) == expected


def test_suggestions():
    assert suggestion("celltype", ["age", "cell_type"]) == " Did you mean 'cell_type' for 'celltype'?"
    assert suggestion("x", ["age", "cell_type"]) == ""
    assert suggestion(10, [101, 7]) == " Did you mean '101' for '10'?", "names may be numbers"


@pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix, sp.csc_matrix, sp.csr_array])
@pytest.mark.parametrize("seed", range(5))
def test_the_first_entry_is_that_of_the_first_cell_however_it_is_stored(make, seed):
    rng = np.random.default_rng(seed)
    dense = rng.poisson(2.0, (6, 5)).astype(np.float64)
    dense[rng.integers(6), rng.integers(5)] = 7.5  # there is one in any case
    block = make(dense)
    values = values_of(block)
    wrong = values > 3
    i, j = np.argwhere(dense > 3)[0]
    rows, columns = np.array([3, 5, 10, 11, 40, 41]), range(20, 25)
    where, value = first_entry(block, wrong, rows, columns)
    assert where == f"cell {rows[i]}, gene {columns[j]}"
    assert value == str(dense[i, j])


def test_names_are_given_with_positions():
    block = np.array([[0, 1], [9, 0]])
    where, value = first_entry(block, block == 9, range(2, 4), range(1, 3), list("abcd"), ["x", "y", "z"])
    assert (where, value) == ("cell 'd' (row 3), gene 'y' (column 1)", "9")
