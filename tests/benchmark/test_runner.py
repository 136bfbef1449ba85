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

import sccountsdiff.benchmark as bm
from sccountsdiff.benchmark import scoring
from sccountsdiff.benchmark.baselines import Baseline, CountsDiff, CountsDiffMean
from sccountsdiff.benchmark.baselines.base import sampling
from sccountsdiff.benchmark.datasets import Dataset
from sccountsdiff.benchmark.metrics import frechet
from sccountsdiff.benchmark.missingness import MCAR, MNARLow, valid_sites
from sccountsdiff.benchmark.preprocessing import split_cells
from sccountsdiff.benchmark.runner import TEST_SHARE, prepare

COSTS = ["fit_seconds", "impute_seconds", "peak_memory_mb"]


METRICS = ["rmse", "spearman", "energy_distance", "crps"]


class State(list):
    """What has happened, which is not part of what a method is."""

    stop_after: int | None = None


FIXED = State()


@dataclass(eq=False)
class Poisson(Baseline):
    """Draws around the gene mean; counts how often it is called, and can be interrupted."""

    scale: float = 1.0

    name: ClassVar[str] = "poisson_draws"
    group: ClassVar[str] = "generative"
    draws: ClassVar[bool] = True
    calls: ClassVar[State] = State()

    def _fit(self, cells, seed):
        self.calls.append(("fit", self.scale, seed))
        self.mean = self.scale * cells.counts.mean(axis=0)

    def _impute(self, cells, sites, n_samples, seed):
        if self.calls.stop_after is not None and len(self.calls) >= self.calls.stop_after:
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
        if self.where == "fit" and not FIXED:
            raise RuntimeError("cannot fit")

    def _impute(self, cells, sites, n_samples, seed):
        return cells.counts if FIXED else np.full(sites.shape, np.nan)


@pytest.fixture(autouse=True)
def fresh_counters():
    FIXED.clear()
    Poisson.calls.clear()
    Poisson.calls.stop_after = None


def compare(toy_data, output, **kwargs):
    options = {"metrics": METRICS, "n_samples": (1, 3), "n_bootstrap": 2, "min_cells": 1, "silent": True} | kwargs
    methods = ["gene_mean", Poisson(), Poisson(scale=2.0)]
    return bm.run(toy_data, [MCAR(0.4), "mnar_low"], methods, seeds=(0, 1), output=output, **options)


def test_killed_half_way_and_started_again(toy_data, tmp_path, without_costs):
    whole = compare(toy_data, tmp_path / "whole")
    n_calls = len(Poisson.calls)

    Poisson.calls.clear()
    Poisson.calls.stop_after = n_calls // 2
    with pytest.raises(KeyboardInterrupt):
        compare(toy_data, tmp_path / "killed")
    first = list(Poisson.calls)
    assert n_calls // 2 <= len(first) <= n_calls // 2 + 1
    n_files = len(list((tmp_path / "killed" / "results").iterdir()))
    assert 0 < n_files < len(list((tmp_path / "whole" / "results").iterdir()))

    Poisson.calls.clear()
    Poisson.calls.stop_after = None
    resumed = compare(toy_data, tmp_path / "killed")
    # Only the job that was interrupted is done twice, and its method fitted twice.
    assert len(first) + len(Poisson.calls) <= n_calls + 3
    pd.testing.assert_frame_equal(without_costs(resumed), without_costs(whole))

    Poisson.calls.clear()
    pd.testing.assert_frame_equal(compare(toy_data, tmp_path / "killed"), resumed)
    assert not Poisson.calls, "what is finished is not computed again"
    assert not list((tmp_path / "killed" / "results").glob("*.partial"))
    saved = pd.read_csv(tmp_path / "killed" / "results.csv")
    np.testing.assert_allclose(saved["value"], resumed["value"])


def test_only_what_is_new_is_computed(toy_data, tmp_path):
    compare(toy_data, tmp_path)
    for change in ({"metrics": ["rmse"]}, {"n_bootstrap": 0}, {"n_genes": 10}, {"protocol": "paper"}):
        Poisson.calls.clear()
        compare(toy_data, tmp_path, **change)
        assert Poisson.calls, f"{change} changes the results"
    Poisson.calls.clear()
    bm.run(
        toy_data, ["mcar:0.4"], [Poisson()], (0, 2), metrics=METRICS, n_samples=(1, 3), n_bootstrap=2, min_cells=1,
        output=tmp_path, silent=True,
    )  # fmt: skip
    assert {call[2] for call in Poisson.calls} == {2}


def test_one_fit_for_all_patterns_and_the_table_is_complete(toy_data):
    table = compare(toy_data, None)
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


def test_a_failure_is_recorded_and_the_others_go_on(toy_data, tmp_path):
    methods = [Broken(), Broken(where="impute"), "gene_mean"]
    options = {"metrics": ["rmse"], "n_bootstrap": 0, "output": tmp_path, "silent": True}
    table = bm.run(toy_data, ["mcar", "mar"], methods, **options)
    errors = table[table["error"].notna()].set_index("method")["error"]
    assert errors["broken"].tolist() == ["RuntimeError: cannot fit"] * 2
    assert errors["broken(where='impute')"].str.contains("not finite").all()
    assert table[table["method"] == "gene_mean"]["value"].notna().sum() == 2
    assert table[table["error"].notna()]["metric"].isna().all()


def test_what_failed_is_tried_again_on_request(toy_data, tmp_path):
    options = {"metrics": ["rmse"], "n_bootstrap": 0, "output": tmp_path, "silent": True}
    bm.run(toy_data, "mcar", Broken(), **options)
    FIXED.append("what it needs is there now")
    assert bm.run(toy_data, "mcar", Broken(), **options)["error"].notna().all()
    assert bm.run(toy_data, "mcar", Broken(), retry_failed=True, **options)["error"].isna().all()


def test_a_method_whose_code_has_changed_is_asked_again(toy_data, tmp_path, monkeypatch):
    options = {"metrics": ["rmse"], "n_bootstrap": 0, "output": tmp_path, "silent": True}
    assert bm.run(toy_data, "mcar", Broken(), **options)["error"].notna().all()
    monkeypatch.setattr(Broken, "_fit", lambda *arguments: None)
    monkeypatch.setattr(Broken, "_impute", lambda self, cells, *arguments: cells.counts)
    assert bm.run(toy_data, "mcar", Broken(), **options)["error"].isna().all()


def test_a_failed_fit_is_not_tried_again_by_variants_that_share_it(toy_data, monkeypatch):
    fits = []
    monkeypatch.setattr(CountsDiff, "_fit", lambda self, cells, seed: fits.append(1) or 1 / 0)
    methods = [CountsDiff(n_steps=2), CountsDiff(n_steps=3), CountsDiff(max_epochs=1)]
    table = bm.run(toy_data, ["mcar", "mar"], methods, metrics=["rmse"], n_samples=(1, 3), n_bootstrap=0, silent=True)
    assert len(fits) == 2, "one for each training, not for each variant"
    assert table["error"].tolist() == ["ZeroDivisionError: division by zero"] * 6
    assert table["n_samples"].tolist() == [1] * 6


def test_variants_that_differ_in_sampling_share_one_training(toy_data, monkeypatch):
    from sccountsdiff import CountsDiffImputer

    trainings = []
    train = CountsDiffImputer.train
    monkeypatch.setattr(CountsDiffImputer, "train", lambda *args, **kw: (trainings.append(1), train(*args, **kw)))
    tiny = {"max_epochs": 1, "model_kwargs": {"n_hidden": 8}}
    methods = [CountsDiff(n_steps=2, **tiny), CountsDiff(n_steps=3, **tiny), CountsDiffMean(**tiny)]
    shared = bm.run(toy_data, "mcar", methods, metrics=["rmse"], n_samples=1, n_bootstrap=0, silent=True)
    assert len(trainings) == 1
    alone = bm.run(toy_data, "mcar", methods[1], metrics=["rmse"], n_samples=1, n_bootstrap=0, silent=True)
    assert alone["value"].item() == shared["value"][1]


def test_the_paper_shows_and_hides_only_what_is_observed(toy_data):
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
                toy_data, MCAR(0.5), method, metrics=["rmse"], n_samples=1, n_bootstrap=0, protocol=protocol, min_cells=1,
                silent=True,
            )  # fmt: skip
    valid = pd.DataFrame(valid_sites(toy_data.adata.X, toy_data.adata.obs["type"]), index=toy_data.adata.obs_names)
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


def test_results_go_by_what_the_embedder_is_not_by_how_it_is_spelt(toy_data, tmp_path, monkeypatch):
    monkeypatch.setenv("SCCOUNTSDIFF_ALLOW_PICKLE", "1")  # it is our own
    (tmp_path / "model").mkdir()
    options = {"metrics": ["rmse"], "n_bootstrap": 0, "silent": True, "output": tmp_path / "out"}
    first = bm.run(toy_data, "mcar", "gene_mean", embedder=tmp_path / "model", **options)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bm.baselines.GeneMean, "fit", None)  # would fail if it were called
    again = bm.run(toy_data, "mcar", "gene_mean", embedder="model", **options)
    pd.testing.assert_frame_equal(first, again)
    (tmp_path / "model" / "model.pt").write_text("another model")
    asked_anew = bm.run(toy_data, "mcar", "gene_mean", embedder="model", **options)
    assert asked_anew["error"].str.contains("not callable").all()


def test_scfid_with_a_saved_embedder(toy_data, tmp_path, monkeypatch):
    """The same model, trained in place or read from its folder, gives the same distances."""
    monkeypatch.setenv("SCCOUNTSDIFF_ALLOW_PICKLE", "1")  # it is our own
    train_shortly = partial(bm.metrics.train_embedder, max_epochs=2)
    monkeypatch.setattr(frechet, "train_embedder", train_shortly)
    options = {"metrics": ["scfid"], "n_bootstrap": 0, "min_cells": 1, "silent": True}
    in_place = bm.run(toy_data, "mcar", ["zero", "gene_mean"], **options)["value"]
    train = split_cells(toy_data.adata, (1 - TEST_SHARE, TEST_SHARE), seed=0)[0]
    train_shortly(toy_data.adata[train].copy(), seed=0).save(tmp_path / "model")
    monkeypatch.setattr(frechet, "train_embedder", None)
    saved = bm.run(toy_data, "mcar", ["zero", "gene_mean"], embedder=tmp_path / "model", **options)["value"]
    np.testing.assert_allclose(saved, in_place, rtol=1e-4)
    assert in_place[0] > in_place[1] > 0


def test_a_missing_extra_is_a_recorded_failure(toy_data, caplog):
    class Needy(Poisson):
        name = "needy"
        requires = ("no_such_extra",)

    table = bm.run(toy_data, "mcar", [Needy(), "zero"], metrics=["rmse"], n_bootstrap=0, silent=True).set_index(
        "method"
    )
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
from sccountsdiff.benchmark.metrics import frechet

output, log = Path(sys.argv[1]), Path(sys.argv[2])

class Slow(Baseline):
    name = "slow"
    def _fit(self, cells, seed):
        self.mean = cells.counts.mean(axis=0)
    def _impute(self, cells, sites, n_samples, seed):
        with log.open("a") as file:
            file.write("impute\\n")
        if log.read_text().count("impute") == int(sys.argv[3]):
            Path(str(log) + ".waiting").touch()
            import time; time.sleep(600)
        return np.broadcast_to(self.mean, sites.shape)

counts = np.random.default_rng(0).poisson(3.0, (60, 8)).astype(np.float32)
data = Dataset("toy", AnnData(counts))
table = bm.run(data, ["mcar", "mcar:0.3"], Slow(), (0, 1), metrics=["rmse"], n_bootstrap=0, output=output, silent=True)
"""


def test_killed_without_warning_and_started_again(tmp_path, without_costs):
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


def test_the_truth_is_shown_where_it_is_not_trivial(toy_data):
    pytest.importorskip("leidenalg")
    table = bm.run(toy_data, "mcar", "zero", metrics=["rmse", "cluster_ari"], n_bootstrap=0, silent=True)
    assert table[table["method"] == "truth"]["metric"].tolist() == ["cluster_ari"]


def test_all_default_metrics_on_labelled_and_unlabelled_cells(toy_data):
    with_labels = bm.run(toy_data, MNARLow(), "zero", n_bootstrap=0, quick=True, silent=True)
    unlabelled = Dataset("plain", toy_data.adata)
    without = bm.run(unlabelled, MNARLow(), "zero", n_bootstrap=0, quick=True, silent=True)
    assert with_labels["error"].isna().all() and without["error"].isna().all()
    assert "marker_recovery" in set(with_labels["metric"]) and "marker_recovery" not in set(without["metric"])
    assert not {"scfid", "accuracy"} & set(with_labels["metric"]), "quick leaves out what has to be trained"


def test_resamples_of_some_cells_and_mmd_of_as_many(toy_data, tmp_path, monkeypatch):
    seen = []
    bootstrap = bm.metrics.bootstrap_se

    def spy(metric, *, n_cells, **arrays):
        seen.append((metric.name, n_cells, len(arrays["truth"])))
        return bootstrap(metric, n_cells=n_cells, **arrays)

    monkeypatch.setattr(scoring, "bootstrap_se", spy)
    run = partial(
        bm.run, toy_data, "mcar", "gene_mean", metrics=["rmse", "mmd"], n_bootstrap=3, silent=True, output=tmp_path
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


def test_a_share_of_test_cells(toy_data):
    options = {"metrics": ["rmse"], "n_bootstrap": 0, "silent": True}
    Poisson.calls.clear()
    seen = []

    class Counting(Poisson):
        def _fit(self, cells, seed):
            seen.append(len(cells))
            super()._fit(cells, seed)

    bm.run(toy_data, "mcar", Counting(), test_share=0.25, n_samples=1, **options)
    assert seen == [90]
    for share in (0, 1):
        with pytest.raises(ValueError, match="test_share"):
            bm.run(toy_data, "mcar", "zero", test_share=share, **options)


def test_results_of_panels_depend_on_batches_and_those_of_other_patterns_do_not(toy_data, tmp_path):
    batches = np.arange(toy_data.adata.n_obs) % 3
    cells = [toy_data.adata.copy() for _ in range(2)]
    cells[0].obs["batch"], cells[1].obs["batch"] = batches.astype(str), np.roll(batches, 1).astype(str)
    variants = [toy_data, *(Dataset("toy", c, covariates=("type",), label="type", batch="batch") for c in cells)]
    numbers = []
    for data in variants:
        options = {"metrics": ["rmse"], "n_bootstrap": 0, "silent": True, "output": tmp_path}
        bm.run(data, ["mcar", "panel:0.25"], "gene_mean", **options)
        numbers.append(len(list((tmp_path / "results").glob("*.json"))))
    assert numbers == [2, 3, 4]


def test_genes_of_each_modality_and_modalities_that_are_hidden(toy_data):
    cells = toy_data.adata.copy()
    cells.var["feature_types"] = ["rna"] * 8 + ["protein"] * 4
    data = Dataset("two", cells, covariates=("type",), modality="feature_types")
    assert prepare(data, n_genes=3).var["feature_types"].value_counts().to_dict() == {"rna": 3, "protein": 3}
    options = {"metrics": ["rmse"], "n_bootstrap": 0, "silent": True}
    table = bm.run(data, ["modality", "modality:rna"], "gene_mean", **options)
    assert table["missingness"].tolist() == ["modality", "modality(name='rna')"] and table["error"].isna().all()
    for source, pattern in ((data, "modality:atac"), (toy_data, "modality")):
        with pytest.raises(ValueError, match="missingness 'modality' needs"):
            bm.run(source, pattern, "gene_mean", **options)


def test_trained_methods_are_kept_for_another_protocol_unless_they_look_at_what_is_missing(toy_data):
    n_fits = []

    @dataclass(eq=False)
    class Blind(Poisson):
        step: int = sampling(1)

        def _fit(self, cells, seed):
            n_fits.append(seed)
            super()._fit(cells, seed)

    class Seeing(Blind):
        uses_mask = True

    options = {"metrics": ["rmse"], "n_bootstrap": 0, "silent": True, "n_samples": 1}
    for kind, expected in ((Blind, [0, 1]), (Seeing, [0, 0, 1])):
        trained = {}
        n_fits.clear()
        for protocol, seed in (("all", 0), ("paper", 0), ("all", 1), ("all", 1)):
            bm.run(toy_data, "mcar", kind(), [seed], protocol=protocol, trained=trained, **options)
        assert n_fits == expected
