"""Profiles of hypothesis: a quick one for every day, a long one for `make fuzz`."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version

import numpy as np
import pandas as pd
import pytest
import scvi
from anndata import AnnData
from hypothesis import HealthCheck, settings
from strategies import GENES, TRIED, make_files

from sccountsdiff import CountsDiffImputer
from sccountsdiff.files import write_table

VERSIONS = ("anndata", "numpy", "pandas", "scipy", "scvi-tools", "torch", "hypothesis")
"""Packages whose versions are noted with the result."""

COMMON = {"deadline": None, "suppress_health_check": list(HealthCheck), "print_blob": True, "database": None}
settings.register_profile("quick", derandomize=True, **COMMON)
settings.register_profile("long", **COMMON)
settings.load_profile(os.environ.get("FUZZ_PROFILE", "quick"))


def make_model(**setup):
    rng = np.random.default_rng(0)
    counts = rng.poisson(rng.gamma(1.0, 2.0, (40, len(GENES)))).astype(np.float32)
    obs = pd.DataFrame({"group": np.resize(["x", "y"], 40)}, index=[f"c{i}" for i in range(40)])
    adata = AnnData(counts, obs=obs, var=pd.DataFrame(index=GENES))
    before = scvi.settings.seed
    scvi.settings.seed = 0
    CountsDiffImputer.setup_anndata(adata, **setup)
    model = CountsDiffImputer(adata, n_hidden=4, n_layers=1)
    model.train(1, accelerator="cpu", enable_progress_bar=False)
    scvi.settings.seed = before
    return model


@pytest.fixture(scope="session")
def plain_model():
    """Of six genes, without covariates."""
    return make_model()


@pytest.fixture(scope="session")
def grouped_model():
    """Of six genes, with a covariate."""
    return make_model(categorical_covariate_keys=["group"])


@pytest.fixture(scope="session")
def files(plain_model, tmp_path_factory):
    """A file of each kind that is read: whole ones, to be damaged."""
    return make_files(tmp_path_factory.mktemp("whole"), plain_model)


def pytest_runtest_logreport(report):
    """Count the properties that do not hold."""
    name = report.nodeid.partition("::test_")[2]
    if report.failed and name:
        TRIED[name]["failed"] += 1


def pytest_sessionfinish():
    """Write down what was tried and what became of it, if asked for (``FUZZ_RESULT``)."""
    target = os.environ.get("FUZZ_RESULT")
    if target:
        table = pd.DataFrame([{"property": name, **counts} for name, counts in TRIED.items()])
        counts = table.reindex(columns=["examples", "worked", "refused", "failed"]).fillna(0).astype(int)
        versions = {name.replace("-", "_"): version(name) for name in VERSIONS}
        table = table[["property"]].join(counts).assign(python=platform.python_version(), **versions)
        write_table(target, table)
