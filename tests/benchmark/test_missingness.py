"""Patterns hide what they say, and nothing else."""

import numpy as np
import pytest
from scipy import sparse

from sccountsdiff.benchmark.missingness import (
    MAR,
    MCAR,
    MISSINGNESS,
    CorrelatedPanel,
    MNARHigh,
    MNARLow,
    Modality,
    Panel,
    get_missingness,
    split_molecules,
    valid_sites,
)


@pytest.fixture(scope="module")
def counts():
    rng = np.random.default_rng(0)
    return rng.negative_binomial(1, 0.2, (403, 17))


@pytest.fixture(scope="module")
def valid(counts):
    return np.random.default_rng(1).random(counts.shape) < 0.7


@pytest.mark.parametrize("name", ["mcar", "mar", "mnar_low", "mnar_high", "panel", "panel_correlated"])
def test_seeded_valid_and_the_same_for_sparse_counts(name, counts, valid):
    pattern = get_missingness(name)()
    sites = pattern(counts, valid=valid, seed=3)
    assert sites.dtype == bool and sites.shape == counts.shape
    assert sites.any() and not (sites & ~valid).any()
    np.testing.assert_array_equal(sites, pattern(sparse.csr_matrix(counts), valid=valid, seed=3))
    assert (sites != pattern(counts, valid=valid, seed=4)).any()


@pytest.mark.parametrize("kind", [Panel, CorrelatedPanel])
def test_a_panel_lacks_whole_genes_and_each_batch_others(kind, counts):
    sites = kind(0.3, group_size=2)(counts)
    assert (sites == sites[0]).all() and sites[0].sum() == round(0.3 * counts.shape[1])
    batches = np.array(["a", "b", "c"])[np.arange(len(counts)) % 3]
    sites = kind(0.3, group_size=2)(counts, cell_groups=batches)
    panels = [sites[batches == batch] for batch in "abc"]
    assert all((panel == panel[0]).all() and panel[0].sum() == 5 for panel in panels)
    assert len({panel[0].tobytes() for panel in panels}) > 1
    assert not kind(0)(counts).any() and kind(1)(counts).all()


def test_a_correlated_panel_lacks_genes_that_go_together():
    """Ten groups of five genes that share a factor: what is hidden are whole groups, of which nothing is left."""
    rng = np.random.default_rng(0)
    factors = np.repeat(rng.gamma(1, 5, (300, 10)), 5, axis=1)
    order = rng.permutation(50)
    counts = rng.poisson(factors)[:, order]
    hidden = Panel(0.4, by="correlation", group_size=5)(counts, seed=1)[0]
    per_group = np.bincount((order // 5)[hidden], minlength=10)
    assert sorted(per_group) == [0] * 6 + [5] * 4
    assert 0 < np.bincount((order // 5)[Panel(0.4)(counts, seed=1)[0]], minlength=10).max() < 5
    silent = np.zeros((4, 6))
    assert CorrelatedPanel(0.5)(silent)[0].sum() == 3, (
        "genes without any count have no correlation, and are hidden as others"
    )


def test_a_modality_is_all_of_its_genes(counts):
    groups = np.array(["rna"] * 10 + ["protein"] * 7)
    for pattern in (Modality("protein"), Modality()):
        sites = pattern(counts, gene_groups=groups)
        assert sites[:, 10:].all() and not sites[:, :10].any()
    assert Modality("rna")(counts, gene_groups=groups, valid=counts > 0).sum() == (counts[:, :10] > 0).sum()
    three = [*groups[:16], "hashtag"]
    assert Modality("hashtag")(counts, gene_groups=three)[0].sum() == 1
    for pattern, given in (
        (Modality(), three),
        (Modality("atac"), groups),
        (Modality(), ["rna"] * 17),
        (Modality(), None),
    ):
        with pytest.raises(ValueError, match="missingness 'modality' needs"):
            pattern(counts, gene_groups=given)


def test_groups_change_nothing_for_other_patterns(counts):
    groups = {"cell_groups": np.arange(len(counts)), "gene_groups": np.arange(counts.shape[1])}
    for name in ("mcar", "mar", "mnar_low", "mnar_high"):
        pattern = get_missingness(name)()
        np.testing.assert_array_equal(pattern(counts, seed=2), pattern(counts, seed=2, **groups))


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


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, sparse.csc_matrix, sparse.csr_array])
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_molecules_add_up(kind, dtype, counts):
    matrix = kind(counts.astype(dtype))
    seen, held_out = split_molecules(matrix, share=0.9, seed=2)
    assert seen.dtype == held_out.dtype == dtype
    dense = [m.toarray() if sparse.issparse(m) else m for m in (seen, held_out)]
    np.testing.assert_array_equal(sum(dense), counts)
    assert min(d.min() for d in dense) >= 0
    np.testing.assert_array_equal(matrix.toarray() if sparse.issparse(matrix) else matrix, counts)


def test_molecule_moments():
    """Poisson counts split into independent Poisson counts."""
    counts = np.random.default_rng(0).poisson(5, 200_000).reshape(-1, 10)
    seen, held_out = split_molecules(counts, share=0.8)
    for part, mean in ((seen, 4), (held_out, 1)):
        assert abs(part.mean() - mean) < 4 * np.sqrt(mean / counts.size)
        assert abs(part.var() - mean) < 4 * np.sqrt((mean + 2 * mean**2) / counts.size)
    assert abs(np.corrcoef(seen.ravel(), held_out.ravel())[0, 1]) < 4 / np.sqrt(counts.size)


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


def test_a_window_is_a_number_of_cells():
    """As in the paper's code: what is hidden lies among the lowest floor(rate n) + window counts, all of which may be."""
    counts = np.random.default_rng(0).permutation(400)[:, None]
    chosen = np.concatenate([counts[MNARLow(rate=0.25, window=20)(counts, seed=seed)] for seed in range(200)])
    assert len(chosen) == 200 * 100 and set(chosen) == set(range(120))
    share = np.bincount(chosen) / 200
    np.testing.assert_allclose(share, 100 / 120, atol=5 * np.sqrt(100 / 120 * 20 / 120 / 200))
    assert (MNARLow(rate=0.25, window=0)(counts) == MNARLow(rate=0.25, slack=0)(counts)).all()
