"""Metrics: pure functions of arrays, each registered with its direction and what it needs."""

from sccountsdiff.benchmark.metrics.bootstrap import bootstrap_se
from sccountsdiff.benchmark.metrics.calibration import coverage, coverage_gap, pit, pit_ks
from sccountsdiff.benchmark.metrics.correlation import pearson, spearman
from sccountsdiff.benchmark.metrics.denoising import molecule_mse, molecule_poisson
from sccountsdiff.benchmark.metrics.energy import energy_distance
from sccountsdiff.benchmark.metrics.ensemble import crps
from sccountsdiff.benchmark.metrics.frechet import embed, load_embedder, scfid, train_embedder
from sccountsdiff.benchmark.metrics.kernel import mmd
from sccountsdiff.benchmark.metrics.likelihood import nb_log_score, poisson_loss
from sccountsdiff.benchmark.metrics.pointwise import bias, mae, r2, rmse
from sccountsdiff.benchmark.metrics.registry import METRICS, Metric, get_metric, list_metrics, register_metric
from sccountsdiff.benchmark.metrics.wasserstein import sliced_wasserstein

__all__ = [
    "METRICS",
    "Metric",
    "bias",
    "bootstrap_se",
    "coverage",
    "coverage_gap",
    "crps",
    "embed",
    "energy_distance",
    "get_metric",
    "list_metrics",
    "load_embedder",
    "mae",
    "mmd",
    "molecule_mse",
    "molecule_poisson",
    "nb_log_score",
    "pearson",
    "pit",
    "pit_ks",
    "poisson_loss",
    "r2",
    "register_metric",
    "rmse",
    "scfid",
    "sliced_wasserstein",
    "spearman",
    "train_embedder",
]

# Defined outside of this package, with which it must be registered. Not at the top, as it takes the registry from here.
import sccountsdiff.benchmark.downstream
