from copy import copy

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData

from sccountsdiff.benchmark.baselines import ConditionalMean, ScaledGeneMean, SCVIBaseline, SCVIDraw


@pytest.fixture(scope="module")
def cells():
    rng = np.random.default_rng(0)
    kind, n = rng.integers(2, size=400), 400
    profiles = rng.gamma(1, 5, (2, 20))
    depth = rng.gamma(4, 1 / 4, (n, 1))
    obs = pd.DataFrame({"type": np.array(["a", "b"])[kind], "age": rng.random(n)}, index=[f"c{i}" for i in range(n)])
    return AnnData(rng.poisson(profiles[kind] * depth).astype(np.float32), obs=obs, obsm={"depth": depth})


@pytest.fixture(scope="module")
def method(cells):
    return SCVIBaseline(
        n_hidden=32, n_latent=3, max_epochs=30, batch_size=64, train_kwargs={"plan_kwargs": {"lr": 0.01}}
    ).fit(cells[:300], covariates=["type", "age"])


def test_learns_type_and_depth(cells, method):
    test, sites = cells[300:], np.random.default_rng(1).random((100, 20)) < 0.5
    answer = method.impute(test, sites)
    only_depth = ScaledGeneMean().fit(cells[:300]).impute(test, sites)
    only_type = ConditionalMean().fit(cells[:300], covariates="type").impute(test, sites)
    error, *others = (np.sqrt(np.mean((a - test.X)[sites] ** 2)) for a in (answer, only_depth, only_type))
    assert error < 0.95 * min(others), (error, others)
    # What is filled in follows the depth of the cell, which only its observed entries tell.
    relative = (answer * sites).sum(axis=1) / (only_type * sites).sum(axis=1)
    assert np.corrcoef(relative, test.obsm["depth"][:, 0])[0, 1] > 0.8


def test_draws_are_counts_around_the_mean(cells, method):
    test, sites = cells[300:], np.ones((100, 20), dtype=bool)
    sites[:, ::2] = False
    draws = method.impute(test, sites, n_samples=200)[:, sites]
    mean = method.impute(test, sites)[sites]
    assert (draws == np.round(draws)).all()
    z = (draws.mean(axis=0) - mean) / (draws.std(axis=0) / np.sqrt(200) + 0.05 * mean + 1e-3)
    assert np.mean(np.abs(z) < 3) > 0.95
    assert (draws.var(axis=0).mean()) > 0.9 * mean.mean(), "at least Poisson noise"


def test_feeding_expectations_back_helps(cells, method):
    """Half of a cell hidden: the encoder does better on a cell that looks like those it was trained on."""
    test, sites = cells[300:], np.random.default_rng(3).random((100, 20)) < 0.7
    refined = copy(method)
    refined.n_rounds = 4
    error, refined_error = (np.mean((m.impute(test, sites) - test.X)[sites] ** 2) for m in (method, refined))
    assert refined_error < error


def test_unseen_category_is_replaced_with_a_warning(cells, method, caplog):
    test = cells[300:310].copy()
    test.obs["type"] = "new"
    sites = np.zeros(test.shape, dtype=bool)
    sites[:, 0] = True
    with caplog.at_level("WARNING", logger="sccountsdiff"):
        assert np.isfinite(method.impute(test, sites)).all()
    assert "10 cells have a type" in caplog.text


def test_continuous_covariates_are_standard_scores_of_training(cells, method):
    scores = method.model.adata_manager.get_from_registry("extra_continuous_covs").to_numpy()
    np.testing.assert_allclose([scores.mean(), scores.std()], [0, 1], atol=1e-6)
    mean, sd = cells.obs["age"][:300].mean(), cells.obs["age"][:300].std(ddof=0)
    shown = method._adata(cells.X[300:], cells.obs[300:])
    np.testing.assert_allclose(shown.obs["age"], (cells.obs["age"][300:] - mean) / sd)


def test_global_random_state_is_left_alone(cells):
    import scvi
    import torch

    torch.manual_seed(5)
    np.random.seed(5)
    expected = torch.rand(1), np.random.rand()
    torch.manual_seed(5)
    np.random.seed(5)
    before = scvi.settings.seed
    SCVIBaseline(n_hidden=4, max_epochs=1).fit(cells[:20])
    assert (torch.rand(1), np.random.rand()) == expected
    assert scvi.settings.seed == before


def test_awkward_numbers_of_cells(cells):
    """Batch normalisation cannot take a last batch of one cell; few cells leave none to validate on."""
    for n in (9, 72, 143):  # 143 cells: 129 for training, one more than a batch
        SCVIBaseline(n_hidden=4, max_epochs=1).fit(cells[:n])
    with pytest.raises(ValueError, match="empty"):
        SCVIBaseline().fit(AnnData(np.zeros((5, 3), dtype=np.float32)))


def test_a_single_draw_is_a_count_and_as_spread_as_the_truth(cells, method):
    """Of the same trained model: unlike the mean, it varies within cells of a type as counts do."""
    test, sites = cells[300:], np.random.default_rng(1).random((100, 20)) < 0.5
    shared = {
        name: getattr(method, name) for name in ("n_hidden", "n_latent", "max_epochs", "batch_size", "train_kwargs")
    }
    draw = SCVIDraw(**shared, n_rounds=1).take_over(method).impute(test, sites)
    assert (draw == np.round(draw)).all() and draw[sites].var() > method.impute(test, sites)[sites].var()
    assert not SCVIDraw.draws and not SCVIDraw.denoises
