import numpy as np
import pytest
import scanpy as sc
from anndata import AnnData
from scipy import sparse

from sccountsdiff.benchmark import metrics
from sccountsdiff.benchmark.missingness import split_molecules


@pytest.fixture(scope="module")
def split():
    mean = np.random.default_rng(0).gamma(1, 5, (100, 30))
    seen, held_out = split_molecules(np.random.default_rng(1).poisson(mean))
    return mean, seen, held_out


def test_mse_agrees_with_scanpy(split):
    mean, _, held_out = split
    normalised = []
    for matrix in (mean, held_out):
        cells = AnnData(matrix.astype(np.float64))
        sc.pp.normalize_total(cells, target_sum=1e4)
        sc.pp.log1p(cells)
        normalised.append(cells.X)
    assert metrics.molecule_mse(mean, held_out) == pytest.approx(np.mean((normalised[0] - normalised[1]) ** 2))
    assert metrics.molecule_mse(held_out, held_out) == 0
    assert metrics.molecule_mse(np.zeros((2, 3)), np.zeros((2, 3))) == 0, "empty cells are no error"


def test_the_true_means_win(split):
    mean, seen, held_out = split
    best = metrics.molecule_poisson(mean * 0.9, held_out)
    assert best < metrics.molecule_poisson(seen, held_out)
    assert best < metrics.molecule_poisson(np.broadcast_to(seen.mean(axis=0), seen.shape), held_out)


def test_poisson_loss_at_the_depth_of_the_held_out_part(split):
    mean, _, held_out = split
    mu = mean * 0.1
    assert metrics.molecule_poisson(mean * 0.9, held_out) == pytest.approx(np.mean(mu - held_out * np.log(mu)))
    losses = [metrics.molecule_poisson(mean * f, held_out) for f in (0.6, 0.9, 1.3)]
    assert losses[1] == min(losses), "lowest at the right depth; with prediction and truth swapped it is not"


def test_sparse_and_dense_agree(split):
    mean, _, held_out = split
    for score in (metrics.molecule_mse, metrics.molecule_poisson):
        assert score(sparse.csr_matrix(mean), sparse.csr_matrix(held_out)) == pytest.approx(score(mean, held_out))


def test_input_is_refused_clearly(split):
    mean, _, held_out = split
    for message, arguments in (("same shape", (mean[:3], held_out)), ("denoised has negative", (-mean, held_out))):
        for score in (metrics.molecule_mse, metrics.molecule_poisson):
            with pytest.raises(ValueError, match=message):
                score(*arguments)
    with pytest.raises(ValueError, match="share"):
        metrics.molecule_poisson(mean, held_out, share=90)
