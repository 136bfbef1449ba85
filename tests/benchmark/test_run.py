import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData

import sccountsdiff.benchmark as bm
from sccountsdiff.benchmark import scoring
from sccountsdiff.benchmark.baselines import Baseline, CountsDiff, CountsDiffMean
from sccountsdiff.benchmark.datasets import Dataset
from sccountsdiff.benchmark.missingness import MCAR, MNARLow, split_molecules, valid_sites
from sccountsdiff.benchmark.plan import make_plan
from sccountsdiff.benchmark.preprocessing import split_cells
from sccountsdiff.benchmark.runner import SHARES

COSTS = ["fit_seconds", "impute_seconds", "peak_memory_mb"]
METRICS = ["rmse", "spearman", "energy_distance", "crps"]


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    kind = rng.integers(2, size=120)
    counts = rng.poisson(rng.gamma(1, 4, (2, 12))[kind]).astype(np.float32)
    obs = pd.DataFrame({"type": np.array(["a", "b"])[kind]}, index=[f"c{i}" for i in range(120)])
    return Dataset("toy", AnnData(counts, obs=obs), covariates=("type",), label="type")


@dataclass(eq=False)
class Poisson(Baseline):
    """Draws around the gene mean; counts how often it is called, and can be interrupted."""

    scale: float = 1.0

    name: ClassVar[str] = "poisson_draws"
    group: ClassVar[str] = "generative"
    draws: ClassVar[bool] = True
    calls: ClassVar[list] = []
    stop_after: ClassVar[int | None] = None

    def _fit(self, cells, seed):
        self.calls.append(("fit", self.scale, seed))
        self.mean = self.scale * cells.counts.mean(axis=0)

    def _impute(self, cells, sites, n_samples, seed):
        if self.stop_after is not None and len(self.calls) >= self.stop_after:
            raise KeyboardInterrupt
        self.calls.append(("impute", self.scale, seed, n_samples))
        shape = sites.shape if n_samples == 1 else (n_samples, *sites.shape)
        return np.random.default_rng(seed).poisson(np.broadcast_to(self.mean, shape))


@dataclass(eq=False)
class Broken(Baseline):
    """Fails, in one way or the other."""

    where: str = "fit"
    name: ClassVar[str] = "broken"

    def _fit(self, cells, seed):
        if self.where == "fit":
            raise RuntimeError("cannot fit")

    def _impute(self, cells, sites, n_samples, seed):
        return np.full(sites.shape, np.nan)


@pytest.fixture(autouse=True)
def fresh_counters():
    Poisson.calls.clear()
    Poisson.stop_after = None


def compare(data, output, **kwargs):
    options = {"metrics": METRICS, "n_samples": (1, 3), "n_bootstrap": 2, "min_cells": 1, "silent": True} | kwargs
    methods = ["gene_mean", Poisson(), Poisson(scale=2.0)]
    return bm.run(data, [MCAR(0.4), "mnar_low"], methods, seeds=(0, 1), output=output, **options)


def without_costs(table):
    return table.drop(columns=COSTS)


def test_killed_half_way_and_started_again(data, tmp_path):
    whole = compare(data, tmp_path / "whole")
    n_calls = len(Poisson.calls)

    Poisson.calls.clear()
    Poisson.stop_after = n_calls // 2
    with pytest.raises(KeyboardInterrupt):
        compare(data, tmp_path / "killed")
    first = list(Poisson.calls)
    assert n_calls // 2 <= len(first) <= n_calls // 2 + 1
    n_files = len(list((tmp_path / "killed" / "results").iterdir()))
    assert 0 < n_files < len(list((tmp_path / "whole" / "results").iterdir()))

    Poisson.calls.clear()
    Poisson.stop_after = None
    resumed = compare(data, tmp_path / "killed")
    # Only the job that was interrupted is done twice, and its method fitted twice.
    assert len(first) + len(Poisson.calls) <= n_calls + 3
    pd.testing.assert_frame_equal(without_costs(resumed), without_costs(whole))

    Poisson.calls.clear()
    pd.testing.assert_frame_equal(compare(data, tmp_path / "killed"), resumed)
    assert not Poisson.calls, "what is finished is not computed again"
    assert not list((tmp_path / "killed" / "results").glob("*.partial"))
    saved = pd.read_csv(tmp_path / "killed" / "results.csv")
    np.testing.assert_allclose(saved["value"], resumed["value"])


def test_only_what_is_new_is_computed(data, tmp_path):
    compare(data, tmp_path)
    for change in ({"metrics": ["rmse"]}, {"n_bootstrap": 0}, {"n_genes": 10}, {"protocol": "paper"}):
        Poisson.calls.clear()
        compare(data, tmp_path, **change)
        assert Poisson.calls, f"{change} changes the results"
    Poisson.calls.clear()
    bm.run(
        data, ["mcar:0.4"], [Poisson()], (0, 2), metrics=METRICS, n_samples=(1, 3), n_bootstrap=2, min_cells=1,
        output=tmp_path, silent=True,
    )  # fmt: skip
    assert {call[2] for call in Poisson.calls} == {2}


def test_one_fit_for_all_patterns_and_the_table_is_complete(data):
    table = compare(data, None)
    fits = [call for call in Poisson.calls if call[0] == "fit"]
    assert sorted(fits) == [("fit", s, seed) for s in (1.0, 2.0) for seed in (0, 1)]
    assert set(table["method"]) == {"gene_mean", "poisson_draws", "poisson_draws(scale=2.0)"}
    assert set(table["missingness"]) == {"mcar(rate=0.4)", "mnar_low"}
    assert table["value"].notna().all() and table["se"].notna().all() and table["error"].isna().all()
    assert (table[COSTS] > 0).all().all()
    per_job = table.groupby(["method", "n_samples"])["metric"].agg(set)
    assert per_job["gene_mean", 1] == set(METRICS) - {"crps"}
    assert per_job["poisson_draws", 3] == set(METRICS)
    assert ("gene_mean", 3) not in per_job
    # Averages of draws are nearer to the truth than draws; twice the mean is farther.
    rmse = table[table["metric"] == "rmse"].groupby(["method", "n_samples"])["value"].mean()
    assert rmse["gene_mean", 1] < rmse["poisson_draws", 3] < rmse["poisson_draws", 1]
    assert rmse["poisson_draws", 1] < rmse["poisson_draws(scale=2.0)", 1]


def test_a_failure_is_recorded_and_the_others_go_on(data, tmp_path):
    methods = [Broken(), Broken(where="impute"), "gene_mean"]
    options = {"metrics": ["rmse"], "n_bootstrap": 0, "output": tmp_path, "silent": True}
    table = bm.run(data, ["mcar", "mar"], methods, **options)
    errors = table[table["error"].notna()].set_index("method")["error"]
    assert errors["broken"].tolist() == ["RuntimeError: cannot fit"] * 2
    assert errors["broken(where='impute')"].str.contains("not finite").all()
    assert table[table["method"] == "gene_mean"]["value"].notna().sum() == 2
    assert table[table["error"].notna()]["metric"].isna().all()


def test_what_failed_is_tried_again_on_request(data, tmp_path, monkeypatch):
    options = {"metrics": ["rmse"], "n_bootstrap": 0, "output": tmp_path, "silent": True}
    bm.run(data, "mcar", Broken(), **options)
    monkeypatch.setattr(Broken, "_fit", lambda *arguments: None)
    monkeypatch.setattr(Broken, "_impute", lambda self, cells, *arguments: cells.counts)
    assert bm.run(data, "mcar", Broken(), **options)["error"].notna().all()
    assert bm.run(data, "mcar", Broken(), retry_failed=True, **options)["error"].isna().all()


def test_a_failed_fit_is_not_tried_again_by_variants_that_share_it(data, monkeypatch):
    fits = []
    monkeypatch.setattr(CountsDiff, "_fit", lambda self, cells, seed: fits.append(1) or 1 / 0)
    methods = [CountsDiff(n_steps=2), CountsDiff(n_steps=3), CountsDiff(max_epochs=1)]
    table = bm.run(data, ["mcar", "mar"], methods, metrics=["rmse"], n_samples=(1, 3), n_bootstrap=0, silent=True)
    assert len(fits) == 2, "one for each training, not for each variant"
    assert table["error"].tolist() == ["ZeroDivisionError: division by zero"] * 6
    assert table["n_samples"].tolist() == [1] * 6


def test_a_failing_metric_does_not_take_the_others_along(data, monkeypatch):
    def fail(truth, imputed, sites):
        raise ArithmeticError("no such number")

    entries = bm.metrics.METRICS._entries
    monkeypatch.setitem(entries, "fails", bm.metrics.Metric("fails", fail, "lower", ("truth", "imputed", "sites"), "x"))
    table = bm.run(data, "mcar", "zero", metrics=["fails", "rmse"], n_bootstrap=0, silent=True).set_index("metric")
    assert table.loc["fails", "error"] == "ArithmeticError: no such number"
    assert table.loc["rmse", "value"] > 0


def test_variants_that_differ_in_sampling_share_one_training(data, monkeypatch):
    from sccountsdiff import CountsDiffImputer

    trainings = []
    train = CountsDiffImputer.train
    monkeypatch.setattr(CountsDiffImputer, "train", lambda *args, **kw: (trainings.append(1), train(*args, **kw)))
    tiny = {"max_epochs": 1, "model_kwargs": {"n_hidden": 8}}
    methods = [CountsDiff(n_steps=2, **tiny), CountsDiff(n_steps=3, **tiny), CountsDiffMean(**tiny)]
    shared = bm.run(data, "mcar", methods, metrics=["rmse"], n_samples=1, n_bootstrap=0, silent=True)
    assert len(trainings) == 1
    alone = bm.run(data, "mcar", methods[1], metrics=["rmse"], n_samples=1, n_bootstrap=0, silent=True)
    assert alone["value"].item() == shared["value"][1]


def test_the_paper_shows_and_hides_only_what_it_believes(data):
    seen = []

    class Spy(Poisson):
        uses_mask = True

        def _fit(self, cells, seed):
            super()._fit(cells, seed)
            self.trained_on = cells

        def _impute(self, cells, sites, n_samples, seed):
            seen.append((self.trained_on, cells, sites))
            return super()._impute(cells, sites, n_samples, seed)

    class Plain(Spy):
        uses_mask = False

    for protocol in ("all", "paper"):
        for method in (Spy(), Plain()):
            bm.run(
                data, MCAR(0.5), method, metrics=["rmse"], n_samples=1, n_bootstrap=0, protocol=protocol, min_cells=1,
                silent=True,
            )  # fmt: skip
    valid = pd.DataFrame(valid_sites(data.adata.X, data.adata.obs["type"]), index=data.adata.obs_names)
    (train, cells, everywhere), _, (train_paper, cells_paper, observed), (train_plain, cells_plain, sites_plain) = seen
    valid_train = valid.loc[train.covariates.index].to_numpy()
    valid_test = valid.loc[cells.covariates.index].to_numpy()
    assert not valid_train.all() and not valid_test.all()
    assert train.observed.all() and (cells.observed == ~everywhere).all()
    np.testing.assert_array_equal(train_paper.observed, valid_train)
    np.testing.assert_array_equal(observed, everywhere & valid_test)
    np.testing.assert_array_equal(cells_paper.observed, valid_test & ~observed)
    # A method that cannot make the difference gets zeros as zeros.
    assert train_plain.observed.all() and (cells_plain.observed == ~sites_plain).all()
    np.testing.assert_array_equal(sites_plain, observed)


def test_hidden_counts_do_not_say_which_genes_are_silent():
    """A gene that is silent in the training cells of a type is observed there, whatever a hidden count of it is."""
    rng = np.random.default_rng(1)
    train, test = (AnnData(rng.poisson(3, (n, 3)).astype(np.float32), obs={"type": ["a"] * n}) for n in (6, 2))
    train.X[:, 0] = 0
    train.X[0, 1] = 0
    test.X[:, 0] = [5, 0]
    split = scoring.Split(train, test, "type", 0, "paper")
    other = scoring.Split(train, test.copy(), "type", 0, "paper")
    other.test.X[0, 0] = 0
    np.testing.assert_array_equal(split.observed[0], other.observed[0])
    assert split.observed[0][:, 0].all() and not split.observed[0][0, 1]
    sites = split.sites(MCAR(1.0))
    assert sites[0, 0] and not sites[1, 0], "what is hidden is for all cells to say"
    assert not (sites & ~split.observed[1]).any()


def test_results_go_by_what_the_embedder_is_not_by_how_it_is_spelt(data, tmp_path, monkeypatch):
    (tmp_path / "model").mkdir()
    options = {"metrics": ["rmse"], "n_bootstrap": 0, "silent": True, "output": tmp_path / "out"}
    first = bm.run(data, "mcar", "gene_mean", embedder=tmp_path / "model", **options)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bm.baselines.GeneMean, "fit", None)  # would fail if it were called
    again = bm.run(data, "mcar", "gene_mean", embedder="model", **options)
    pd.testing.assert_frame_equal(first, again)
    (tmp_path / "model" / "model.pt").write_text("another model")
    asked_anew = bm.run(data, "mcar", "gene_mean", embedder="model", **options)
    assert asked_anew["error"].str.contains("not callable").all()


def test_scfid_with_a_saved_embedder(data, tmp_path, monkeypatch):
    """The same model, trained in place or read from its folder, gives the same distances."""
    train_shortly = partial(bm.metrics.train_embedder, max_epochs=2)
    monkeypatch.setattr(scoring, "train_embedder", train_shortly)
    options = {"metrics": ["scfid"], "n_bootstrap": 0, "min_cells": 1, "silent": True}
    in_place = bm.run(data, "mcar", ["zero", "gene_mean"], **options)["value"]
    train = split_cells(data.adata, SHARES, seed=0)[0]
    train_shortly(data.adata[train].copy(), seed=0).save(tmp_path / "model")
    monkeypatch.setattr(scoring, "train_embedder", None)
    saved = bm.run(data, "mcar", ["zero", "gene_mean"], embedder=tmp_path / "model", **options)["value"]
    np.testing.assert_allclose(saved, in_place, rtol=1e-4)
    assert in_place[0] > in_place[1] > 0


def test_a_missing_extra_is_a_recorded_failure(data, caplog):
    class Needy(Poisson):
        name = "needy"
        requires = ("no_such_extra",)

    table = bm.run(data, "mcar", [Needy(), "zero"], metrics=["rmse"], n_bootstrap=0, silent=True).set_index("method")
    assert "pip install" in table.loc["needy", "error"] and "no_such_extra" in table.loc["needy", "error"]
    assert table.loc["zero", "value"] > 0
    assert "recorded as failed" in caplog.text


SCRIPT = """
import sys
from pathlib import Path
import numpy as np
import pandas as pd
from anndata import AnnData
import sccountsdiff.benchmark as bm
from sccountsdiff.benchmark.baselines import Baseline
from sccountsdiff.benchmark.datasets import Dataset

output, log, wait_at = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])

class Slow(Baseline):
    name = "slow"
    def _fit(self, cells, seed):
        self.mean = cells.counts.mean(axis=0)
    def _impute(self, cells, sites, n_samples, seed):
        with log.open("a") as file:
            file.write("impute\\n")
        if log.read_text().count("impute") == wait_at:
            Path(str(log) + ".waiting").touch()
            import time; time.sleep(600)
        return np.broadcast_to(self.mean, sites.shape)

counts = np.random.default_rng(0).poisson(3.0, (60, 8)).astype(np.float32)
data = Dataset("toy", AnnData(counts))
table = bm.run(data, ["mcar", "mcar:0.3"], Slow(), (0, 1), metrics=["rmse"], n_bootstrap=0, output=output, silent=True)
"""


def test_killed_without_warning_and_started_again(tmp_path):
    """SIGKILL while the third of four jobs is computed: two are kept, and two are computed after the restart."""
    script, log = tmp_path / "script.py", tmp_path / "log"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script)]
    process = subprocess.Popen([*command, str(tmp_path / "killed"), str(log), "3"])
    deadline = time.monotonic() + 120
    while not Path(f"{log}.waiting").exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.kill()
    process.wait()
    assert not (tmp_path / "killed" / "results.csv").exists()
    assert len(list((tmp_path / "killed" / "results").iterdir())) == 2
    subprocess.run([*command, str(tmp_path / "killed"), str(log), "0"], check=True)
    assert log.read_text().count("impute") == 3 + 2
    subprocess.run([*command, str(tmp_path / "whole"), str(tmp_path / "other"), "0"], check=True)
    resumed, whole = (pd.read_csv(tmp_path / name / "results.csv") for name in ("killed", "whole"))
    assert len(whole) == 4
    pd.testing.assert_frame_equal(without_costs(resumed), without_costs(whole))


def test_the_truth_is_shown_where_it_is_not_trivial(data):
    pytest.importorskip("leidenalg")
    table = bm.run(data, "mcar", "zero", metrics=["rmse", "cluster_ari"], n_bootstrap=0, silent=True)
    assert table[table["method"] == "truth"]["metric"].tolist() == ["cluster_ari"]


def test_all_default_metrics_on_labelled_and_unlabelled_cells(data):
    with_labels = bm.run(data, MNARLow(), "zero", n_bootstrap=0, quick=True, silent=True)
    unlabelled = Dataset("plain", data.adata)
    without = bm.run(unlabelled, MNARLow(), "zero", n_bootstrap=0, quick=True, silent=True)
    assert with_labels["error"].isna().all() and without["error"].isna().all()
    assert "marker_recovery" in set(with_labels["metric"]) and "marker_recovery" not in set(without["metric"])
    assert not {"scfid", "accuracy"} & set(with_labels["metric"]), "quick leaves out what has to be trained"


def test_quick_cuts_the_training_of_named_methods_and_says_so(data):
    options = {
        "missingness": "mcar",
        "seeds": (0,),
        "metrics": None,
        "n_samples": 1,
        "protocol": "all",
        "embedder": None,
        "n_bootstrap": 0,
    }
    methods = ["zero", "countsdiff", "scvi", CountsDiff(n_steps=2)]
    plan = make_plan(datasets=data, methods=methods, quick=True, **options)
    assert list(plan.methods) == ["zero", "countsdiff(max_epochs=60)", "scvi(max_epochs=240)", "countsdiff(n_steps=2)"]
    plan = make_plan(datasets=data, methods=methods[:3], quick=False, **options)
    assert list(plan.methods) == ["zero", "countsdiff", "scvi"]


def test_everything_is_checked_before_any_work(data, tmp_path, monkeypatch):
    plain = Dataset("plain", data.adata)

    monkeypatch.setitem(bm.downstream.PACKAGES, "cluster_ari", ("no_such_package",))
    for error, message, call in [
        (KeyError, "did you mean 'gene_mean'", {"methods": ["zero", "gene_men"]}),
        (KeyError, "Unknown missingness pattern", {"missingness": "mcra"}),
        (ValueError, "'mar' has no rate", {"missingness": "mar:0.5"}),
        (KeyError, "Unknown metric", {"metrics": ["rmsee"]}),
        (KeyError, "Unknown data set", {"datasets": "kang"}),
        (
            ValueError,
            "'molecule_mse' needs denoised, held_out, which .*'mcar'.* does not",
            {"metrics": ["molecule_mse"]},
        ),
        (
            ValueError,
            "'rmse' needs .* does not give",
            {"missingness": "molecules", "methods": "zero", "metrics": ["rmse"]},
        ),
        (
            ValueError,
            r"none of \['rmse'\] fits missingness 'molecules'",
            {"missingness": ["mcar", "molecules"], "methods": "zero", "metrics": ["rmse"]},
        ),
        (
            ValueError,
            r"methods that denoise, which \['gain', 'poisson_draws'\] do not",
            {"missingness": "molecules", "methods": ["zero", "gain", Poisson()]},
        ),
        (ValueError, "'molecules' hides none", {"missingness": "molecules", "methods": "zero", "protocol": "paper"}),
        (ValueError, "'molecules' has no rate", {"missingness": "molecules:0.5", "methods": "zero"}),
        (ValueError, "bootstrap_cells must be at least 2, found 1", {"bootstrap_cells": 1}),
        (ValueError, "no data set has a label", {"datasets": plain, "metrics": ["accuracy"]}),
        (ValueError, "has no label", {"datasets": plain, "protocol": "paper"}),
        (FileNotFoundError, "embedder", {"embedder": tmp_path / "nowhere"}),
        (ImportError, "no_such_package", {"metrics": ["cluster_ari"]}),
        (ValueError, "methods must name at least one, each once", {"methods": ["zero", "zero"]}),
        (ValueError, "different names", {"datasets": [data, data]}),
        (ValueError, "seeds", {"seeds": ()}),
        (ValueError, "seeds", {"seeds": (0, 0)}),
        (ValueError, "n_samples", {"n_samples": 0}),
        (ValueError, "protocol", {"protocol": "papers"}),
        (ValueError, "n_bootstrap", {"n_bootstrap": 1}),
        (ValueError, "metrics is empty", {"metrics": []}),
        (TypeError, "names or methods", {"methods": [3]}),
        (TypeError, "names or patterns", {"missingness": [3]}),
    ]:
        arguments = {"datasets": data, "missingness": "mcar", "methods": [Poisson()], "output": tmp_path / "new"}
        with pytest.raises(error, match=message):
            bm.run(**(arguments | call), silent=True)
    assert not Poisson.calls and not (tmp_path / "new").exists()


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
    calls: ClassVar[list] = []
    stop_at: ClassVar[int | None] = None

    def _fit(self, cells, seed):
        self.calls.append("fit")

    def _impute(self, cells, sites, n_samples, seed):
        return RATES.loc[cells.covariates.index, self.genes].to_numpy()

    def _denoise(self, cells, share, seed):
        self.calls.append("denoise")
        if self.calls.count("denoise") == self.stop_at:
            raise KeyboardInterrupt
        return share * self._impute(cells, None, 1, seed)


@pytest.fixture
def oracle():
    Oracle.calls.clear()
    Oracle.stop_at = None
    return Oracle()


def test_molecules_are_predicted_best_by_their_rates(poisson_data, oracle):
    methods = [oracle, "zero", "gene_mean", "gene_mean_scaled", "knn_mean"]
    table = bm.run(poisson_data, "molecules", methods, seeds=(0, 1, 2), n_bootstrap=3, silent=True)
    assert set(table["metric"]) == {"molecule_mse", "molecule_poisson"} and table["error"].isna().all()
    assert set(table["missingness"]) == {"molecules"} and (table["n_samples"] == 1).all() and (table["se"] > 0).all()
    loss = table[table["metric"] == "molecule_poisson"].pivot(index="seed", columns="method", values="value")
    assert (loss.idxmin(axis=1) == "oracle").all()

    test = poisson_data.adata[split_cells(poisson_data.adata, SHARES, seed=1)[1]]
    _, held_out = split_molecules(test.X, 0.9, seed=1)
    mu = 0.1 * RATES.loc[test.obs_names].to_numpy()
    assert loss.loc[1, "oracle"] == pytest.approx(np.mean(mu - held_out * np.log(mu)), rel=1e-6)


def test_molecules_and_entries_share_a_fit_and_have_their_own_metrics(poisson_data, oracle):
    options = {"n_bootstrap": 0, "silent": True}
    table = bm.run(poisson_data, ["mcar", "molecules"], oracle, metrics=["rmse", "molecule_mse"], **options)
    assert Oracle.calls == ["fit", "denoise"]
    assert table[["missingness", "metric"]].values.tolist() == [["mcar", "rmse"], ["molecules", "molecule_mse"]]
    alone = bm.run(poisson_data, "molecules", oracle, metrics=["molecule_mse"], **options)
    assert alone["value"].item() == table["value"][1]


def test_molecules_continue_where_they_stopped(poisson_data, oracle, tmp_path):
    run = partial(bm.run, poisson_data, "molecules", oracle, (0, 1, 2), n_bootstrap=2, silent=True)
    whole = run(output=tmp_path / "whole")
    Oracle.calls.clear()
    Oracle.stop_at = 2
    with pytest.raises(KeyboardInterrupt):
        run(output=tmp_path / "killed")
    Oracle.calls.clear()
    Oracle.stop_at = None
    pd.testing.assert_frame_equal(without_costs(run(output=tmp_path / "killed")), without_costs(whole))
    assert Oracle.calls.count("denoise") == 2, "the first seed is not computed again"


def test_molecules_with_methods_that_are_trained(data):
    """The default methods, trained for a moment, at the depth of the cells."""
    tiny = [
        bm.baselines.SCVIBaseline(n_hidden=8, max_epochs=2),
        CountsDiff(max_epochs=2, model_kwargs={"n_hidden": 8}),
        CountsDiffMean(max_epochs=2, model_kwargs={"n_hidden": 8}),
    ]
    table = bm.run(data, "molecules", ["zero", "conditional_mean_scaled", *tiny], n_bootstrap=0, silent=True)
    assert table["error"].isna().all() and np.isfinite(table["value"]).all()
    loss = table[table["metric"] == "molecule_poisson"].set_index("group")["value"]
    assert loss["generative"].nunique() == 1, "one pass of one model, whatever its sampling"
    assert (loss.drop("naive") < loss["naive"].iloc[0]).all(), "better than no denoising"


def test_resamples_of_some_cells_and_mmd_of_as_many(poisson_data, tmp_path, monkeypatch):
    seen = []
    bootstrap = bm.metrics.bootstrap_se

    def spy(metric, *, n_cells, **arrays):
        seen.append((metric.name, n_cells, len(arrays["truth"])))
        return bootstrap(metric, n_cells=n_cells, **arrays)

    monkeypatch.setattr(scoring, "bootstrap_se", spy)
    run = partial(
        bm.run, poisson_data, "mcar", "gene_mean", metrics=["rmse", "mmd"], n_bootstrap=3, silent=True, output=tmp_path
    )
    everything = run().set_index("metric")
    n_files = len(list((tmp_path / "results").iterdir()))
    some = run(bootstrap_cells=5).set_index("metric")
    assert seen == [("rmse", None, 12), ("mmd", None, 12), ("rmse", 5, 12), ("mmd", 5, 5)]
    assert some.loc["rmse", "value"] == everything.loc["rmse", "value"]
    assert some.loc["mmd", "value"] != everything.loc["mmd", "value"]
    assert len(list((tmp_path / "results").iterdir())) == n_files + 1
    seen.clear()
    pd.testing.assert_frame_equal(run(bootstrap_cells=12).set_index("metric"), everything)
    assert not seen, "as many as there are is the same as all, and found again"
