"""Small files in the layout of the atlases."""

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from scipy import sparse


@pytest.fixture(scope="session")
def cells():
    """120 cells x 30 genes of three types; counts in ``X``, the paper's covariates of both atlases."""
    rng = np.random.default_rng(0)
    kind = rng.integers(3, size=120)
    counts = rng.poisson(rng.gamma(1, 3, (3, 30))[kind])
    obs = pd.DataFrame(
        {
            "cell_type": pd.Categorical(np.array(["a", "b", "c"])[kind]),
            "disease": "normal",
            "sex": rng.choice(["male", "female"], 120),
            "Batch": rng.integers(2, size=120),
            "Development_day": rng.choice([72.0, 110.0], 120),
            "gender": rng.choice(["Male", "Female"], 120),
            "age_group": pd.Categorical(rng.choice(["40-45", None], 120)),
        },
        index=[f"cell{i}" for i in range(120)],
    )
    symbols = [f"G{i}" for i in range(29)] + ["G0"]  # symbols are not always unique
    var = pd.DataFrame({"feature_name": symbols}, index=[f"ENSG{i:03d}" for i in range(30)])
    return AnnData(sparse.csr_matrix(counts, dtype=np.float32), obs=obs, var=var)


@pytest.fixture(scope="session")
def fetus_file(cells, tmp_path_factory):
    """Like files of CELLxGENE: normalised values in ``X``, counts in ``raw``."""
    path = tmp_path_factory.mktemp("atlas") / "fetus.h5ad"
    adata = cells.copy()
    adata.raw = cells
    adata.X = adata.X.log1p()
    adata.write_h5ad(path)
    return path


@pytest.fixture(scope="session")
def heart_file(cells, tmp_path_factory):
    path = tmp_path_factory.mktemp("atlas") / "heart.h5ad"
    cells.write_h5ad(path)
    return path
