import numpy as np
import pytest
from anndata import AnnData

from sccountsdiff.benchmark.baselines.alra import ALRA, alra_complete, choose_rank


@pytest.fixture(scope="module")
def expressed():
    """Three groups of cells that express half of the genes each, some of them in common."""
    programs = np.array([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]], dtype=bool)
    return np.kron(programs, np.ones((100, 10), dtype=bool))


@pytest.fixture(scope="module")
def data(expressed):
    """Log counts of these cells, and a stray count in each group."""
    rng = np.random.default_rng(0)
    rates = expressed * 4.0 * rng.gamma(20, 1 / 20, (300, 1))
    counts = rng.poisson(rates).astype(float)
    counts[[0, 100, 200], [-1, 0, 0]] = 1
    return np.log1p(counts)


def test_rank_is_the_last_gap_that_stands_out():
    rng = np.random.default_rng(1)
    left, right = (np.linalg.qr(rng.normal(size=(n, 120)))[0] for n in (150, 120))
    values = np.linspace(10, 1, 120) + rng.uniform(0, 0.01, 120)
    for rank in (1, 4, 9):
        spectrum = values + np.where(np.arange(120) < rank, 30.0, 0.0)
        assert choose_rank(left * spectrum @ right.T) == rank
    assert choose_rank(left * np.linspace(10, 1, 120) @ right.T) == 1
    for tiny in (np.ones((1, 1)), np.ones((2, 5)), np.zeros((6, 6)), rng.random((9, 5))):
        assert 1 <= choose_rank(tiny) <= 5


def test_gaps_are_measured_in_standard_deviations_of_the_noise():
    """Noise gaps are 0.9 and 1.1 in turns; a gap on either side of the limit is, or is not, part of the signal."""
    gaps = np.where(np.arange(99) % 2, 1.1, 0.9)
    noise = gaps[78:]  # from the 80th of 100 singular values on
    limit = noise.mean() + 6 * noise.std(ddof=1)
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(100, 100)))[0]
    for gap, rank in ((0.998 * limit, 1), (1.002 * limit, 6)):
        gaps[0], gaps[5] = 50, gap
        assert choose_rank(np.append(np.cumsum(gaps[::-1])[::-1], 0) * rotation) == rank


def test_completion_gene_by_gene(data):
    """The steps of the authors' R script, one gene at a time, on an exact decomposition."""
    left, values, right = np.linalg.svd(data, full_matrices=False)
    answer = alra_complete(data, rank=3)
    for gene in range(data.shape[1]):
        x, low_rank = data[:, gene], (left[:, :3] * values[:3]) @ right[:3, gene]
        kept = low_rank > abs(np.quantile(low_rank, 0.001))
        scaled = (low_rank - low_rank[kept].mean()) / low_rank[kept].std(ddof=1) * x[x > 0].std(ddof=1) + x[
            x > 0
        ].mean()
        expected = np.where(kept, np.clip(scaled, 0, None), 0)
        expected = np.where((expected == 0) & (x > 0), x, expected)
        np.testing.assert_allclose(answer[:, gene], expected, atol=1e-6)


def test_zeros_are_given_back_and_only_they(data, expressed):
    """Dropouts are filled in; genes that a group of cells does not express, or no cell at all, stay at zero."""
    dropped = data * (np.random.default_rng(2).random(data.shape) < 0.7)
    answer = alra_complete(np.hstack([dropped, np.zeros((len(data), 1))]), rank=3)
    assert (answer >= 0).all() and (answer[:, -1] == 0).all()
    answer = answer[:, :-1]
    assert np.mean(answer[~expressed & (dropped == 0)] == 0) > 0.95
    assert np.mean(answer[expressed & (dropped == 0)] > 0) > 0.95


def test_transforms_are_undone(low_rank):
    """Normalisation and depth by hand: the completed cell has the observed total where it is observed."""
    shown = np.concatenate([low_rank.train.X, np.where(low_rank.sites, 0, low_rank.test.X)]).astype(float)
    completed = alra_complete(np.log1p(shown / shown.sum(axis=1, keepdims=True) * 1e4), rank=3)
    expected = np.expm1(completed)[200:]
    observed = np.where(low_rank.sites, 0, expected).sum(axis=1, keepdims=True)
    expected *= shown[200:].sum(axis=1, keepdims=True) / observed
    answer = ALRA(rank=3, pseudo_count=0).fit(low_rank.train).impute(low_rank.test, low_rank.sites)
    np.testing.assert_allclose(answer[low_rank.sites], expected[low_rank.sites], rtol=1e-3, atol=1e-3)


def test_a_large_pseudo_count_makes_every_cell_an_average_one(low_rank):
    shown = np.concatenate([low_rank.train.X, np.where(low_rank.sites, 0, low_rank.test.X)]).astype(float)
    scale = 1e4 / low_rank.train.X.sum(axis=1).mean()
    expected = np.expm1(alra_complete(np.log1p(shown * scale), rank=3))[200:] / scale
    answer = ALRA(rank=3, pseudo_count=1e9).fit(low_rank.train).impute(low_rank.test, low_rank.sites)
    np.testing.assert_allclose(answer[low_rank.sites], expected[low_rank.sites], rtol=1e-3, atol=1e-3)


def test_beats_the_mean_of_the_gene(low_rank):
    method = ALRA()
    assert low_rank.rmse(method) < low_rank.rmse_of_gene_mean
    assert 2 <= method.best_rank <= 5, "the rates are of rank 3"


def test_silent_genes_few_cells_and_wrong_ranks(low_rank):
    train = low_rank.train[:2].copy()
    train.X[:, 0] = 0
    test = low_rank.test[:1].copy()
    test.X[:, 0] = 0
    sites = low_rank.sites[:1].copy()
    sites[0, 0] = True
    method = ALRA().fit(train)
    assert method.impute(test, sites)[0, 0] == 0
    np.testing.assert_allclose(method.impute(test, np.ones_like(sites)), train.X.mean(axis=0)[None], rtol=1e-5)
    nothing = AnnData(np.zeros((5, 4)))
    assert (ALRA().fit(nothing).impute(nothing, np.eye(5, 4, dtype=bool)) == 0).all()
    for rank in (0, 51):
        with pytest.raises(ValueError, match="rank must be between"):
            ALRA(rank=rank).fit(train)
