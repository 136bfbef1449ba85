import numpy as np
import pandas as pd
import pytest
from anndata import AnnData

from sccountsdiff.benchmark.scvi_training import batch_size_without_rest, fit_scvi


@pytest.mark.parametrize("n_cells", [1, 2, 3, 127, 128, 129, 257, 16257, 32513])
def test_no_batch_of_a_single_cell(n_cells):
    size = batch_size_without_rest(n_cells, 128)
    assert 1 < size <= 128
    assert n_cells % size != 1 or n_cells == 1
    assert all(n_cells % larger == 1 for larger in range(size + 1, 129)), "the largest that will do"


def test_training_is_seeded_and_takes_covariates():
    rng = np.random.default_rng(0)
    obs = pd.DataFrame({"type": rng.choice(["a", "b"], 45), "age": rng.normal(size=45)}).set_axis(map(str, range(45)))
    cells = AnnData(rng.poisson(2, (45, 6)).astype(np.float32), obs=obs)
    keys = {"categorical_covariate_keys": ["type"], "continuous_covariate_keys": ["age"]}
    options = {"model_kwargs": {"n_latent": 3}, "train_kwargs": {"max_epochs": 2}} | keys
    first, same, other = (
        fit_scvi(cells.copy(), seed=seed, **options).get_latent_representation() for seed in (0, 0, 1)
    )
    assert first.shape == (45, 3)
    np.testing.assert_array_equal(first, same)
    assert not np.allclose(first, other)
