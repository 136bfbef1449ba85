"""A small data set, whose cells have one of two types."""

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData

from sccountsdiff.benchmark.datasets import Dataset


@pytest.fixture(scope="session")
def toy_data():
    rng = np.random.default_rng(0)
    kind = rng.integers(2, size=120)
    counts = rng.poisson(rng.gamma(1, 4, (2, 12))[kind]).astype(np.float32)
    obs = pd.DataFrame({"type": np.array(["a", "b"])[kind]}, index=[f"c{i}" for i in range(120)])
    return Dataset("toy", AnnData(counts, obs=obs), covariates=("type",), label="type")


@pytest.fixture(scope="session")
def without_costs():
    return lambda table: table.drop(columns=["fit_seconds", "impute_seconds", "peak_memory_mb"])
