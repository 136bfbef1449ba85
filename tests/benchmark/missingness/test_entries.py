"""Single entries are hidden as the patterns say."""

import numpy as np
import pytest
from scipy import sparse

from sccountsdiff.benchmark.missingness import (
    MAR,
    MCAR,
    MNARHigh,
    MNARLow,
    valid_sites,
)


def test_mcar_rate_and_independence(counts):
    sites = MCAR(0.3)(counts)
    n = counts.size
    assert abs(sites.mean() - 0.3) < 4 * np.sqrt(0.3 * 0.7 / n)
    difference = counts[sites].mean() - counts[~sites].mean()
    assert abs(difference) < 4 * counts.std() / np.sqrt(0.3 * 0.7 * n)
    assert not MCAR(0)(counts).any() and MCAR(1)(counts).all()


def test_mar_takes_shares_of_genes_from_shares_of_cells():
    sites = MAR()(np.ones((1000, 200)))
    per_cell = sites.sum(axis=1)
    assert {int(k): int((per_cell == k).sum()) for k in np.unique(per_cell)} == {0: 450, 20: 300, 50: 200, 80: 50}
    assert sites.mean() == pytest.approx(0.1)
    # nested: the genes lost by a lightly hit cell are lost by every harder hit one
    light, hard = sites[per_cell == 20], sites[per_cell == 80]
    assert (light == light[0]).all() and (hard == hard[0]).all() and not (light[0] & ~hard[0]).any()
    one = MAR(row_share=0.5, column_share=0.5)(np.ones((10, 10)))
    assert one.sum() == 25


@pytest.mark.parametrize("pattern", [MNARLow, MNARHigh])
@pytest.mark.parametrize("rate", [0.0, 0.1, 0.25, 0.77, 1.0])
def test_mnar_takes_exactly_the_stated_number_of_each_gene(pattern, rate, counts, valid):
    sites = pattern(rate=rate)(counts, valid=valid)
    np.testing.assert_array_equal(sites.sum(axis=0), np.floor(rate * valid.sum(axis=0)))


def test_mnar_is_biased_as_stated(counts, valid):
    low, high = MNARLow()(counts, valid=valid), MNARHigh()(counts, valid=valid)
    for gene in range(counts.shape[1]):
        x, v = counts[:, gene], valid[:, gene]
        lowest, highest = np.sort(x[v]), np.sort(x[v])[::-1]
        n_window = low[:, gene].sum() + int(np.ceil(0.1 * v.sum()))
        assert x[low[:, gene]].max() <= lowest[n_window - 1] and x[high[:, gene]].min() >= highest[n_window - 1]
        assert x[low[:, gene]].mean() < x[v].mean() < x[high[:, gene]].mean()
    # Without slack exactly the lowest go.
    exact = MNARLow(rate=0.25, slack=0)(counts, valid=valid)
    for gene in range(counts.shape[1]):
        x, v = counts[:, gene], valid[:, gene]
        np.testing.assert_array_equal(np.sort(x[exact[:, gene]]), np.sort(x[v])[: exact[:, gene].sum()])


def test_mnar_breaks_ties_at_random():
    """All values the same: no cell is more likely than another."""
    counts = np.zeros((40, 5000))
    share = MNARLow(rate=0.25, slack=0)(counts).mean(axis=1)
    assert np.abs(share - 0.25).max() < 5 * np.sqrt(0.25 * 0.75 / 5000)
    unsigned = np.array([[0], [3], [2]], dtype=np.uint8)
    assert MNARHigh(rate=0.4, slack=0)(unsigned).ravel().tolist() == [False, True, False]


def test_algorithm_1_on_a_table_made_by_hand():
    counts = np.array(
        [
            # gene 0: in a and b; gene 1: in b only; gene 2: nowhere
            [1, 0, 0],  # a
            [0, 0, 0],  # a
            [0, 4, 0],  # b
            [2, 0, 0],  # b
            [0, 0, 0],  # c
        ]
    )
    expected = np.array([[1, 1, 1], [0, 1, 1], [0, 1, 1], [1, 0, 1], [1, 1, 1]], dtype=bool)
    labels = ["a", "a", "b", "b", "c"]
    np.testing.assert_array_equal(valid_sites(counts, labels), expected)
    np.testing.assert_array_equal(valid_sites(sparse.csr_matrix(counts), labels), expected)
    with pytest.raises(ValueError, match="labels"):
        valid_sites(counts, ["a"])


def test_a_window_is_a_number_of_cells():
    """As in the paper's code: what is hidden lies among the lowest floor(rate n) + window counts, all of which may be."""
    counts = np.random.default_rng(0).permutation(400)[:, None]
    chosen = np.concatenate([counts[MNARLow(rate=0.25, window=20)(counts, seed=seed)] for seed in range(200)])
    assert len(chosen) == 200 * 100 and set(chosen) == set(range(120))
    share = np.bincount(chosen) / 200
    np.testing.assert_allclose(share, 100 / 120, atol=5 * np.sqrt(100 / 120 * 20 / 120 / 200))
    assert (MNARLow(rate=0.25, window=0)(counts) == MNARLow(rate=0.25, slack=0)(counts)).all()
