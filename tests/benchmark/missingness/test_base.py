"""Patterns are seeded, hide valid entries only, and check their arguments."""

import numpy as np
import pytest
from scipy import sparse

from sccountsdiff.benchmark.missingness import (
    MAR,
    MCAR,
    MISSINGNESS,
    MNARHigh,
    MNARLow,
    Panel,
    get_missingness,
    split_molecules,
)


@pytest.mark.parametrize("name", ["mcar", "mar", "mnar_low", "mnar_high", "panel", "panel_correlated"])
def test_seeded_valid_and_the_same_for_sparse_counts(name, counts, valid):
    pattern = get_missingness(name)()
    sites = pattern(counts, valid=valid, seed=3)
    assert sites.dtype == bool and sites.shape == counts.shape
    assert sites.any() and not (sites & ~valid).any()
    np.testing.assert_array_equal(sites, pattern(sparse.csr_matrix(counts), valid=valid, seed=3))
    assert (sites != pattern(counts, valid=valid, seed=4)).any()


def test_groups_change_nothing_for_other_patterns(counts):
    groups = {"cell_groups": np.arange(len(counts)), "gene_groups": np.arange(counts.shape[1])}
    for name in ("mcar", "mar", "mnar_low", "mnar_high"):
        pattern = get_missingness(name)()
        np.testing.assert_array_equal(pattern(counts, seed=2), pattern(counts, seed=2, **groups))


def test_arguments_are_checked(counts, valid):
    for call in (
        lambda: MCAR(1.5),
        lambda: MNARLow(rate=-0.1),
        lambda: MNARHigh(slack=2),
        lambda: MNARLow(window=-1),
        lambda: MAR(row_share=(0.6, 0.6), column_share=(0.1, 0.1)),
        lambda: MAR(row_share=0.5, column_share=(0.1, 0.1)),
        lambda: MCAR()(counts, valid=valid[:3]),
        lambda: MCAR()(counts, valid=counts),
        lambda: MCAR()(counts[0]),
        lambda: Panel(2),
        lambda: Panel(by="name"),
        lambda: Panel(group_size=0),
        lambda: split_molecules(counts, share=1.0),
        lambda: split_molecules(counts + 0.5),
        lambda: split_molecules(counts - 100),
    ):
        with pytest.raises(ValueError, match="must be"):
            call()
    with pytest.raises(ValueError, match="cell_groups must have one entry for each of 403, found 2"):
        Panel()(counts, cell_groups=["a", "b"])
    with pytest.raises(KeyError, match="did you mean 'mnar_low'"):
        get_missingness("mnar_lo")
    assert MISSINGNESS.names()[:4] == ["mcar", "mar", "mnar_low", "mnar_high"]
