"""A plan makes layers and draws of what was found, with everything else as it was."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

from sccountsdiff.model.engine import FilledBlock
from sccountsdiff.model.plan import Plan
from sccountsdiff.model.results import result_layers

INT, FLOAT = np.dtype(np.int64), np.dtype(np.float32)
COUNTS = np.array([[5, 6, 7], [8, 9, 0]])
SITES = np.array([[True, False], [True, True]])
"""Of the genes of the model, which are the last and the first of the data."""
DRAWS = np.array([[1.0, 2.0, 3.0], [3.0, 2.0, 7.0]])


@pytest.fixture
def plan():
    """Return a function that makes a plan for two draws of two cells."""

    def _plan(counts=COUNTS, columns=np.array([2, 0]), **changed):
        source = SimpleNamespace(counts=counts, columns=columns, in_order=len(columns) == 3)
        layers = result_layers(2, [0.5], "sample", INT, FLOAT)
        names = ("choose_sites", "n_folds", "settings", "transforms", "batch_size", "seed", "silent", "on_move")
        given = dict.fromkeys(names) | {"source": source, "rows": np.arange(2), "what": "sites", "layers": layers}
        given |= {"n_chains": 2, "draw_dtype": INT, "by_law": False, "min_value": 0.0, "fills_all": False}
        return Plan(**(given | changed))

    return _plan


def block(sites=SITES, values=DRAWS):
    return FilledBlock(0, COUNTS, sites, np.flatnonzero(sites), values)


BLOCK = block()


def test_layers_hold_what_was_found_and_the_counts_around_it(plan):
    found = plan().layers_of(BLOCK)
    np.testing.assert_array_equal(found[""], [[5, 6, 2], [5, 9, 2]])
    np.testing.assert_allclose(found["_sd"], [[0, 0, np.sqrt(2)], [np.sqrt(8), 0, 0]], rtol=1e-6)
    np.testing.assert_array_equal(found["_q0.5"], [[5, 6, 1], [3, 9, 2]])
    assert [rows.dtype for rows in found.values()] == [FLOAT, FLOAT, INT]


def test_genes_in_the_order_of_the_model_are_where_they_are(plan):
    sites = np.array([[True, False, False], [False, True, True]])
    found = plan(columns=np.arange(3)).layers_of(block(sites))
    np.testing.assert_array_equal(found[""], [[2, 6, 7], [8, 2, 5]])


def test_of_a_law_they_are_what_it_says(plan):
    mean, sd, median = np.arange(9.0).reshape(3, 3)
    found = plan(by_law=True).layers_of(block(values=np.array([mean, sd, median])))
    np.testing.assert_array_equal(found[""], [[5, 6, 0], [2, 9, 1]])
    np.testing.assert_array_equal(found["_sd"], [[0, 0, 3], [5, 0, 4]])
    np.testing.assert_array_equal(found["_q0.5"], [[5, 6, 6], [8, 9, 7]])


def test_small_values_are_zero_in_all_layers_and_counts_stay(plan):
    found = plan(min_value=3).layers_of(BLOCK)
    np.testing.assert_array_equal(found[""], [[5, 6, 0], [5, 9, 0]])
    np.testing.assert_array_equal(found["_sd"] > 0, [[False, False, False], [True, False, False]])


def test_draws_have_the_counts_around_them(plan):
    np.testing.assert_array_equal(plan().draws_of(BLOCK), [[[5, 6, 1], [3, 9, 2]], [[5, 6, 3], [7, 9, 2]]])


@pytest.mark.parametrize("fills_all", [False, True])
def test_layers_are_sparse_where_that_is_smaller(plan, fills_all):
    of_dense, of_sparse = (plan(counts, fills_all=fills_all) for counts in (COUNTS, sp.csr_matrix(COUNTS)))
    assert set(of_dense.is_sparse.values()) == {False}
    assert of_sparse.is_sparse == {"": not fills_all, "_sd": not fills_all, "_q0.5": True}
    assert of_sparse.dense_bytes == (6 * (4 + 4 + 8) if fills_all else 0)
