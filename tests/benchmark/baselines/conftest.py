"""Counts on which a method that learns anything beats the mean of the gene."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData

from sccountsdiff.benchmark.baselines import GeneMean


@pytest.fixture(scope="session")
def low_rank():
    """200 training cells x 50 genes of rank-3 rates, 60 test cells, and half of their entries as sites."""
    rng = np.random.default_rng(5)
    kind = rng.integers(3, size=260)
    profiles = rng.gamma(0.6, 8.0, (3, 50)) + 0.2
    rates = rng.gamma(6, 1 / 6, (260, 1)) * profiles[kind]
    obs = pd.DataFrame({"type": np.array(["a", "b", "c"])[kind]}, index=[f"c{i}" for i in range(260)])
    var = pd.DataFrame(index=[f"g{j}" for j in range(50)])
    cells = AnnData(rng.poisson(rates).astype(np.float32), obs=obs, var=var)
    train, test = cells[:200].copy(), cells[200:].copy()
    sites = rng.random(test.shape) < 0.5

    def rmse(method, n_samples=1):
        """Error over the sites after training on the training cells; draws are averaged."""
        answer = method.fit(train, covariates="type", seed=0).impute(test, sites, n_samples, seed=0)
        answer = answer.mean(axis=0) if n_samples > 1 else answer
        return float(np.sqrt(np.mean((answer - test.X)[sites] ** 2)))

    return SimpleNamespace(train=train, test=test, sites=sites, rmse=rmse, rmse_of_gene_mean=rmse(GeneMean()))
