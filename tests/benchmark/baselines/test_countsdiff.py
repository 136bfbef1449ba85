import numpy as np
import pandas as pd
import pytest
from anndata import AnnData

from sccountsdiff.benchmark.baselines import (
    Blackout,
    CountsDiff,
    CountsDiffLogMean,
    CountsDiffMean,
    CountsDiffPaper,
    ScaledGeneMean,
)

SMALL = {"max_epochs": 15, "model_kwargs": {"n_hidden": 32}, "train_kwargs": {"plan_kwargs": {"lr": 5e-3}}}


@pytest.fixture(scope="module")
def cells():
    rng = np.random.default_rng(0)
    kind, n = rng.integers(2, size=300), 300
    mean = rng.gamma(1, 5, (2, 15))[kind] * rng.gamma(4, 1 / 4, (n, 1))
    obs = pd.DataFrame({"type": np.array(["a", "b"])[kind], "age": rng.random(n)}, index=[f"c{i}" for i in range(n)])
    return AnnData(rng.poisson(mean).astype(np.float32), obs=obs)


@pytest.fixture(scope="module")
def sites():
    return np.random.default_rng(1).random((60, 15)) < 0.5


@pytest.fixture(scope="module")
def method(cells):
    return CountsDiff(n_steps=5, **SMALL).fit(cells[:240], covariates=["type", "age"])


def test_float_covariates_are_continuous(method):
    assert list(method.model.categories) == ["type"]
    assert method.model.continuous_keys == ["age"]


def test_one_sample_is_one_draw_and_more_are_that_many(cells, sites, method):
    test = cells[240:]
    one, several = method.impute(test, sites), method.impute(test, sites, n_samples=4)
    assert one.shape == test.shape and several.shape == (4, *test.shape)
    assert (one == np.round(one)).all() and (several == np.round(several)).all()
    assert (several[0] != several[1]).any()
    np.testing.assert_array_equal(one, several[0])


def test_the_mean_in_one_pass_shares_the_model_and_is_the_better_guess(cells, sites, method):
    test = cells[240:]
    one_pass = CountsDiffMean(**SMALL).take_over(method)
    assert one_pass.model is method.model
    assert (one_pass.n_steps, one_pass.final) == (1, "mean"), "how it samples stays its own"

    def error(answer):
        return np.mean((answer - test.X)[sites] ** 2)

    mean = one_pass.impute(test, sites)
    assert error(mean) < error(method.impute(test, sites))
    assert error(mean) < error(ScaledGeneMean().fit(cells[:240]).impute(test, sites))
    np.testing.assert_array_equal(mean, one_pass.impute(test, sites, seed=9))


def test_the_mean_of_logarithms_is_the_better_guess_of_log_counts(cells, sites, method):
    test = cells[240:]
    mean, log_mean = (kind(**SMALL).take_over(method) for kind in (CountsDiffMean, CountsDiffLogMean))

    def error(answer):
        return np.mean((np.log1p(answer) - np.log1p(test.X))[sites] ** 2)

    assert error(log_mean.impute(test, sites)) < error(mean.impute(test, sites))
    assert (log_mean.denoise(test) < mean.denoise(test)).all()


def test_only_sampling_can_be_shared(method):
    assert CountsDiff(attrition=0.5, guidance=2, batch_size=7).training_key == CountsDiff().training_key
    assert CountsDiffMean().training_key == CountsDiff().training_key
    others = [CountsDiff(max_epochs=3), CountsDiff(schedule="fisher"), CountsDiffPaper(), Blackout()]
    assert len({other.training_key for other in [CountsDiff(), *others]}) == 5
    with pytest.raises(ValueError, match="other settings"):
        CountsDiff(max_epochs=3).take_over(method)


def test_unseen_categories_are_imputed_without_covariates(cells, sites, method):
    test = cells[240:].copy()
    test.obs["type"] = "new"
    assert np.isfinite(method.impute(test, sites)).all()


def test_settings_of_the_paper():
    paper, blackout = CountsDiffPaper(), Blackout()
    assert (paper.backbone, paper.head, paper.observed_training) == ("transformer", "softplus", False)
    assert paper.known is None, "which is 'noised' for a model that is not trained on observed counts"
    assert (paper.n_steps, paper.n_resamples, paper.attrition, paper.guidance) == (19, 3, 0.005, 1)
    assert (blackout.schedule, blackout.attrition, blackout.guidance) == ("blackout", 0, 0)
    assert not blackout.uses_covariates


def test_gaps_only_in_imputation_are_refused(cells):
    method = CountsDiff(max_epochs=1, n_steps=2, model_kwargs={"n_hidden": 8}).fit(cells[:240])
    observed = np.ones((60, 15), dtype=bool)
    observed[0, 1] = False
    with pytest.raises(ValueError, match="give observed to fit"):
        method.impute(cells[240:], np.zeros((60, 15), dtype=bool), observed=observed)


def test_draws_beat_the_gene_mean(low_rank):
    small = {"max_epochs": 60, "model_kwargs": {"n_hidden": 64}, "train_kwargs": {"plan_kwargs": {"lr": 5e-3}}}
    longer = small | {"max_epochs": 200}  # single draws of a network that has hardly learnt may be far out
    assert low_rank.rmse(CountsDiff(n_steps=5, **longer)) < 0.9 * low_rank.rmse_of_gene_mean
    assert low_rank.rmse(CountsDiff(n_steps=5, **longer), 5) < 0.7 * low_rank.rmse_of_gene_mean
    paper = CountsDiffPaper(backbone="mlp", **small)
    assert low_rank.rmse(paper, 5) < 0.9 * low_rank.rmse_of_gene_mean
    # Blackout's process is right, as a head shows that vanishes with what is left to come. The paper's softplus does not:
    # the Fisher schedule gives the last steps almost no weight, and with it Blackout is worse than the mean.
    assert low_rank.rmse(Blackout(backbone="mlp", head="poisson", **small), 5) < 0.9 * low_rank.rmse_of_gene_mean
    assert low_rank.rmse(Blackout(backbone="mlp", **small), 5) > low_rank.rmse_of_gene_mean
