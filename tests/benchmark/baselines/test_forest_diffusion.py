"""Forest-Diffusion: what is handed to the package, by a stand-in; and the package itself where it is installed."""

import sys
from types import ModuleType

import numpy as np
import pytest
from anndata import AnnData

from sccountsdiff.benchmark.baselines.base import Cells
from sccountsdiff.benchmark.baselines.forest_diffusion import MAX_HOURS, ForestDiffusion

SMALL = {"n_t": 20, "n_copies": 5, "n_trees": 10, "max_depth": 3, "n_resamples": 2}


class Scaler:
    """Like the package's: [0, 10] to [-1, 1]."""

    @staticmethod
    def transform(x):
        return x / 5 - 1


class StandIn:
    """Remembers what it was given; fills in 7 everywhere."""

    def __init__(self, table, **settings):
        self.table, self.settings, self.scaler = table, settings, Scaler()

    def impute(self, k, X, **settings):
        self.shown, self.impute_settings = X, settings
        answer = np.full((k, *X.shape), 7.0)
        return answer[0] if k == 1 else answer


@pytest.fixture
def package(monkeypatch):
    module = ModuleType("ForestDiffusion")
    module.ForestDiffusionModel = StandIn
    monkeypatch.setitem(sys.modules, "ForestDiffusion", module)
    monkeypatch.setattr(ForestDiffusion, "requires", ())


@pytest.fixture
def cells():
    rng = np.random.default_rng(0)
    obs = {"type": ["a", "b"] * 20, "age": rng.random(40)}
    return AnnData(rng.poisson(3, (40, 4)).astype(np.float32), obs=obs)


def test_hidden_entries_are_gaps_in_a_scaled_table(package, cells):
    sites = np.zeros((10, 4), dtype=bool)
    sites[:, 1] = True
    method = ForestDiffusion(jump_share=0.3).fit(cells[:30], seed=3)
    answer = method.impute(cells[30:], sites, n_samples=2)
    np.testing.assert_array_equal(method.model.table, cells.X[:30])
    assert method.model.settings["int_indexes"] == [0, 1, 2, 3]
    assert method.model.settings["seed"] == 3
    np.testing.assert_allclose(method.model.shown, np.where(sites, np.nan, cells.X[30:] / 5 - 1), rtol=1e-6)
    assert method.model.impute_settings["repaint"] and method.model.impute_settings["j"] == 0.3
    np.testing.assert_array_equal(answer, np.broadcast_to(np.where(sites, 7, cells.X[30:]), (2, 10, 4)))


def test_entries_that_are_missing_are_gaps_too(package, cells):
    observed = np.ones((40, 4), dtype=bool)
    observed[5, 2] = False
    method = ForestDiffusion().fit(cells, observed=observed)
    np.testing.assert_array_equal(np.isnan(method.model.table), ~observed)
    method.impute(cells, np.zeros((40, 4), dtype=bool), observed=observed)
    np.testing.assert_array_equal(np.isnan(method.model.shown), ~observed)


def test_covariates_keep_the_columns_of_training(package, cells):
    method = ForestDiffusion().fit(cells[:30], covariates=["type", "age"])
    given = method.model.settings["X_covs"]
    np.testing.assert_allclose(given, np.c_[cells.obs["age"], cells.obs["type"] == "a", cells.obs["type"] == "b"][:30])
    test = cells[30:33].copy()
    test.obs["type"] = ["b", "b", "unheard of"]
    method.impute(test, np.zeros((3, 4), dtype=bool))
    np.testing.assert_array_equal(method.model.impute_settings["X_covs"][:, 1:], [[0, 1], [0, 1], [0, 0]])
    assert ForestDiffusion().fit(cells).model.settings["X_covs"] is None


def test_settings_of_the_walk_share_a_fit(package, cells):
    method = ForestDiffusion().fit(cells[:30], covariates="type")
    other = ForestDiffusion(n_resamples=2, jump_share=0.5).take_over(method)
    assert other.model is method.model
    other.impute(cells[30:], np.zeros((10, 4), dtype=bool))
    assert other.model.impute_settings["r"] == 2 and other.model.impute_settings["j"] == 0.5
    with pytest.raises(ValueError, match="other settings"):
        ForestDiffusion(n_trees=10).take_over(method)


def test_many_genes_are_refused_before_work_starts(package):
    many = AnnData(np.ones((500, 400), dtype=np.float32))
    with pytest.raises(ValueError, match=r"400,000 trees to 400 genes, which takes about \d+ hours.*allow_slow=True"):
        ForestDiffusion().fit(many)
    assert ForestDiffusion(allow_slow=True).fit(many).model.table.shape == (500, 400)


def test_time_grows_with_levels_and_the_square_of_the_genes():
    hours = ForestDiffusion().expected_hours(1000, 50)
    assert ForestDiffusion(n_t=40).expected_hours(1000, 50) == pytest.approx(2 * hours)
    assert ForestDiffusion().expected_hours(1000, 100) == pytest.approx(4 * hours)
    assert ForestDiffusion().expected_hours(1000, 50, 50) == pytest.approx(2 * hours)
    assert ForestDiffusion().expected_hours(3000, 20) < MAX_HOURS < ForestDiffusion().expected_hours(3000, 300)


@pytest.mark.parametrize("setting", ["n_t", "n_copies", "n_trees", "max_depth", "n_resamples", "jump_share"])
def test_settings_are_checked(setting):
    with pytest.raises(ValueError, match=setting):
        ForestDiffusion(**{setting: 0})


# The package itself ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fitted():
    pytest.importorskip("ForestDiffusion")
    rng = np.random.default_rng(1)
    rates = rng.gamma(1, 2, (260, 1)) * np.array([[2.0, 5.0, 9.0, 4.0]])
    cells = AnnData(np.c_[rng.poisson(rates), np.zeros(260)].astype(np.float32))  # the last gene is silent
    return cells, ForestDiffusion(**SMALL).fit(cells[:200], seed=0)


def test_repaint_leaves_known_entries_as_they_are(fitted):
    cells, method = fitted
    counts = np.minimum(cells.X[200:], cells.X[:200].max(axis=0))  # answers stay in the range of training
    sites = np.random.default_rng(2).random(counts.shape) < 0.5
    shown = Cells(np.where(sites, 0, counts), ~sites, cells[200:].obs[[]])
    answer = method._impute(shown, sites, 2, seed=0)  # before the base class puts observed entries back
    np.testing.assert_array_equal(answer[:, ~sites], np.broadcast_to(counts[~sites], (2, (~sites).sum())))
    assert np.isfinite(answer).all()
    np.testing.assert_array_equal(answer, np.round(answer))


def test_learns_what_genes_tell_about_each_other(fitted):
    cells, method = fitted
    sites = np.zeros((60, 5), dtype=bool)
    sites[:, 2] = True
    mean = method.impute(cells[200:], sites, n_samples=10).mean(axis=0)
    truth = cells.X[200:, 2]
    error = np.sqrt(np.mean((mean[:, 2] - truth) ** 2))
    assert error < 0.7 * np.sqrt(np.mean((cells.X[:200, 2].mean() - truth) ** 2))


def test_draws_differ_and_repeat_by_seed(fitted):
    cells, method = fitted
    sites = np.ones((60, 5), dtype=bool)  # also: cells with nothing observed
    draws = method.impute(cells[200:], sites, n_samples=2, seed=1)
    assert (draws[0] != draws[1]).any()
    np.testing.assert_array_equal(draws, method.impute(cells[200:], sites, n_samples=2, seed=1))
    assert (draws[0] != method.impute(cells[200:], sites, seed=2)).any()
    assert draws.min() >= 0 and (draws[:, :, 4] == 0).all()
    again = ForestDiffusion(**SMALL).fit(cells[:200], seed=0).impute(cells[200:], sites, n_samples=2, seed=1)
    np.testing.assert_array_equal(draws, again)


def test_a_shared_fit_is_as_good_as_one_of_its_own(fitted):
    cells, method = fitted
    sites, walk = np.random.default_rng(4).random((60, 5)) < 0.5, {"n_resamples": 3, "jump_share": 0.2}
    shared = ForestDiffusion(**SMALL | walk).take_over(method).impute(cells[200:], sites)
    alone = ForestDiffusion(**SMALL | walk).fit(cells[:200], seed=0).impute(cells[200:], sites)
    np.testing.assert_array_equal(shared, alone)


def test_a_single_cell_with_nothing_hidden(fitted):
    cells, method = fitted
    np.testing.assert_array_equal(method.impute(cells[200], np.zeros((1, 5), dtype=bool)), cells.X[200:201])


def test_learns_from_cells_with_gaps(fitted):
    cells, _ = fitted
    rng = np.random.default_rng(3)
    observed = rng.random((260, 5)) < 0.9
    method = ForestDiffusion(**SMALL).fit(cells[:200], observed=observed[:200], seed=0)
    sites = np.zeros((60, 5), dtype=bool)
    sites[:, 2] = True
    mean = method.impute(cells[200:], sites, n_samples=5, observed=observed[200:]).mean(axis=0)
    truth = cells.X[200:, 2]
    error = np.sqrt(np.mean((mean[:, 2] - truth) ** 2))
    assert error < 0.85 * np.sqrt(np.mean((cells.X[:200, 2].mean() - truth) ** 2))
