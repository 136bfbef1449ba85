import numpy as np
import pytest

from sccountsdiff.benchmark import downstream, metrics
from sccountsdiff.benchmark.metrics.registry import INPUTS, METRICS, register_input


def test_every_metric_describes_itself():
    table = metrics.list_metrics()
    named = {
        *("rmse", "mae", "bias", "r2", "spearman", "pearson", "energy_distance", "mmd", "sliced_wasserstein", "scfid"),
        *("poisson_loss", "nb_log_score", "crps", "pit_ks", "coverage_gap", "molecule_mse", "molecule_poisson"),
    }
    assert named <= set(table.index)
    assert set(table["direction"]) == {"lower", "higher", "zero", "one"}
    assert table["summary"].str.len().min() > 20


def test_a_metric_takes_what_it_needs():
    rng = np.random.default_rng(0)
    truth, sites = rng.poisson(3, (20, 10)), rng.random((20, 10)) < 0.5
    everything = {
        "truth": truth,
        "imputed": truth + 1.0,
        "sites": sites,
        "draws": rng.poisson(3, (4, sites.sum())),
        "denoised": truth + 1.0,
        "held_out": truth,
        "truth_embedding": rng.normal(size=(20, 2)),
        "imputed_embedding": rng.normal(size=(20, 2)),
        "labels": np.tile(["a", "b"], 10),
        "predicted_labels": np.repeat(["a", "b"], 10),
        "clusters": np.tile(["0", "1", "2", "3"], 5),
    }
    assert downstream.accuracy is metrics.get_metric("accuracy").function  # those of the downstream tasks are there too
    for name in metrics.METRICS:
        assert np.isfinite(metrics.get_metric(name)(**everything)), name
    with pytest.raises(ValueError, match="'crps' needs \\['draws', 'sites'\\]"):
        metrics.get_metric("crps")(truth=truth)


@pytest.fixture
def entries(monkeypatch):
    """Metrics and inputs that are forgotten after the test."""
    for registry in (METRICS, INPUTS):
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))


def test_what_a_metric_needs_is_what_its_function_takes(entries):
    @metrics.register_metric("shallow", direction="lower")
    def shallow(depths, sites, *, level=0.5, **options):
        return float(np.mean(depths < level))

    @register_input("depths", needs_training=True, packages=("math", "no_such_package"))
    def depths(split, imputed, labels):
        return imputed.sum(axis=1)

    metric = metrics.get_metric("shallow")
    assert metric.needs == ("depths", "sites") and INPUTS["depths"].needs == ("imputed", "labels")
    assert metric.applies_to({"imputed", "sites"}) and not metric.applies_to({"imputed"})
    assert metric.needs_labels and metric.needs_training and not metric.judges_truth
    assert metric.missing_packages() == ["no_such_package"]
    metrics.register_metric("named", direction="lower", needs=("truth",), packages=("nor_this",))(len)
    assert metrics.get_metric("named").needs == ("truth",)
    assert metrics.get_metric("named").missing_packages() == ["nor_this"]


def test_lower_loss_is_better():
    values = np.array([-2.0, 0.5, 1.0])
    best = {name: values[np.argmin(metrics.get_metric(name).loss(values))] for name in ("rmse", "pearson", "bias")}
    assert best == {"rmse": -2.0, "pearson": 1.0, "bias": 0.5}
