import numpy as np
import pytest
from anndata import AnnData
from sklearn.impute import KNNImputer

from sccountsdiff.benchmark.baselines.sklearn_imputers import SklearnIterative, SklearnKNN

METHODS = [SklearnIterative(n_nearest_features=10, max_iter=3), SklearnKNN()]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_beats_the_mean_of_the_gene(low_rank, method):
    assert low_rank.rmse(method) < 0.7 * low_rank.rmse_of_gene_mean


def test_nearest_cells_are_those_of_the_library(low_rank):
    """The same numbers from the library itself, after normalisation by hand."""
    sites = np.zeros(low_rank.test.shape, dtype=bool)
    sites[:, 40:] = True
    train, test = low_rank.train.X.astype(float), low_rank.test.X.astype(float)
    mean = train.mean(axis=0)
    train_depth = train.sum(axis=1, keepdims=True) / mean.sum()
    test_depth = test[:, :40].sum(axis=1, keepdims=True) / mean[:40].sum()
    gaps = np.where(sites, np.nan, np.log1p(test / test_depth))
    expected = np.expm1(KNNImputer(n_neighbors=7).fit(np.log1p(train / train_depth)).transform(gaps)) * test_depth
    answer = SklearnKNN(n_neighbors=7, pseudo_count=0).fit(low_rank.train).impute(low_rank.test, sites)
    np.testing.assert_allclose(answer[:, 40:], expected[:, 40:], rtol=1e-4)


def test_regression_finds_a_linear_law_and_undoes_the_transforms():
    """The log of the last gene is a sum of those of two others; all cells are of one depth."""
    rng = np.random.default_rng(0)
    logs = rng.uniform(1, 2, (200, 2))
    counts = np.expm1(np.column_stack([logs, 0.5 * logs.sum(axis=1)]))
    counts = np.column_stack([counts, 30 - counts.sum(axis=1)])  # the same total everywhere
    sites = np.zeros((50, 4), dtype=bool)
    sites[:, 2] = True
    method = SklearnIterative(n_nearest_features=None, pseudo_count=1e9)  # a huge one: all depths are one
    answer = method.fit(AnnData(counts[:150])).impute(AnnData(counts[150:]), sites)
    np.testing.assert_allclose(answer[:, 2], counts[150:, 2], rtol=0.02)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_entries_that_are_missing_are_not_learned_from(low_rank, method):
    train, test, sites = low_rank.train[:80, :12].copy(), low_rank.test[:20, :12], low_rank.sites[:20, :12]
    observed = np.random.default_rng(1).random(train.shape) < 0.8
    spoiled = train.copy()
    spoiled.X[~observed] = 1000
    shown = np.random.default_rng(2).random(sites.shape) < 0.9
    answer = method.fit(train, observed=observed).impute(test, sites, observed=shown)
    np.testing.assert_array_equal(method.fit(spoiled, observed=observed).impute(test, sites, observed=shown), answer)
    assert np.abs(method.fit(train).impute(test, sites) - answer).max() > 0


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_few_cells_silent_genes_and_nothing_observed(low_rank, method):
    train = low_rank.train[:3, :12].copy()
    train.X[:, 0] = 0
    test, sites = low_rank.test[:1, :12].copy(), low_rank.sites[:1, :12].copy()
    sites[0, 0] = True
    method.fit(train)
    np.testing.assert_allclose(method.impute(test, sites)[0, 0], 0, atol=1e-6)
    np.testing.assert_allclose(method.impute(test, np.ones_like(sites)), train.X.mean(axis=0)[None], rtol=1e-5)


def test_regression_does_not_explode():
    """Linear in the log is exponential in the count; answers stay below twice what was seen, plus one."""
    rng = np.random.default_rng(0)
    logs = rng.uniform(1, 2, (60, 1)) * np.array([1.0, 3.0])
    train = AnnData(np.expm1(logs))
    test = AnnData(np.array([[1000.0, 0.0]]))
    method = SklearnIterative(n_nearest_features=None, pseudo_count=1e9)
    answer = method.fit(train).impute(test, np.array([[False, True]]))[0, 1]
    assert train.X[:, 1].max() < answer < 2 * train.X[:, 1].max() + 1.01
