from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData

import sccountsdiff.benchmark as bm
from sccountsdiff.benchmark.baselines import Baseline, CountsDiff, CountsDiffMean, GeneMean
from sccountsdiff.benchmark.datasets import Dataset
from sccountsdiff.benchmark.missingness import MCAR, MISSINGNESS, Missingness, MNARLow, Molecules, split_molecules
from sccountsdiff.benchmark.preprocessing import split_cells
from sccountsdiff.benchmark.runner import TEST_SHARE
from sccountsdiff.benchmark.scoring import Split
from sccountsdiff.benchmark.tasks import TASKS, Denoising, Imputation, make_task

RATES = pd.DataFrame(
    np.random.default_rng(3).gamma(1, 6, (120, 12)),
    index=[f"c{i}" for i in range(120)],
    columns=[f"g{j}" for j in range(12)],
)


@pytest.fixture(scope="module")
def poisson_data():
    counts = np.random.default_rng(4).poisson(RATES).astype(np.float32)
    return Dataset(
        "poisson", AnnData(counts, obs=pd.DataFrame(index=RATES.index), var=pd.DataFrame(index=RATES.columns))
    )


class Oracle(Baseline):
    """Knows the rate behind each count, and counts how often it is asked."""

    name = "oracle"
    denoises = True
    state = SimpleNamespace(calls=[], stop_at=None)  # no constant, which would be part of the code

    def _fit(self, cells, seed):
        self.state.calls.append("fit")

    def _impute(self, cells, sites, n_samples, seed):
        return RATES.loc[cells.covariates.index, self.genes].to_numpy()

    def _denoise(self, cells, share, seed):
        self.state.calls.append("denoise")
        if self.state.calls.count("denoise") == self.state.stop_at:
            raise KeyboardInterrupt
        return share * self._impute(cells, None, 1, seed)


@pytest.fixture
def oracle():
    Oracle.state.calls.clear()
    Oracle.state.stop_at = None
    return Oracle()


@pytest.fixture
def split(poisson_data):
    cells = poisson_data.adata
    return Split(cells[:100].copy(), cells[100:].copy(), None, seed=5)


class Draws(Baseline):
    """As many draws as it is asked for, all different."""

    name = "draws"
    draws = True

    def _fit(self, cells, seed):
        pass

    def _impute(self, cells, sites, n_samples, seed):
        shape = sites.shape if n_samples == 1 else (n_samples, *sites.shape)
        return np.random.default_rng(seed).poisson(5, shape)


def test_names_patterns_and_the_tasks_that_they_make():
    assert make_task("mcar") == Imputation("mcar", MCAR())
    assert make_task("mnar_low:0.1") == make_task(MNARLow(0.1)) == Imputation("mnar_low(rate=0.1)", MNARLow(0.1))
    assert make_task("molecules") == make_task(Molecules()) == Denoising("molecules", Molecules())


@pytest.mark.parametrize("name", MISSINGNESS)
def test_every_registered_pattern_makes_a_task(name):
    task = make_task(name)
    assert task.name == name and isinstance(task.pattern, task.pattern_type)


def test_a_pattern_of_ones_own_needs_no_task_of_its_own(split):
    class FirstGene(Missingness):
        def _choose(self, counts, valid, rng):
            return np.broadcast_to(np.arange(counts.shape[1]) == 0, counts.shape)

    task = make_task(FirstGene())
    assert isinstance(task, Imputation) and task.name == "FirstGene"
    assert task.hide(split).sum() == task.hide(split)[:, 0].sum() == 20


def test_what_is_asked_in_an_imputation(split):
    task = make_task("mcar:0.3")
    sites = task.hide(split)
    np.testing.assert_array_equal(sites, MCAR(0.3)(split.truth, seed=5))
    method = Draws().fit(split.train)
    one, several = (task.ask(method, split, sites, n) for n in (1, 4))
    assert set(one) == {"imputed", "sites"} and set(several) == task.answer_inputs
    np.testing.assert_array_equal(one["imputed"][~sites], split.truth[~sites])
    assert several["draws"].shape == (4, sites.sum())
    np.testing.assert_allclose(several["imputed"][sites], several["draws"].mean(axis=0), rtol=1e-6)
    np.testing.assert_array_equal(task.truth(split, sites)["imputed"], split.truth)
    assert task.numbers_of_samples(method, [1, 4]) == (1, 4)
    assert task.numbers_of_samples(GeneMean(), [1, 4]) == task.numbers_of_samples(None, [1, 4]) == (1,)


def test_what_is_asked_in_denoising(split, oracle):
    task = make_task("molecules")
    seen, held_out = hidden = task.hide(split)
    np.testing.assert_array_equal(seen.X + held_out, split.truth)
    answer = task.ask(oracle.fit(split.train), split, hidden, 1)
    assert set(answer) == task.answer_inputs
    np.testing.assert_allclose(answer["denoised"], 0.9 * RATES.loc[split.test.obs_names])
    assert task.truth(split, hidden) is None and task.numbers_of_samples(Draws(), [1, 4]) == (1,)


def test_what_a_task_is_not_made_for_is_refused(oracle):
    denoising, imputation = make_task("molecules"), make_task("mcar")
    with pytest.raises(ValueError, match=r"'molecules' is for methods that denoise, which \['draws'\] do not"):
        denoising.check({"oracle": oracle, "draws": Draws()}, "all")
    with pytest.raises(ValueError, match="'molecules' hides none"):
        denoising.check({"oracle": oracle}, "paper")
    denoising.check({"oracle": oracle}, "all")
    imputation.check({"oracle": oracle, "draws": Draws()}, "paper")


def test_metrics_know_the_tasks_that_they_score():
    for name in bm.metrics.METRICS:
        applies = [kind for kind in TASKS if bm.metrics.METRICS[name].applies_to(kind.answer_inputs)]
        assert applies == [Denoising if name.startswith("molecule_") else Imputation]


def test_molecules_are_predicted_best_by_their_rates(poisson_data, oracle):
    methods = [oracle, "zero", "gene_mean", "gene_mean_scaled", "knn_mean"]
    table = bm.run(poisson_data, "molecules", methods, seeds=(0, 1, 2), n_bootstrap=3, silent=True)
    assert set(table["metric"]) == {"molecule_mse", "molecule_poisson"} and table["error"].isna().all()
    assert set(table["missingness"]) == {"molecules"} and (table["n_samples"] == 1).all() and (table["se"] > 0).all()
    loss = table[table["metric"] == "molecule_poisson"].pivot(index="seed", columns="method", values="value")
    assert (loss.idxmin(axis=1) == "oracle").all()

    test = poisson_data.adata[split_cells(poisson_data.adata, (1 - TEST_SHARE, TEST_SHARE), seed=1)[1]]
    _, held_out = split_molecules(test.X, 0.9, seed=1)
    mu = 0.1 * RATES.loc[test.obs_names].to_numpy()
    assert loss.loc[1, "oracle"] == pytest.approx(np.mean(mu - held_out * np.log(mu)), rel=1e-6)


def test_molecules_and_entries_share_a_fit_and_have_their_own_metrics(poisson_data, oracle):
    options = {"n_bootstrap": 0, "silent": True}
    table = bm.run(poisson_data, ["mcar", "molecules"], oracle, metrics=["rmse", "molecule_mse"], **options)
    assert Oracle.state.calls == ["fit", "denoise"]
    assert table[["missingness", "metric"]].values.tolist() == [["mcar", "rmse"], ["molecules", "molecule_mse"]]
    alone = bm.run(poisson_data, "molecules", oracle, metrics=["molecule_mse"], **options)
    assert alone["value"].item() == table["value"][1]


def test_molecules_continue_where_they_stopped(poisson_data, oracle, tmp_path, without_costs):
    run = partial(bm.run, poisson_data, "molecules", oracle, (0, 1, 2), n_bootstrap=2, silent=True)
    whole = run(output=tmp_path / "whole")
    Oracle.state.calls.clear()
    Oracle.state.stop_at = 2
    with pytest.raises(KeyboardInterrupt):
        run(output=tmp_path / "killed")
    Oracle.state.calls.clear()
    Oracle.state.stop_at = None
    pd.testing.assert_frame_equal(without_costs(run(output=tmp_path / "killed")), without_costs(whole))
    assert Oracle.state.calls.count("denoise") == 2, "the first seed is not computed again"


def test_molecules_with_methods_that_are_trained(toy_data):
    """The default methods, trained for a moment, at the depth of the cells."""
    tiny = [
        bm.baselines.SCVIBaseline(n_hidden=8, max_epochs=2),
        CountsDiff(max_epochs=2, model_kwargs={"n_hidden": 8}),
        CountsDiffMean(max_epochs=2, model_kwargs={"n_hidden": 8}),
    ]
    table = bm.run(toy_data, "molecules", ["zero", "conditional_mean_scaled", *tiny], n_bootstrap=0, silent=True)
    assert table["error"].isna().all() and np.isfinite(table["value"]).all()
    loss = table[table["metric"] == "molecule_poisson"].set_index("group")["value"]
    assert loss["generative"].nunique() == 1, "one pass of one model, whatever its sampling"
    assert (loss.drop("naive") < loss["naive"].iloc[0]).all(), "better than no denoising"
