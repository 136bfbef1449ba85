import numpy as np
import pytest
from anndata import AnnData

from sccountsdiff.benchmark.baselines import GaussianRegression, GaussianRegressionDraw, GeneMean
from sccountsdiff.benchmark.baselines.gaussian_regression import PRIOR_CELLS, conditional_moments

NO_DEPTH = {"pseudo_count": 1e12}  # so many that all cells are of one depth


def normal_values(n_cells, rng):
    """Loadings and noise of eight genes, and values of cells that follow them."""
    loadings, noise = rng.normal(size=(8, 2)), rng.uniform(0.2, 0.6, 8)
    return loadings, noise, rng.normal(size=(n_cells, 2)) @ loadings.T + rng.normal(size=(n_cells, 8)) * np.sqrt(noise)


def dense_moments(values, seen, mean, covariance):
    """Conditional mean and variance of all genes of one cell, from the covariance matrix."""
    weights = np.linalg.solve(covariance[np.ix_(seen, seen)], covariance[seen]).T
    return mean + weights @ (values - mean)[seen], np.diag(covariance) - np.sum(weights * covariance[:, seen], axis=1)


def test_the_regression_is_that_of_the_covariance_matrix():
    """With nothing, something and everything but one entry observed."""
    rng = np.random.default_rng(0)
    loadings, noise, values = normal_values(30, rng)
    observed = rng.random(values.shape) < 0.5
    observed[0], observed[1] = False, np.arange(8) > 0
    covariance = loadings @ loadings.T + np.diag(noise)
    mean, variance = conditional_moments(np.where(observed, values, 0), observed, loadings, noise)
    for i, seen in enumerate(observed):
        expected_mean, expected_variance = dense_moments(values[i], seen, np.zeros(8), covariance)
        np.testing.assert_allclose(mean[i, ~seen], expected_mean[~seen], rtol=1e-10)
        np.testing.assert_allclose(variance[i, ~seen], expected_variance[~seen], rtol=1e-10)


@pytest.mark.parametrize("transform", ["sqrt", "log"])
def test_expected_counts_are_those_of_the_true_distribution(transform):
    """Roots or logs that are normal, far from zero; the oracle knows their distribution and solves the dense system."""
    rng = np.random.default_rng(3)
    loadings, noise, values = normal_values(3100, rng)
    scale, mean = (0.4, 6.0) if transform == "sqrt" else (0.15, 3.0)
    values = mean + scale * values
    counts = values**2 if transform == "sqrt" else np.expm1(values)
    train, test = AnnData(counts[:3000]), AnnData(counts[3000:])
    sites = rng.random(test.shape) < 0.5
    answer = GaussianRegression(n_factors=2, transform=transform, **NO_DEPTH).fit(train).impute(test, sites)

    covariance = scale**2 * (loadings @ loadings.T + np.diag(noise))
    oracle = np.empty_like(answer)
    for i, hidden in enumerate(sites):
        m, v = dense_moments(values[3000 + i], ~hidden, np.full(8, mean), covariance)
        oracle[i] = m**2 + v if transform == "sqrt" else np.exp(m + v / 2) - 1
    deviation = np.std((oracle - train.X.mean(axis=0))[sites])
    assert np.sqrt(np.mean((answer - oracle)[sites] ** 2)) < 0.1 * deviation
    assert abs(np.mean((answer - oracle)[sites])) < 0.02 * deviation


def test_beats_the_mean_of_the_gene_and_uses_covariates(low_rank):
    assert low_rank.rmse(GaussianRegression()) < 0.5 * low_rank.rmse_of_gene_mean
    method = GaussianRegression(n_factors=5)
    answer = method.fit(low_rank.train).impute(low_rank.test, low_rank.sites)  # it has to find the types by itself
    error = np.sqrt(np.mean((answer - low_rank.test.X)[low_rank.sites] ** 2))
    assert low_rank.rmse(method) < error < 0.6 * low_rank.rmse_of_gene_mean


def test_batches_make_no_difference_and_observed_entries_stay(low_rank):
    answers = [
        GaussianRegression(batch_size=size).fit(low_rank.train, covariates="type").impute(low_rank.test, low_rank.sites)
        for size in (7, 10_000)
    ]
    np.testing.assert_allclose(answers[0], answers[1], rtol=1e-4)
    np.testing.assert_array_equal(answers[0][~low_rank.sites], low_rank.test.X[~low_rank.sites])


def test_answers_follow_the_depth_of_the_cell(low_rank):
    method = GaussianRegression(pseudo_count=0).fit(low_rank.train, covariates="type")
    deeper = low_rank.test.copy()
    deeper.X = 3 * deeper.X
    answer, of_deeper = (method.impute(cells, low_rank.sites)[low_rank.sites] for cells in (low_rank.test, deeper))
    np.testing.assert_allclose(of_deeper, 3 * answer, rtol=1e-5)


def test_draws_are_counts_with_the_expected_mean(low_rank):
    test, sites = low_rank.test[:5], low_rank.sites[:5]
    method = GaussianRegression().fit(low_rank.train, covariates="type")
    draws = method.impute(test, sites, n_samples=4000, seed=1)[:, sites].astype(float)
    assert (draws == draws.round()).all() and draws.min() >= 0
    error = draws.std(axis=0) / np.sqrt(len(draws))
    assert (np.abs(draws.mean(axis=0) - method.impute(test, sites)[sites]) < 4.5 * error + 1e-3).all()


def test_draws_move_genes_together():
    """Two genes with the same factor; the draws of one cell must show it."""
    rng = np.random.default_rng(4)
    values = 10 + 2 * rng.normal(size=(2000, 1)) + 0.5 * rng.normal(size=(2000, 3))
    cells = AnnData(values**2)
    method = GaussianRegression(n_factors=1, **NO_DEPTH).fit(cells)
    draws = method.impute(cells[:1], np.ones((1, 3), dtype=bool), n_samples=4000)[:, 0]
    assert np.corrcoef(np.sqrt(draws[:, 0]), np.sqrt(draws[:, 1]))[0, 1] == pytest.approx(4 / 4.25, abs=0.02)


def test_groups_of_few_cells_are_drawn_to_the_mean_of_all():
    """With nothing observed, the answer is the second moment of the roots: the mean that was learnt, at depth one."""
    roots = np.array([[1.0, 3.0]] * 40 + [[5.0, 1.0]])
    train = AnnData(roots**2, obs={"type": ["a"] * 40 + ["b"], "age": np.linspace(0, 1, 41)})
    test = AnnData(np.zeros((3, 2)), obs={"type": ["a", "b", "new"], "age": [0.1, 0.2, 0.3]})
    method = GaussianRegression(**NO_DEPTH).fit(train, covariates=["type", "age"])
    answer = method.impute(test, np.ones((3, 2), dtype=bool))
    overall = roots.mean(axis=0)
    of_single = (roots[-1] + PRIOR_CELLS * overall) / (1 + PRIOR_CELLS)
    variance = method._noise + np.sum(method._loadings**2, axis=1)
    np.testing.assert_allclose(answer[1], of_single**2 + variance)
    np.testing.assert_allclose(answer[2], overall**2 + variance)


@pytest.mark.parametrize("n_cells", [3, 200])
def test_silent_genes_and_nothing_observed(low_rank, n_cells):
    """A silent gene stays silent; without any knowledge of the cell the answer is the mean, the closer the more cells."""
    train = low_rank.train[:n_cells].copy()
    train.X[:, 0] = 0
    sites = np.ones(low_rank.test.shape, dtype=bool)
    answer = GaussianRegression(**NO_DEPTH).fit(train).impute(low_rank.test, sites)
    np.testing.assert_allclose(answer[:, 0], 0, atol=1e-6)
    expected = GeneMean().fit(train).impute(low_rank.test, sites)
    np.testing.assert_allclose(answer, expected, rtol=0.5 if n_cells == 3 else 0.05, atol=1e-6)


@pytest.mark.parametrize("transform", ["sqrt", "log"])
def test_answers_do_not_explode(transform):
    """A cell far outside of what was seen; what the regression expects there is bounded by the largest value seen."""
    rng = np.random.default_rng(5)
    logs = rng.uniform(1, 2, (100, 1)) * np.array([1.0, 3.0])
    train, test = AnnData(np.expm1(logs)), AnnData(np.array([[1e5, 0.0]]))
    method = GaussianRegression(transform=transform, **NO_DEPTH).fit(train)
    answer = method.impute(test, np.array([[False, True]]))[0, 1]
    assert 0.9 * train.X[:, 1].max() < answer < 2 * train.X[:, 1].max()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_factors": 0}, "`n_factors` must be a whole number of at least 1"),
        ({"n_rounds": 0}, "`n_rounds` must be a whole number of at least 1"),
        ({"batch_size": 0}, "`batch_size` must be a whole number of at least 1"),
        ({"transform": "square"}, "`transform` must be 'sqrt' or 'log'"),
    ],
)
def test_settings_are_checked(low_rank, settings, message):
    with pytest.raises(ValueError, match=message):
        GaussianRegression(**settings).fit(low_rank.train)


def test_a_single_draw_is_the_first_of_several():
    rng = np.random.default_rng(0)
    cells = AnnData(rng.poisson(rng.gamma(2, 2, (60, 1)) * np.arange(1, 9)).astype("float32"))
    sites = rng.random(cells.shape) < 0.5
    draw = GaussianRegressionDraw(n_factors=2).fit(cells).impute(cells, sites, seed=3)
    several = GaussianRegression(n_factors=2).fit(cells).impute(cells, sites, n_samples=2, seed=3)
    np.testing.assert_array_equal(draw, several[0])
