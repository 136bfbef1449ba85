import numpy as np

from sccountsdiff.benchmark.baselines.depth import depth_factor


def test_exact_without_a_pseudo_count_and_only_observed_entries_count():
    counts = np.array([[6.0, 100.0, 2.0]])
    observed = np.array([[True, False, True]])
    assert depth_factor(counts, observed, np.array([1.0, 50.0, 3.0]), pseudo_count=0) == 2


def test_nothing_observed_or_nothing_expected_is_an_average_cell():
    counts, none = np.zeros((1, 2)), np.zeros((1, 2), dtype=bool)
    assert depth_factor(counts, none, np.ones(2)) == 1
    assert depth_factor(counts, ~none, np.zeros(2), pseudo_count=0) == 1
