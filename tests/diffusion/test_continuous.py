"""Continuous data through counts: the right moments, and the law of the data as the scale grows."""

import numpy as np
import pytest
import torch
from scipy import sparse, stats

from sccountsdiff.diffusion import NOISED, Cosine, Prediction, Rescale, reverse_walk, sample
from sccountsdiff.diffusion.continuous import PoissonCounts

N = 20_000
SHAPE, RATE = 3.0, 2.0  # of the gamma law that the data follow


def exact_denoiser(scale):
    """The remaining counts of Poisson(scale * Gamma) given what is left: negative binomial (Gamma posterior)."""

    def denoise(x, status, t):
        p = Cosine().survival(t).to(x)[:, None]
        shape = SHAPE + x
        mean = (1 - p) * scale * shape / (RATE + p * scale)
        return Prediction(mean.log(), shape.log())

    return denoise


@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_round_trip_keeps_the_mean_and_adds_the_mean_over_scale_to_the_variance(scale, generator):
    x = torch.full((N,), 2.5)
    back = PoissonCounts(scale).decode(PoissonCounts(scale).encode(x, generator))
    variance = 2.5 / scale
    assert back.mean().item() == pytest.approx(2.5, abs=5 * np.sqrt(variance / N))
    # The fourth central moment of a Poisson law of mean m is m + 3 m^2.
    fourth = (2.5 * scale + 3 * (2.5 * scale) ** 2) / scale**4
    assert back.var().item() == pytest.approx(variance, abs=5 * np.sqrt((fourth - variance**2) / N))


@pytest.mark.parametrize("n_steps", [1, 8])
def test_a_count_model_draws_the_law_of_the_data_as_scale_grows(n_steps, generator):
    law = stats.gamma(SHAPE, scale=1 / RATE)
    distances = {}
    for scale in (1.0, 500.0):
        empty = torch.zeros(N, 1)
        z = sample(
            exact_denoiser(scale), Cosine(), reverse_walk(n_steps), empty, torch.full_like(empty, NOISED),
            attrition=Rescale(0.1), rounding="nb", generator=generator,
        )  # fmt: skip
        x = PoissonCounts(scale).decode(z).numpy().ravel()
        assert x.mean() == pytest.approx(law.mean(), abs=5 * np.sqrt((law.var() + law.mean() / scale) / N))
        distances[scale] = stats.kstest(x, law.cdf).statistic
    assert distances[500.0] < 1.95 / np.sqrt(N) < distances[1.0]  # the 0.1 % quantile of Kolmogorov's law


def test_zero_stays_zero_and_counts_are_whole(generator):
    z = PoissonCounts(7.5).encode([[0.0, 1.2], [3.4, 0.0]], generator)
    assert (z == z.round()).all() and z[0, 0] == 0 and z[1, 1] == 0


def test_same_seed_same_counts():
    x = torch.rand(50)
    first, second = (PoissonCounts(9.0).encode(x, torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(first, second)


def test_decodes_sparse_matrices_arrays_and_tensors_alike():
    z = np.array([[0.0, 6.0], [3.0, 0.0]])
    counts = PoissonCounts(3.0)
    assert sparse.issparse(counts.decode(sparse.csr_matrix(z)))
    for same in (sparse.csr_matrix(z), torch.tensor(z)):
        decoded = counts.decode(same)
        assert np.array_equal(decoded.toarray() if sparse.issparse(decoded) else decoded, [[0, 2], [1, 0]])


@pytest.mark.parametrize("bad", [[-0.1], [float("nan")], [float("inf")]])
def test_rejects_what_has_no_poisson_law(bad):
    with pytest.raises(ValueError, match="finite and not negative"):
        PoissonCounts(2.0).encode(bad)


def test_rejects_scales_below_one_and_counts_beyond_single_precision():
    with pytest.raises(ValueError, match="at least 1, not 0.5"):
        PoissonCounts(0.5)
    with pytest.raises(ValueError, match="smaller scale"):
        PoissonCounts(1e6).encode([20.0])


def test_serves_the_cell_model(simulate, train):
    adata = simulate(30).adata
    counts = PoissonCounts(4.0)
    expression = adata.X.toarray() / 10  # not whole numbers
    adata.X = counts.encode(expression, torch.Generator().manual_seed(0)).numpy()
    drawn = counts.decode(train(adata).generate(5, n_steps=2, seed=0, silent=True).X).toarray()
    assert (drawn * 4 == (drawn * 4).round()).all() and (drawn > 0).any()
