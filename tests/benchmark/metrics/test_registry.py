import numpy as np
import pytest

from sccountsdiff.benchmark import downstream, metrics


def test_every_metric_describes_itself():
    table = metrics.list_metrics()
    named = {
        *("rmse", "mae", "bias", "r2", "spearman", "pearson", "energy_distance", "mmd", "sliced_wasserstein", "scfid"),
        *("poisson_loss", "nb_log_score", "crps", "pit_ks", "coverage_gap", "molecule_mse", "molecule_poisson"),
    }
    assert named <= set(table.index)
    assert set(table["direction"]) == {"lower", "higher", "zero"}
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
