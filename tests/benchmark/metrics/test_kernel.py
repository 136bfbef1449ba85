import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.metrics.pairwise import euclidean_distances, rbf_kernel

from sccountsdiff.benchmark import metrics
from sccountsdiff.benchmark.metrics import kernel


@pytest.fixture(scope="module")
def pair():
    rng = np.random.default_rng(0)
    truth = rng.negative_binomial(2, 0.3, (90, 12)).astype(np.float32)
    return truth, truth + rng.poisson(1, truth.shape).astype(np.float32)


def test_identical_cells_are_at_distance_zero(pair):
    truth, _ = pair
    assert metrics.mmd(truth, truth) == 0
    assert metrics.mmd(truth, np.random.default_rng(1).permutation(truth)) == pytest.approx(0, abs=1e-12)


def test_mmd_agrees_with_scikit_learn_kernels(pair, monkeypatch):
    truth, imputed = (m.astype(np.float64) for m in pair)
    width = np.median(euclidean_distances(truth)[np.triu_indices(90, k=1)])
    assert kernel.median_distance(truth) == pytest.approx(width)
    expected = np.mean(
        [
            rbf_kernel(truth, gamma=g).mean()
            + rbf_kernel(imputed, gamma=g).mean()
            - 2 * rbf_kernel(truth, imputed, g).mean()
            for g in 1 / (2 * (np.array([0.25, 0.5, 1, 2, 4]) * width) ** 2)
        ]
    )
    assert metrics.mmd(truth, imputed) == pytest.approx(expected)
    monkeypatch.setattr(kernel, "BLOCK", 17)
    assert metrics.mmd(truth, imputed) == pytest.approx(expected)


def test_mmd_of_shifted_gaussians():
    """E k(x, y) of two normals at distance d is (w^2 / (w^2 + 2))^(D/2) exp(-d^2 / (2 (w^2 + 2)))."""
    rng = np.random.default_rng(4)
    n, dims, shift = 3000, 2, 1.0
    truth, other = rng.normal(size=(n, dims)), rng.normal(size=(n, dims)) + [shift, 0]
    width = kernel.median_distance(truth[:2000])
    assert width == pytest.approx(np.sqrt(2 * stats.chi2(dims).median()), rel=0.05)
    kernel_mean = lambda d: (width**2 / (width**2 + 2)) ** (dims / 2) * np.exp(-(d**2) / (2 * (width**2 + 2)))
    expected = 2 * kernel_mean(0) - 2 * kernel_mean(shift) + 2 * (1 - kernel_mean(0)) / n  # V-statistic
    found = metrics.mmd(truth, other, scales=(1,))
    assert found == pytest.approx(expected, abs=4 * np.sqrt(2 * expected / n))


def test_mmd_on_some_cells(pair):
    truth, imputed = pair
    assert metrics.mmd(truth, imputed, max_cells=1000) == metrics.mmd(truth, imputed)
    some = [metrics.mmd(truth, imputed, max_cells=40, seed=s) for s in (0, 0, 1)]
    assert some[0] == some[1] != some[2] and some[0] == pytest.approx(metrics.mmd(truth, imputed), rel=0.5)
    assert metrics.mmd(np.zeros((5, 2)), np.zeros((5, 2))) == 0


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("kind", ["small", "large", "fractional"])
def test_single_precision_is_as_good_as_double(pair, monkeypatch, kind, fast):
    """With and without products of bytes, which are for genes with small counts."""
    factors = np.array([1, 100 if kind == "large" else 1] * 36)
    truth, imputed = (np.tile(cells, 6) * factors for cells in pair)
    imputed = imputed + 0.3 if kind == "fractional" else imputed
    assert kernel._are_small(imputed).sum() == {"small": 72, "large": 36, "fractional": 0}[kind]
    monkeypatch.setattr(kernel, "_bytes_are_fast", lambda device: False)
    double = metrics.mmd(truth, imputed)
    monkeypatch.setattr(kernel, "DOUBLE_UP_TO", 0)
    monkeypatch.setattr(kernel, "_bytes_are_fast", lambda device: fast)
    assert metrics.mmd(truth, imputed) == pytest.approx(double, abs=1e-6)
    assert metrics.mmd(imputed, imputed) == 0


@pytest.mark.parametrize("n_genes", [kernel.FEWEST_BYTES, kernel.FEWEST_BYTES + 1, 100, 257])
def test_products_of_bytes_are_exact(n_genes):
    """By a function that torch does not document."""
    bytes_ = torch.randint(-127, 128, (77, n_genes), generator=torch.Generator().manual_seed(0), dtype=torch.int8)
    assert torch._int_mm(bytes_, bytes_.T).equal(bytes_.int() @ bytes_.int().T)


def test_kernels_of_any_widths_are_those_of_their_own_exponentials():
    """Also where a kernel is made from the wider one before it."""
    x, y = torch.rand(2, 5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    widths = np.array([0.3, 1.0, 0.5, 0.25, 2.0])
    squared = torch.cdist(x, y) ** 2
    expected = sum(torch.exp(-squared / (2 * w**2)) for w in widths)
    torch.testing.assert_close(kernel._kernels(squared, widths), expected)


def test_resamples_are_weighted_cells(pair):
    """Cells that are there twice count twice, as with copies of them, for the same kernels."""
    truth, imputed = pair
    numbers = np.random.default_rng(2).integers(0, 3, (4, len(truth)))
    widths = kernel._widths(truth)
    expected = []
    for number in numbers:
        copies = np.repeat(np.arange(len(truth)), number)
        expected.append(kernel._discrepancies(truth[copies], imputed[copies], widths, np.ones((1, len(copies))))[0])
    np.testing.assert_allclose(kernel.mmd_of_resamples(truth, imputed, numbers=numbers), expected, rtol=1e-9)
    with pytest.raises(ValueError, match="numbers must have shape"):
        kernel.mmd_of_resamples(truth, imputed, numbers=numbers[:, :5])
