import numpy as np
import pytest
from anndata import AnnData
from sklearn.decomposition import PCA
from sklearn.metrics.pairwise import pairwise_distances

from sccountsdiff.benchmark.baselines.knn_smoothing import KNNSmoothing, aggregation


@pytest.fixture(scope="module")
def counts():
    rng = np.random.default_rng(0)
    rates = rng.dirichlet(np.full(4, 0.3), 120) @ rng.gamma(0.5, 6.0, (4, 40))
    return rng.poisson(rates * rng.gamma(8, 1 / 8, (120, 1))) + (np.arange(40) == 0.0)


@pytest.mark.parametrize("n_neighbors", [1, 2, 5, 16, 24])
def test_steps_of_the_original(counts, n_neighbors):
    """The published algorithm with all distances and a loop over cells; noise is drawn from the same stream."""
    rng, smooth, n_members = np.random.default_rng(0), counts, 1
    while n_members < n_neighbors:
        n_members = min(2 * n_members, n_neighbors)
        total = smooth.sum(axis=1, keepdims=True)
        scaled = smooth * np.median(total) / total
        pca = PCA(10, svd_solver="randomized", random_state=0)
        scores = pca.fit_transform(np.sqrt(scaled) + np.sqrt(scaled + 1))
        scores += 0.03 * np.ptp(scores, axis=0) * (rng.random(scores.shape) - 0.5)
        nearest = np.argsort(pairwise_distances(scores), axis=1)[:, :n_members]
        smooth = np.stack([counts[row].sum(axis=0) for row in nearest])
    members = aggregation(counts, counts.sum(axis=1, keepdims=True), n_neighbors)
    np.testing.assert_allclose(members @ counts, smooth)


def test_each_cell_is_one_of_those_added_up(counts):
    members = aggregation(counts, counts.sum(axis=1, keepdims=True), n_neighbors=11)
    assert set(members.data) == {1.0}
    np.testing.assert_array_equal(members.sum(axis=1), 11)
    np.testing.assert_array_equal(members.diagonal(), 1)


def test_answers_are_at_the_depth_of_the_cell():
    profile = np.array([4.0, 8.0, 12.0, 16.0])
    train = AnnData(np.outer(np.arange(1, 31), profile))
    test = AnnData(np.outer([3, 50], profile))
    sites = np.zeros((2, 4), dtype=bool)
    sites[:, 3] = True
    answer = KNNSmoothing(n_neighbors=32, pseudo_count=0).fit(train).impute(test, sites)
    # All cells are added up: 465 times the profile of the training cells, and what is shown of the test cells.
    total = 465 * profile + 53 * profile * (np.arange(4) < 3)
    np.testing.assert_allclose(answer[:, 3], np.array([3, 50]) * total[3] * profile[:3].sum() / total[:3].sum())
    average = KNNSmoothing(n_neighbors=32, pseudo_count=1e9).fit(train).impute(test, sites)  # depths count for nothing
    np.testing.assert_allclose(average[:, 3], total[3] / 32, rtol=1e-5)


def test_beats_the_mean_of_the_gene(low_rank):
    errors = [low_rank.rmse(KNNSmoothing(n_neighbors=k)) for k in (16, 1)]
    assert errors[0] < 0.8 * low_rank.rmse_of_gene_mean
    assert errors[0] < 0.8 * errors[1]


def test_few_cells_silent_genes_and_nothing_observed(low_rank):
    train = low_rank.train[:2].copy()
    train.X[:, 0] = 0
    test, sites = low_rank.test[:1], low_rank.sites[:1].copy()
    sites[0, 0] = True
    method = KNNSmoothing().fit(train)
    assert method.impute(test, sites)[0, 0] == 0
    np.testing.assert_allclose(method.impute(test, np.ones_like(sites)), train.X.mean(axis=0)[None], rtol=1e-5)
    nothing = AnnData(np.zeros((5, 4)))
    assert (KNNSmoothing(pseudo_count=0).fit(nothing).impute(nothing, np.eye(5, 4, dtype=bool)) == 0).all()
    with pytest.raises(ValueError, match="`n_neighbors` must be a whole number of at least 1"):
        KNNSmoothing(n_neighbors=0).fit(train)
