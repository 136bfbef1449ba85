"""Metrics: pure functions of arrays, each registered with its direction and what it needs."""

from sccountsdiff.benchmark.metrics.bootstrap import bootstrap_se
from sccountsdiff.benchmark.metrics.calibration import coverage, coverage_gap, pit, pit_ks, pit_ks_thirds
from sccountsdiff.benchmark.metrics.correlation import pearson, spearman
from sccountsdiff.benchmark.metrics.denoising import molecule_mse, molecule_poisson
from sccountsdiff.benchmark.metrics.energy import energy_distance
from sccountsdiff.benchmark.metrics.ensemble import crps
from sccountsdiff.benchmark.metrics.frechet import embed, load_embedder, scfid, train_embedder
from sccountsdiff.benchmark.metrics.kernel import mmd, mmd_of_resamples
from sccountsdiff.benchmark.metrics.likelihood import nb_log_score, poisson_loss
from sccountsdiff.benchmark.metrics.pointwise import bias, log_mse, mae, r2, ratio_of_sums, rmse
from sccountsdiff.benchmark.metrics.registry import METRICS, Metric, get_metric, list_metrics, register_metric
from sccountsdiff.benchmark.metrics.wasserstein import sliced_wasserstein

# isort: split
# Defined outside of this package, with which it must be registered; last, as it takes the registry from here.
import sccountsdiff.benchmark.downstream

__all__ = ["METRICS", "Metric", "bootstrap_se", "get_metric", "list_metrics", "register_metric"]
__all__ += ["bias", "log_mse", "mae", "pearson", "r2", "ratio_of_sums", "rmse", "spearman"]
__all__ += [
    "embed",
    "energy_distance",
    "load_embedder",
    "mmd",
    "mmd_of_resamples",
    "scfid",
    "sliced_wasserstein",
    "train_embedder",
]
__all__ += ["nb_log_score", "poisson_loss"]
__all__ += ["coverage", "coverage_gap", "crps", "pit", "pit_ks", "pit_ks_thirds"]
__all__ += ["molecule_mse", "molecule_poisson"]
