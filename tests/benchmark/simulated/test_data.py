import numpy as np
import pytest

from sccountsdiff.benchmark.simulated import NegativeBinomialToy

TOY = NegativeBinomialToy([0.1, 0.8, 2.0], [2.0, 0.5, 1.0], size_factor_sd=0.4)


def test_moments_are_those_of_the_closed_form():
    n = 200_000
    x = TOY.sample(n, np.random.default_rng(0)).astype(np.float64)
    centred = x - TOY.mean
    assert (np.abs(centred.mean(0)) < 4 * x.std(0) / np.sqrt(n)).all()
    products = centred[:, :, None] * centred[:, None, :]  # one estimate of the covariance for each sample
    error = np.abs(products.mean(0) - TOY.covariance)
    assert (error < 4 * products.std(0) / np.sqrt(n)).all()
    assert TOY.covariance[0, 2] > 0  # the size factor


def test_without_a_size_factor_dimensions_are_independent_negative_binomials():
    toy = NegativeBinomialToy([0.5, 3.0], [0.7, 2.0], size_factor_sd=0.0)
    np.testing.assert_allclose(toy.covariance, np.diag(toy.means + toy.means**2 / toy.dispersions))
    n = 100_000
    zeros = (toy.sample(n, np.random.default_rng(1)) == 0).mean(0)
    expected = (toy.dispersions / (toy.dispersions + toy.means)) ** toy.dispersions
    assert (np.abs(zeros - expected) < 4 * np.sqrt(expected * (1 - expected) / n)).all()


def test_parameters_are_log_uniform_within_their_ranges():
    toy = NegativeBinomialToy.draw(0, n_dimensions=20_000, mean_range=(0.05, 0.5), dispersion_range=(0.2, 5.0))
    for values, low, high in ((toy.means, 0.05, 0.5), (toy.dispersions, 0.2, 5.0)):
        share = np.log(values / low) / np.log(high / low)  # uniform on [0, 1]
        assert share.min() >= 0 and share.max() <= 1
        assert abs(share.mean() - 0.5) < 4 * np.sqrt(1 / 12 / len(share))
        assert abs(share.var() - 1 / 12) < 4 * np.sqrt(1 / 180 / len(share))


def test_wide_means_give_sparse_counts_with_large_ones_and_the_seed_decides():
    toys = [NegativeBinomialToy.draw(seed, mean_range=(0.05, 2.0)) for seed in range(3)]
    x = np.stack([toy.sample(4000, np.random.default_rng(0)) for toy in toys])
    assert 0.5 < (x == 0).mean() < 0.9 and x.max() > 30
    np.testing.assert_array_equal(toys[1].means, NegativeBinomialToy.draw(1, mean_range=(0.05, 2.0)).means)
    assert not np.array_equal(toys[0].means, toys[1].means)


def test_means_of_the_paper_s_text_cannot_have_the_variances_of_its_table():
    largest = NegativeBinomialToy([0.5], [0.2]).covariance[0, 0]
    assert largest < 4.71 < 16.09  # two of its ten dimensions


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"means": [0.0], "dispersions": [1.0]}, "`means`"),
        ({"means": [1.0], "dispersions": [np.nan]}, "`dispersions`"),
        ({"means": [1.0, 2.0], "dispersions": [1.0]}, "same length"),
        ({"means": [1.0], "dispersions": [1.0], "size_factor_sd": -1.0}, "`size_factor_sd`"),
    ],
)
def test_bad_parameters_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        NegativeBinomialToy(**arguments)


@pytest.mark.parametrize("ranges", [{"mean_range": (2.0, 1.0)}, {"dispersion_range": (0.0, 1.0)}, {"n_dimensions": 0}])
def test_bad_ranges_are_refused(ranges):
    with pytest.raises(ValueError, match=next(iter(ranges))):
        NegativeBinomialToy.draw(0, **ranges)
