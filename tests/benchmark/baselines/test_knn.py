import numpy as np
import pytest
from anndata import AnnData
from sklearn.neighbors import NearestNeighbors

from sccountsdiff.benchmark.baselines import GeneMean, KNNMean, ScaledGeneMean


@pytest.fixture(scope="module")
def cells():
    rng = np.random.default_rng(0)
    kind = rng.integers(3, size=150)
    profiles = rng.gamma(1, 4, (3, 30))
    return AnnData(rng.poisson(profiles[kind] * rng.gamma(8, 1 / 8, (150, 1))).astype(np.float64))


def test_neighbours_agree_with_scikit_learn(cells):
    """With the same genes hidden in all cells, they are the neighbours in the space of the others."""
    sites = np.zeros((50, 30), dtype=bool)
    sites[:, 20:] = True
    method = KNNMean(n_neighbors=7, pseudo_count=0).fit(cells[:100])
    answer = method.impute(cells[100:], sites)

    train, test = cells.X[:100], cells.X[100:]
    mean = train.mean(axis=0)
    train_profiles = train / (train.sum(axis=1, keepdims=True) / mean.sum())
    test_profiles = test[:, :20] / (test[:, :20].sum(axis=1, keepdims=True) / mean[:20].sum())
    nearest = (
        NearestNeighbors(n_neighbors=7).fit(np.log1p(train_profiles[:, :20])).kneighbors(np.log1p(test_profiles))[1]
    )
    expected = train_profiles[nearest].mean(axis=1)
    expected *= test[:, :20].sum(axis=1, keepdims=True) / expected[:, :20].sum(axis=1, keepdims=True)
    np.testing.assert_allclose(answer[:, 20:], expected[:, 20:])


def test_finds_types_that_the_mean_does_not_know(cells):
    sites = np.random.default_rng(1).random((50, 30)) < 0.5
    truth = cells.X[100:]
    errors = [
        np.sqrt(np.mean((method.fit(cells[:100]).impute(cells[100:], sites) - truth)[sites] ** 2))
        for method in (KNNMean(n_neighbors=10), ScaledGeneMean())
    ]
    assert errors[0] < 0.8 * errors[1]


def test_all_training_cells_as_neighbours_and_nothing_observed(cells):
    sites = np.ones((50, 30), dtype=bool)
    hidden = KNNMean().fit(cells[:100]).impute(cells[100:], sites)
    np.testing.assert_allclose(hidden, GeneMean().fit(cells[:100]).impute(cells[100:], sites))
    sites[:, 0] = False
    assert np.isfinite(KNNMean(n_neighbors=1000, batch_size=7).fit(cells[:100]).impute(cells[100:], sites)).all()
    with pytest.raises(ValueError, match="n_neighbors"):
        KNNMean(n_neighbors=0).fit(cells)
