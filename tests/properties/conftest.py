"""Profiles of hypothesis: a quick one for every day, a long one for `make fuzz`."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scvi
from anndata import AnnData
from hypothesis import HealthCheck, settings
from strategies import GENES, TRIED

from sccountsdiff import CountsDiffImputer

COMMON = {"deadline": None, "suppress_health_check": list(HealthCheck), "print_blob": True}
settings.register_profile("quick", max_examples=25, derandomize=True, database=None, **COMMON)
settings.register_profile("long", max_examples=int(os.environ.get("FUZZ_EXAMPLES", "2500")), database=None, **COMMON)
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


@pytest.fixture(scope="session", autouse=True)
def count_examples():
    """Write down how many examples were tried, if asked for (``FUZZ_RESULT``)."""
    yield
    target = os.environ.get("FUZZ_RESULT")
    if target:
        table = pd.DataFrame([{"property": name, **counts} for name, counts in TRIED.items()]).fillna(0)
        Path(target).write_text(table.to_csv(index=False), encoding="utf-8")
