from pathlib import Path

import numpy as np
import pytest

from sccountsdiff.benchmark.baselines.magic import MAGIC, diffusion_operator, magic_smooth

REFERENCE = Path(__file__).parent / "data" / "magic_reference.npz"
SETTINGS = {  # those of data/make_magic_reference.py, in our words
    "default": {},
    "components": {"n_neighbors": 8, "decay": 2, "t": 2, "n_pca": 20},
    "wide": {"n_neighbors": 4, "max_neighbors": 40, "t": 5},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_agrees_with_the_package_of_the_authors(name):
    with np.load(REFERENCE) as stored:
        data, expected = stored["data"].astype(float), stored[name]
    answer = magic_smooth(data, **SETTINGS[name])
    assert np.corrcoef(answer.ravel(), expected.ravel())[0, 1] > 0.999
    assert (np.abs(answer - expected) <= 0.01 * np.ptp(expected, axis=0)).all()
    assert np.abs(expected - data).max() > 0.5, "the package did not just hand back its input"


def test_the_kernel_in_a_case_by_hand():
    """Cells at 0, 1, 3: the nearest neighbours, which set the bandwidths, are 1, 1 and 2 away."""
    affinity = np.exp(-np.array([[0, 1, 3], [1, 0, 2], [3 / 2, 1, 0]]))
    kernel = affinity + affinity.T
    operator = diffusion_operator(np.array([[0.0], [1.0], [3.0]]), n_neighbors=1)
    np.testing.assert_allclose(operator.toarray(), kernel / kernel.sum(axis=1, keepdims=True))
    narrow = diffusion_operator(np.array([[0.0], [1.0], [3.0]]), n_neighbors=1, threshold=np.exp(-1.2)).toarray()
    assert narrow[0, 2] == 0 and narrow[1, 2] > 0


def test_a_walk_between_cells():
    rng = np.random.default_rng(0)
    data = rng.normal(size=(50, 4))
    operator = diffusion_operator(data, n_neighbors=3)
    np.testing.assert_allclose(operator.sum(axis=1), 1)
    np.testing.assert_allclose(magic_smooth(data, 3, t=2), operator @ (operator @ data))
    np.testing.assert_array_equal(magic_smooth(data, 3, t=0), data)
    apart = np.concatenate([data[:25], data[25:] + 1e6])  # nothing flows between groups that are far apart
    np.testing.assert_allclose(magic_smooth(apart, 3)[:25], magic_smooth(data[:25], 3))
    copies = diffusion_operator(np.zeros((30, 4)), n_neighbors=3)  # a bandwidth of zero
    np.testing.assert_allclose(copies.sum(axis=1), 1)


def test_transforms_are_undone(low_rank):
    """Normalisation and depth by hand: the smoothed cell has the observed total where it is observed."""
    shown = np.concatenate([low_rank.train.X, np.where(low_rank.sites, 0, low_rank.test.X)]).astype(float)
    mean_depth = low_rank.train.X.sum(axis=1).mean()
    expected = magic_smooth(np.sqrt(shown / shown.sum(axis=1, keepdims=True) * mean_depth), 5)[200:] ** 2
    observed = np.where(low_rank.sites, 0, expected).sum(axis=1, keepdims=True)
    expected *= shown[200:].sum(axis=1, keepdims=True) / observed
    answer = MAGIC(n_neighbors=5, pseudo_count=0).fit(low_rank.train).impute(low_rank.test, low_rank.sites)
    np.testing.assert_allclose(answer[low_rank.sites], expected[low_rank.sites], rtol=1e-3, atol=1e-3)


def test_beats_the_mean_of_the_gene(low_rank):
    method = MAGIC()
    assert low_rank.rmse(method) < 0.8 * low_rank.rmse_of_gene_mean
    errors = {k: low_rank.rmse(MAGIC(n_neighbors=k)) for k in (1, method.best_n_neighbors)}
    assert errors[method.best_n_neighbors] < errors[1], "the choice is better than hardly any smoothing"


def test_the_number_of_neighbours_is_chosen_or_given(low_rank):
    assert MAGIC(candidates=(1, 20)).fit(low_rank.train).best_n_neighbors == 20
    assert MAGIC(candidates=(20, 1)).fit(low_rank.train).best_n_neighbors == 20
    assert MAGIC(n_neighbors=7).fit(low_rank.train).best_n_neighbors == 7
    for wrong in ({"candidates": ()}, {"candidates": (5, 0)}, {"n_neighbors": 0}):
        with pytest.raises(ValueError, match="must be at least 1, found"):
            MAGIC(**wrong).fit(low_rank.train)


@pytest.mark.parametrize("n_train", [1, 2, 30])
def test_few_cells_silent_genes_and_nothing_observed(low_rank, n_train):
    train = low_rank.train[:n_train].copy()
    train.X[:, 0] = 0
    test, sites = low_rank.test[:1].copy(), low_rank.sites[:1].copy()
    sites[0, 0] = True
    method = MAGIC().fit(train)
    assert method.impute(test, sites)[0, 0] == 0
    np.testing.assert_allclose(method.impute(test, np.ones_like(sites)), train.X.mean(axis=0)[None], rtol=1e-5)
