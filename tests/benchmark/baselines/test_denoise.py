"""What methods expect of counts that they see, at the depth of the cells that they are shown."""

import numpy as np
import pytest
from anndata import AnnData

from sccountsdiff.benchmark import metrics
from sccountsdiff.benchmark.baselines import BASELINES, get_baseline
from sccountsdiff.benchmark.missingness import split_molecules

SCVI = {"n_hidden": 8, "n_latent": 2, "max_epochs": 2, "n_posterior": 2}
MLP = {"max_epochs": 2, "model_kwargs": {"n_hidden": 8, "n_layers": 1}}
SMALL = {
    "scvi": SCVI,
    "scvi_refined": SCVI,
    "magic": {"n_neighbors": 5},
    "alra": {"rank": 3},
    "knn_smoothing": {"n_neighbors": 8},
    "countsdiff": MLP,
}
TO_THE_DEPTH_OF_THE_CELL = [
    *("zero", "conditional_mean_scaled", "gene_mean_scaled", "knn_mean", "magic", "alra", "knn_smoothing"),
    *("scvi", "scvi_refined"),
]
SHARE = 0.9


@pytest.fixture(scope="module")
def split(low_rank):
    seen, held_out = split_molecules(low_rank.test.X, SHARE, seed=2)
    cells = low_rank.test.copy()
    cells.X = seen
    cells.X[0] = 0  # an empty cell
    return cells, held_out


def denoised(name, low_rank, cells, share=SHARE):
    method = get_baseline(name)(**SMALL.get(name, {})).fit(low_rank.train, covariates="type")
    return method.denoise(cells, share)


@pytest.mark.parametrize("name", TO_THE_DEPTH_OF_THE_CELL)
def test_totals_are_those_of_the_cells(name, low_rank, split):
    cells, _ = split
    before = cells.X.copy()
    answer = denoised(name, low_rank, cells)
    np.testing.assert_allclose(answer.sum(axis=1), cells.X.sum(axis=1), rtol=1e-5)
    np.testing.assert_array_equal(cells.X, before, err_msg="the cells that were given were written to")


def test_no_denoising_and_averages_in_closed_form(low_rank, split):
    cells, _ = split
    np.testing.assert_array_equal(denoised("zero", low_rank, cells), cells.X)
    mean = low_rank.train.X.mean(axis=0, dtype=np.float64)
    for share in (0.9, 0.5):
        expected = np.broadcast_to(share * mean, cells.shape)
        np.testing.assert_allclose(denoised("gene_mean", low_rank, cells, share), expected, rtol=1e-6)
    of_type = low_rank.train.to_df().groupby(low_rank.train.obs["type"]).mean().loc[cells.obs["type"]].to_numpy()
    np.testing.assert_allclose(denoised("conditional_mean", low_rank, cells), SHARE * of_type, rtol=1e-5)
    depth = cells.X.sum(axis=1, keepdims=True) / of_type.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(denoised("conditional_mean_scaled", low_rank, cells), depth * of_type, rtol=1e-5)


def test_countsdiff_adds_the_molecules_that_are_not_seen(low_rank, split):
    """What is denoised, at the depth of the hidden part, and what is seen are the complete cell of the model."""
    cells, _ = split
    method = get_baseline("countsdiff")(**MLP).fit(low_rank.train, covariates="type")
    complete = cells.X + method.denoise(cells, SHARE) * (1 - SHARE) / SHARE
    np.testing.assert_allclose(
        complete, method.model.denoise(cells, depth=1 / SHARE, silent=True), rtol=1e-5, atol=1e-5
    )
    assert (complete >= cells.X).all() and (complete > cells.X).any()


@pytest.mark.parametrize("name", ["conditional_mean_scaled", "knn_mean", "knn_smoothing", "magic"])
def test_cells_like_it_tell_more_than_the_cell_alone(name, low_rank, split):
    cells, held_out = split
    loss = {n: metrics.molecule_poisson(denoised(n, low_rank, cells), held_out) for n in (name, "gene_mean", "zero")}
    assert loss[name] < loss["gene_mean"] < loss["zero"]


def test_what_is_refused(low_rank, split):
    cells, _ = split
    gain = get_baseline("gain")()
    with pytest.raises(ValueError, match="'gain' cannot denoise"):
        gain.denoise(cells)
    method = get_baseline("gene_mean")()
    with pytest.raises(ValueError, match="has not been fitted"):
        method.denoise(cells)
    method.fit(low_rank.train)
    with pytest.raises(ValueError, match="share must be between 0 and 1, found 90"):
        method.denoise(cells, share=90)
    with pytest.raises(ValueError, match="genes of test"):
        method.denoise(cells[:, :3])
    with pytest.raises(ValueError, match="negative entries"):
        method.denoise(AnnData(-cells.X, obs=cells.obs, var=cells.var))


def test_a_method_says_whether_it_denoises():
    able = {name for name in BASELINES if BASELINES[name].denoises}
    assert able >= {*TO_THE_DEPTH_OF_THE_CELL, "gene_mean", "conditional_mean", "countsdiff", "countsdiff_mean"}
    assert not able & {"gain", "remdm", "sklearn_knn", "forest_diffusion"}
